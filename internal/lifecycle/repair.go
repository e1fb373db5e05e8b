package lifecycle

import (
	"slices"
	"time"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
)

// A pod's own cgroup has a CPU quota, too. The kubelet writes it when it carries out a resize of a
// container that runs, and at no other time. So a resize that it accepts when the container has
// just ended leaves the old quota: on cgroup v1 the container cannot start any more, and on v2 it
// starts, throttled. Other programs may write the quota, too.
//
// Any other limit of a container that runs has the kubelet write the quota, so a repair changes one
// by a quantum and returns. A container that cannot start is lowered. Only limits of MBCAS are
// changed.

const (
	// mostRepairs is how many repairs in a row may be in vain. After them, another program writes
	// the quota: one repair in BackoffMax is tried, and nothing waits for it.
	mostRepairs = 3
	// quotaFound is how long after a resize an agent has found a wrong quota at the latest: it reads
	// quotas every ten seconds, and waits for 15 more. It reports with the next renewal of its Lease.
	quotaFound = 30 * time.Second
	// returnsWithin is how long a return of a quantum is tried. Later the limit is what the plan of
	// the node makes it.
	returnsWithin = 10 * time.Minute
	// raiseFailed is how long after a raise a failed start may be its fault. Later the agent's
	// report alone counts.
	raiseFailed = 10 * time.Minute
	// startRetried is how long after a failed start the kubelet has tried again, where it does not
	// date the failure.
	startRetried = 30 * time.Second
	// recordKept is how long the record of a pod that leaves is kept for an agent that does not
	// report.
	recordKept = 10 * time.Minute
)

// Repairs are what a process remembers of the repairs of a pod.
type Repairs struct {
	// Before are the limits before the last raise; nil: not known.
	Before Limits
	// From and To are the limits before and after a change of a quantum; nil: the pod has returned
	// from it.
	From, To Limits
	// Made are the changes by a quantum in a row, the last of them at MadeAt. The next may be made
	// at NextAt.
	Made           int
	MadeAt, NextAt time.Time
	// Refusals are those of the API server in a row. No repair is tried before RetryAt.
	Refusals int
	RetryAt  time.Time
}

// repair is a change of limits after which a container can start, or the kubelet has written the
// quota of the pod's cgroup.
type repair struct {
	changes []actuator.Change
	purpose Purpose
	why     reasons.Reason
	detail  string
}

// chooseRepair finds a repair that may be made now. It comes before the end of a restore, which is
// done when both quotas are right, and before the hold-offs, of which a repair waits for those of
// the node alone.
func chooseRepair(s *state) verdict {
	m, q := &s.pod.Memory.Repairs, s.pod.Quota
	s.quotaWrong = q.Wrong() && m.Made+m.Refusals < mostRepairs && s.repairable()
	if s.Supersedes || s.pod.Progress != actuator.Done || s.now.Before(s.pod.Memory.RetryAt) {
		return next
	}
	switch {
	case s.now.Before(m.RetryAt):
		s.Recheck(m.RetryAt)
	case s.lowerFailed() || !s.restoring && s.returnFromQuantum():
	case !q.Wrong():
		if m.Made > 0 {
			s.awaitReport(m.since(s.Status.LastApplied))
		}
	case s.restoring && s.restoresWhatRuns(): // which has the kubelet write the quota as well
	case s.now.Before(m.NextAt):
		s.Recheck(m.NextAt)
	default:
		s.repairQuota()
	}
	return next
}

// makeRepair makes the repair that was found.
func makeRepair(s *state) verdict {
	if s.repair == nil {
		return next
	}
	s.Purpose, s.Why = s.repair.purpose, s.repair.why
	s.ReportWait(s.Why, s.repair.detail)
	s.Move = &actuator.Move{UID: s.pod.UID, Changes: s.repair.changes}
	return done
}

// ours says whether the limit of a container is one that MBCAS wrote, and may change.
func (s *state) ours(c Container) bool { return c.Own && s.pod.managed(c) }

// repairable says whether a repair is possible now, or once a container runs.
func (s *state) repairable() bool {
	return len(s.byQuantum()) > 0 || slices.ContainsFunc(s.pod.Containers, func(c Container) bool {
		return s.ours(c) && c.NotRunning && !c.Completed
	})
}

// restoresWhatRuns says whether the restore has yet to change the limit of a container that runs.
func (s *state) restoresWhatRuns() bool {
	to := s.pod.RestoreLimits()
	return slices.ContainsFunc(s.pod.Containers, func(c Container) bool {
		return s.pod.managed(c) && !c.NotRunning && c.Limit != to.Of(c.Name) && !(s.raiseOnly && c.Limit > to.Of(c.Name))
	})
}

// lowerFailed lowers each container that failed to start soon after a raise: to the limit before it
// or, where that is not known or too high as well, to the declared one. What is still too high, the
// agent reports. The first failure beside a container that runs lowers nothing: that one changes by
// a quantum.
func (s *state) lowerFailed() bool {
	raised, m := s.Status.LastIncrease, &s.pod.Memory.Repairs
	if raised.IsZero() || s.now.Sub(raised) > raiseFailed {
		return false
	}
	var changes []actuator.Change
	for _, c := range s.pod.Containers {
		if !c.FailedStart || !s.ours(c) || !s.failedAgain(c) {
			continue
		}
		for _, to := range []cpu.Milli{m.Before.Of(c.Name), s.pod.Declared.Of(c.Name)} {
			if to > 0 && max(to, c.Settable) < c.Limit {
				changes = append(changes, actuator.Change{Container: c.Name, From: c.Limit, To: max(to, c.Settable)})
				break
			}
		}
	}
	if len(changes) == 0 {
		return false
	}
	s.repair = &repair{changes, StepBack, reasons.StartFailed, ""}
	if away := s.byQuantum(); len(away) > 0 && m.Refusals == 0 && !m.MadeAt.After(raised) {
		s.repair.changes, s.repair.purpose = away, Repair
	}
	return true
}

// failedAgain says whether a container has failed to start since the last resize. The kubelet dates
// failures by the second: in the second of a raise they count, and in that of a repair they came
// before. With CRI-O it does not date them.
func (s *state) failedAgain(c Container) bool {
	applied := s.Status.LastApplied
	if retried := applied.Add(startRetried); c.FailedAt.IsZero() {
		if s.now.Before(retried) {
			s.Recheck(retried)
		}
		return !s.now.Before(retried)
	}
	since := applied.Truncate(time.Second)
	if applied.After(s.Status.LastIncrease) {
		since = since.Add(time.Second)
	}
	return !c.FailedAt.Before(since)
}

// returnFromQuantum returns to the limits before a change of a quantum.
func (s *state) returnFromQuantum() bool {
	m := &s.pod.Memory.Repairs
	if !m.To.Equal(s.pod.Current()) || s.now.Sub(m.MadeAt) > returnsWithin {
		return false
	}
	var changes []actuator.Change
	for _, c := range s.pod.Containers {
		if to, ok := m.From.find(c.Name); ok && to != c.Limit && s.ours(c) && (to < c.Limit || !c.NotRunning) {
			changes = append(changes, actuator.Change{Container: c.Name, From: c.Limit, To: to})
		}
	}
	if len(changes) > 0 {
		s.repair = &repair{changes, Repair, reasons.PodQuotaDiffers, ""}
	}
	return len(changes) > 0
}

// repairQuota has the kubelet write the quota of the pod's cgroup or, where no container of MBCAS
// runs and the quota is too low, lowers what does not run until the limits call for that quota.
func (s *state) repairQuota() {
	q := s.pod.Quota
	r := &repair{s.byQuantum(), Repair, reasons.PodQuotaDiffers, q.String()}
	if len(r.changes) == 0 {
		r.changes, r.purpose = s.lowerDown(q.Wanted-q.CPU), StepBack
	}
	if len(r.changes) > 0 {
		s.repair = r
	}
}

// byQuantum changes the limit of one container that runs by a quantum: up, as the return then needs
// no room in a quota, or down where there is none above.
func (s *state) byQuantum() []actuator.Change {
	full := s.pod.Memory.Repairs.Refusals > 0 || s.pod.QuotaShort || s.pod.Ceiling > 0 && s.pod.Current().Total()+cpu.Quantum > s.pod.Ceiling
	for _, c := range s.pod.Containers {
		if c.NotRunning || !s.ours(c) {
			continue
		}
		if !full && c.Limit+cpu.Quantum <= c.Ceiling {
			return []actuator.Change{{Container: c.Name, From: c.Limit, To: c.Limit + cpu.Quantum}}
		}
		if c.Limit-cpu.Quantum >= c.Settable {
			return []actuator.Change{{Container: c.Name, From: c.Limit, To: c.Limit - cpu.Quantum}}
		}
	}
	return nil
}

// lowerDown lowers containers that do not run, until the limits call for a quota that is lower by
// that.
func (s *state) lowerDown(by cpu.Milli) (changes []actuator.Change) {
	for _, c := range s.pod.Containers {
		part := min(by, c.Limit-c.Settable)
		if !c.NotRunning || c.Completed || !s.ours(c) || part <= 0 {
			continue
		}
		by -= part
		changes = append(changes, actuator.Change{Container: c.Name, From: c.Limit, To: c.Limit - part})
	}
	return changes
}

// knowsQuota says whether a wrong quota that the last resize left would be known by now: each
// container whose limit is resized has run since before it, so that the kubelet has written the
// quota, or the agent has reported since then.
func (s *state) knowsQuota() bool {
	applied := s.Status.LastApplied
	if applied.IsZero() || s.now.Sub(applied) >= recordKept || s.pod.reportedSince(applied) {
		return true
	}
	return !slices.ContainsFunc(s.pod.Containers, func(c Container) bool {
		return s.pod.managed(c) && !c.Completed && !s.ranBefore(c, applied)
	})
}

// ranBefore says whether a container has run since before a resize. The kubelet dates starts by the
// second: in the second of the resize, the first start came before if the pod was ever raised, as what
// does not run is not.
func (s *state) ranBefore(c Container, resize time.Time) bool {
	second := resize.Truncate(time.Second)
	first := c.Restarts == 0 && !s.Status.LastIncrease.IsZero() && !c.StartedAt.After(second)
	return !c.NotRunning && (c.StartedAt.Before(second) || first)
}

// reportedSince says whether the agent has reported what it found about the quota after that resize.
func (p *Pod) reportedSince(resize time.Time) bool {
	return !p.QuotasReported.Before(resize.Add(quotaFound))
}

// awaitReport has the pod decided about again when the agent may have reported since that resize.
func (s *state) awaitReport(since time.Time) {
	at := since.Add(quotaFound)
	if least := s.now.Add(quotaFound / 3); at.Before(least) {
		at = least
	}
	s.Recheck(at)
}

// witness notes that the last repair was not in vain.
func (m *Repairs) witness(p *Pod) {
	if !p.Quota.Wrong() && p.reportedSince(m.since(p.Status.LastApplied)) {
		m.Made, m.NextAt = 0, time.Time{}
	}
}

// since is when the last repair or, if that is later, another resize was made: the agent reports anew then.
func (m *Repairs) since(applied time.Time) time.Time {
	if applied.After(m.MadeAt) {
		return applied
	}
	return m.MadeAt
}

// applied notes what a resize that the API server accepted means for repairs.
func (m *Repairs) applied(cfg Config, now time.Time, purpose Purpose, from, to Limits) {
	m.Refusals, m.RetryAt = 0, time.Time{}
	if purpose != Repair && purpose != StepBack && raises(from, to) {
		m.Before = from
	}
	if purpose != Repair || to.Equal(m.From) {
		m.From, m.To = nil, nil
		return
	}
	m.From, m.To, m.MadeAt, m.NextAt = from, to, now, now
	if m.Made > 0 { // each in a row doubles the wait
		m.NextAt = now.Add(Doubled(cfg.Backoff, cfg.BackoffMax, m.Made-1))
	}
	if m.Made++; m.Made >= mostRepairs {
		m.NextAt = now.Add(cfg.BackoffMax)
	}
}

// raises says whether a limit rises.
func raises(from, to Limits) bool {
	return slices.ContainsFunc(to, func(l Limit) bool { return l.CPU > from.Of(l.Container) })
}

// RepairRefused has a repair tried again later that the API server refused. Everything else about
// the pod goes on.
func (t *Task) RepairRefused(cfg Config, now time.Time, c Cause, jitter func(time.Duration) time.Duration, m *Memory) {
	r := &m.Repairs
	r.RetryAt = now.Add(jitter(Doubled(cfg.Backoff, cfg.BackoffMax, r.Refusals)))
	r.Refusals++
	t.ReportWait(c.Reason, c.Detail)
	t.Recheck(now) // for everything else
}
