package lifecycle

import (
	"time"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
)

// awaitAnswer leaves a pod as it is whose resize the API server has not answered. It takes part in the
// plan of the node like a resize in flight.
func awaitAnswer(s *state) verdict {
	if s.pod.Sent == nil {
		return next
	}
	s.plan = s.planned(nil)
	s.plan.InFlight = true
	s.plan.LastIncrease, s.plan.LastDecrease = s.now, time.Time{}
	if s.pod.Sent.Lowers() {
		s.plan.LastDecrease = s.now
	}
	return toPlan
}

// followInFlight follows a resize until the kubelet has carried it out or has failed to. A decrease
// in flight takes part in the plan of the node, because increases of other pods wait for it. The steps
// below may find an increase that supersedes it; whatever else they find waits until it has ended.
func followInFlight(s *state) verdict {
	p := s.pod
	if now := p.Current(); !s.Status.lastApplied(p.Declared).Equal(now) {
		// The controller was interrupted between the resize and its record.
		purpose := Allocate
		if s.onlyReverts() {
			purpose = Revert
		}
		s.resized(s.now, purpose, s.Status.lastApplied(p.Declared), now, s.cfg)
	}
	// A kubelet that has not looked at the pod yet reports nothing, which looks like a boost carried out.
	inFlight := s.Status.Phase == PhasePending && s.Status.Reason == reasons.ResizeInFlight ||
		s.Status.Reason == reasons.StartupBoost
	failed := s.Status.failed()
	switch {
	case p.Progress == actuator.Done:
		if inFlight && s.Status.Phase == PhasePending || failed && s.Status.Reason == reasons.ResizeTimedOut {
			s.Done = true
			s.settle()
		}
		return next
	case s.Status.LastApplied.IsZero() || !inFlight && !failed:
		s.Report(PhaseNotApplied, reasons.ResizeInFlight, "") // of another writer, such as a change of memory
		return done
	case failed && !s.now.Before(s.Status.RetryAt):
		return next // it is tried again
	case failed:
		s.waitAfterFailure()
	default:
		s.judgeProgress()
	}
	if s.Move != nil || s.Status.Phase != PhasePending {
		return done
	}
	s.Supersedes = p.LatestWins && !p.QuotaShort && s.Status.lowersOnly()
	if s.Supersedes {
		return next
	}
	return s.leaveInFlight()
}

// leaveInFlight leaves a pod as it is until the kubelet has carried its resize out.
func (s *state) leaveInFlight() verdict {
	s.plan = s.planned(nil)
	s.plan.InFlight = true
	return toPlan
}

// lowersOnly says whether the last resize lowered a limit, and raised none. A revert does neither.
func (s *Status) lowersOnly() bool {
	return s.LastDecrease.Equal(s.LastApplied) && s.LastIncrease.Before(s.LastDecrease)
}

// waitAfterFailure reverts what the kubelet could not carry out, until the resize is tried again.
func (s *state) waitAfterFailure() {
	s.Recheck(s.Status.RetryAt)
	switch s.pod.Progress {
	case actuator.Deferred, actuator.Infeasible, actuator.Errored:
		if s.Status.Reason != reasons.ResizeTimedOut {
			s.revert()
		}
	}
}

// judgeProgress decides whether the kubelet may go on, or has failed. A resize that timed out may
// yet be carried out, so it is not reverted.
func (s *state) judgeProgress() {
	from := s.Status.LastApplied // or when the kubelet began, after the images had been pulled
	if first := s.pod.firstStart(); first.After(from) {
		from = first
	}
	late := from.Add(s.cfg.ActuationTimeout)
	switch progress := s.pod.Progress; {
	case progress == actuator.Deferred:
		s.fail(reasons.ResizeDeferred)
		s.revert()
	case progress == actuator.Infeasible:
		s.fail(reasons.ResizeInfeasible)
		s.revert()
	case s.now.Before(late):
		s.Report(PhasePending, reasons.ResizeInFlight, "")
		s.Recheck(late)
	case progress == actuator.InProgress && (!s.pod.started() || s.pod.waitsForSidecar()):
		// Its kubelet may not look at a pod again before the images are there, nor resize a sidecar
		// before it has started.
		s.Report(PhasePending, reasons.ResizeInFlight, "")
	case progress == actuator.Errored:
		s.fail(reasons.ResizeError)
		s.revert()
	default:
		s.fail(reasons.ResizeTimedOut)
	}
}

// failed says whether the last resize was not carried out. It still counts while the agent is asked
// whether the resize is still desired.
func (s *Status) failed() bool {
	return s.Phase == PhaseFailed || s.Failures > 0 && s.Reason == reasons.DecisionTooOld
}

// onlyReverts says whether the only resize now is the revert of what the kubelet could not carry
// out.
func (s *state) onlyReverts() bool {
	switch s.Status.Reason {
	case reasons.ResizeDeferred, reasons.ResizeInfeasible, reasons.ResizeError:
		return s.Status.failed() && s.now.Before(s.Status.RetryAt)
	}
	return false
}

// fail sets the back-off after a resize that the kubelet did not carry out.
func (s *state) fail(r reasons.Reason) {
	s.Refused(*s.cfg, s.now, Cause{r, s.pod.Said}, func(wait time.Duration) time.Duration { return wait })
}

// revert asks for the limits in force, so that spec and kernel agree.
func (s *state) revert() {
	if s.now.Before(s.pod.Memory.RetryAt) { // the API server did not answer
		s.Recheck(s.pod.Memory.RetryAt)
		return
	}
	if s.node.Suspended != "" || s.pod.Mode != ModeEnforce && s.pod.Mode != ModeRestore {
		return
	}
	move := actuator.Move{UID: s.pod.UID}
	for _, c := range s.pod.Containers {
		to := c.InForce
		if !s.pod.managed(c) || to == 0 {
			continue
		}
		if d := s.pod.Declared.Of(c.Name); to-d < cpu.Quantum && d-to < cpu.Quantum {
			to = d // the runtime rounds what it reports
		}
		if to != c.Limit && !(to > c.Limit && c.NotRunning) {
			move.Changes = append(move.Changes, actuator.Change{Container: c.Name, From: c.Limit, To: to})
		}
	}
	if len(move.Changes) > 0 {
		s.Move, s.Purpose = &move, Revert
	}
}

// resized records that MBCAS changed the limits; the kubelet has yet to carry it out. A revert
// changes no limit in force: the pod was neither lowered nor raised, and stays failed until the
// resize is tried again. A repair neither lowers nor raises a pod either.
func (t *Task) resized(at time.Time, purpose Purpose, from, to Limits, cfg *Config) {
	t.Status.Applied, t.Status.LastApplied = to, at
	switch purpose {
	case Revert:
		t.Status.Message = failureAlone(t.Status.Message)
		return
	case Repair, StepBack: // no limit in force changes for long
		t.Report(PhasePending, reasons.ResizeInFlight, "")
		return
	}
	t.recordDecrease(cfg, at, from, to)
	for _, l := range to {
		switch before := from.Of(l.Container); {
		case l.CPU > before:
			t.Status.LastIncrease = at
		case l.CPU < before:
			t.Status.LastDecrease = at
		}
	}
	t.Report(PhasePending, reasons.ResizeInFlight, "")
}
