package controller

import (
	"time"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kube"
)

// waits follows a resize that is on its way, and says whether the pod has to wait for it.
func (t *Task) waits(cfg Config, v View) bool {
	p := t.Pod
	if now := current(p); !kube.SameLimits(t.lastApplied(), now) {
		// We were interrupted between the resize and its record.
		purpose := Allocate
		if t.reverts(v.Now) {
			purpose = Revert
		}
		t.moved(cfg, v.Now, purpose, t.lastApplied(), now)
	}
	status := &t.Status
	onItsWay := status.Phase == v1alpha1.PhasePending && status.Reason == string(reasons.ResizeInFlight)
	refused := refused(*status)
	may := v.Blocked == "" && (p.Mode == kube.ModeEnforce || p.Mode == kube.ModeRestore)
	switch {
	case p.Progress == podresize.Done:
		if onItsWay || refused && status.Reason == string(reasons.ResizeTimedOut) {
			t.Done = true
			t.settle()
		}
		return false
	case status.LastAppliedTime == nil || !onItsWay && !refused:
		t.hold(v1alpha1.PhaseNotApplied, reasons.ResizeInFlight) // somebody else's, such as a change of memory
		return true
	case refused:
		if status.Retry.Time != nil && v.Now.Before(status.Retry.Time.Time) {
			t.sooner(status.Retry.Time.Time)
			switch p.Progress {
			case podresize.Deferred, podresize.Infeasible, podresize.Errored: // until it is taken back
				t.revert(may && status.Reason != string(reasons.ResizeTimedOut))
			}
			return true
		}
		return false
	}
	late := status.LastAppliedTime.Add(cfg.ActuationTimeout)
	switch p.Progress {
	case podresize.Deferred:
		t.fail(cfg, v, reasons.ResizeDeferred)
		t.revert(may)
	case podresize.Infeasible:
		t.fail(cfg, v, reasons.ResizeInfeasible)
		t.revert(may)
	default:
		switch {
		case v.Now.Before(late):
			t.hold(v1alpha1.PhasePending, reasons.ResizeInFlight)
			t.sooner(late)
		case p.Progress == podresize.Errored:
			t.fail(cfg, v, reasons.ResizeError)
			t.revert(may)
		default:
			t.fail(cfg, v, reasons.ResizeTimedOut) // it may yet be carried out, so nothing is taken back
		}
	}
	return true
}

// refused says whether the last resize was not carried out. It still is while the agent is asked whether it is still wanted.
func refused(s v1alpha1.PodAllocationStatus) bool {
	return s.Phase == v1alpha1.PhaseFailed || s.Retry.Failures > 0 && s.Reason == string(reasons.DecisionTooOld)
}

// reverts says whether the only resize that is made now is one that takes back what the kubelet could not carry out.
func (t *Task) reverts(now time.Time) bool {
	switch s := t.Status; reasons.Reason(s.Reason) {
	case reasons.ResizeDeferred, reasons.ResizeInfeasible, reasons.ResizeError:
		return refused(s) && s.Retry.Time != nil && now.Before(s.Retry.Time.Time)
	}
	return false
}

// fail sets the back-off after a resize that the kubelet did not carry out.
func (t *Task) fail(cfg Config, v View, r reasons.Reason) {
	failed(&t.Status, cfg, v.Now, r, t.Pod.Said)
	t.sooner(t.Status.Retry.Time.Time)
}

// revert asks for the limits that are in force again, so that spec and kernel agree.
func (t *Task) revert(may bool) {
	actual, declared := byName(inForce(t.Pod.Pod)), byName(t.Pod.Declared)
	move := actuator.Move{UID: string(t.Pod.Pod.UID)}
	for _, l := range current(t.Pod) {
		to, ok := actual[l.Name]
		if d := declared[l.Name]; to-d < cpu.Quantum && d-to < cpu.Quantum {
			to = d // the runtime rounds what it reports
		}
		if ok && to != l.CPULimit {
			move.Changes = append(move.Changes, actuator.Change{Container: l.Name, From: l.CPULimit, To: to})
		}
	}
	if may && len(move.Changes) > 0 {
		t.Move, t.Purpose = &move, Revert
	}
}
