package controller

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kube"
)

// Decide says what is to be done about each pod of a node, in the order in which to do it. Pods
// that need nothing, not even a look at a later time, are left out.
func Decide(cfg Config, v View) []Task {
	var tasks []Task
	var plans []actuator.Pod
	var planned []int // the task of each plan
	full := false
	for _, p := range v.Pods {
		t, plan, ok := consider(cfg, v, p)
		if !ok {
			continue
		}
		if p.PA != nil && p.PA.Spec.Decision != nil && p.PA.Spec.Decision.Price != "0.000" {
			full = true
		}
		tasks = append(tasks, t)
		if plan != nil {
			plans, planned = append(plans, *plan), append(planned, len(tasks)-1)
		}
	}
	held := make([]bool, len(tasks)) // no plan was made
	for i := range held {
		held[i] = true
	}
	ordered := make([]Task, 0, len(tasks)+len(v.Strays))
	for _, step := range actuator.Plan(cfg.Actuator, v.Now, full, plans) {
		i := planned[step.Pod]
		held[i] = false
		t := tasks[i]
		follow(&t, step, v.Now)
		ordered = append(ordered, t)
	}
	for i, t := range tasks {
		if held[i] {
			ordered = append(ordered, t)
		}
	}
	for _, pa := range v.Strays {
		ordered = append(ordered, Task{Pod: Pod{PA: pa}, Delete: true})
	}
	return ordered
}

// consider decides about one pod as far as that needs no other pod. plan is what is left for the plan
// of the whole node; nil where the decision is complete. ok is false where nothing is to be done at all.
func consider(cfg Config, v View, p Pod) (t Task, plan *actuator.Pod, ok bool) {
	t = Task{Pod: p, Purpose: Follow}
	if p.PA != nil {
		t.Status = *p.PA.Status.DeepCopy()
		t.Status.ObservedGeneration = p.PA.Generation
	}
	if gone(p.Pod) {
		t.Delete = p.PA != nil && p.Pod.DeletionTimestamp == nil // a deleted pod takes its allocation along
		return t, nil, t.Delete
	}
	why, eligible := actuator.Eligible(kube.Facts(p.Pod, p.Mode, cfg.Namespace))
	leaving := !eligible && leaves(why)
	if p.PA == nil {
		if t.Create = eligible && v.Blocked != actuator.AllocationsGone; t.Create {
			t.hold(v1alpha1.PhasePending, actuator.Undecided)
		} else if !leaving || len(ours(p.Pod)) == 0 {
			return t, nil, false
		}
	}
	if p.Declared == nil {
		t.Delete = p.PA != nil && leaving // nothing that could be given back
		t.hold(v1alpha1.PhaseHeld, actuator.DeclaredUnknown)
		return t, nil, true
	}
	t.writeDown()
	if t.standBack(cfg, v) {
		return t, nil, true
	}
	if t.waits(cfg, v) {
		if t.Move != nil || t.Status.Phase != v1alpha1.PhasePending {
			return t, nil, true
		}
		state := t.state(v)
		state.InFlight = true // others may have to wait for it
		return t, &state, true
	}
	back := false
	if t.Why, back = wayBack(cfg, v, p, leaving); back {
		t.Purpose = Restore
	}
	if t.rests(cfg, v, why, eligible, back, leaving) {
		return t, nil, true
	}
	state := t.state(v)
	state.Restore, state.RetryAt = back, p.RetryAt
	state.NoDecrease, t.Again = noDecrease(cfg, v, p, t.Again)
	if r := t.Status.RetryTime; r != nil && r.Time.After(state.RetryAt) && back == p.RestoreRefused {
		state.RetryAt = r.Time
	}
	return t, &state, true
}

// state is the pod as the plan sees it.
func (t *Task) state(v View) actuator.Pod {
	pa := v1alpha1.PodAllocation{Status: t.Status}
	pa.Status.DeclaredLimits = t.Pod.Declared
	if t.Pod.PA != nil {
		pa.Spec = t.Pod.PA.Spec
	}
	return kube.State(t.Pod.Pod, &pa, v.Node.Allocatable)
}

// writeDown asks for a record of the declared limits where the ledger or the allocation lacks it.
func (t *Task) writeDown() {
	p := t.Pod
	if !p.Ledgered || (p.PA != nil || t.Create) && !kube.SameLimits(t.Status.DeclaredLimits, p.Declared) {
		t.Record = p.Declared
		t.Status.DeclaredLimits = p.Declared
	}
}

// rests says whether the pod is left as it is, because it has arrived where it was to go, or because it may
// not be resized now.
func (t *Task) rests(cfg Config, v View, why actuator.Reason, eligible, back, leaving bool) bool {
	p := t.Pod
	if back && kube.SameLimits(current(p), p.Declared) {
		t.settle()
		t.hold(v1alpha1.PhaseRestored, t.Why)
		t.Delete = leaving && p.PA != nil
		return true
	}
	t.sooner(silenceEnds(cfg, v))
	if r := held(cfg, v, p, why, eligible, back); r != "" {
		t.hold(v1alpha1.PhaseHeld, r)
		return true
	}
	return false
}

// follow completes a task by its part of the node's plan.
func follow(t *Task, s actuator.Step, now time.Time) {
	t.sooner(s.Again)
	t.Move = s.Move
	switch failed := t.Status.Phase == v1alpha1.PhaseFailed; {
	case t.Move != nil || s.Reason == actuator.InFlight:
	case s.Reason == actuator.Settled, s.Reason == actuator.DeadBand:
		if failed && t.Pod.Progress != podresize.Done {
			return // asked for, accepted, and still not in force
		}
		t.settle()
		t.hold(v1alpha1.PhaseApplied, s.Reason)
	case s.Reason == actuator.Undecided:
		t.hold(v1alpha1.PhasePending, s.Reason)
	case s.Reason == actuator.BackingOff && (failed || now.Before(t.Pod.RetryAt)):
		// The refusal says more than the wait for the next attempt.
	default:
		t.hold(v1alpha1.PhaseHeld, s.Reason)
	}
}

// settle forgets past failures.
func (t *Task) settle() { t.Status.Failures, t.Status.RetryTime = 0, nil }

// standBack handles limits that we did not write: they become the declared ones, and the pod is left
// alone for a while.
func (t *Task) standBack(cfg Config, v View) bool {
	p := t.Pod
	if adopted, foreign := adopt(p); foreign {
		retry := metav1.NewMicroTime(v.Now.Add(cfg.HoldForeign))
		t.Record = adopted
		t.Status.DeclaredLimits, t.Status.RetryTime, t.Status.Failures = adopted, &retry, 0
		t.applied(current(p))
		t.hold(v1alpha1.PhaseHeld, actuator.ForeignResize)
		t.sooner(retry.Time)
		if p.Mode == kube.ModeRestore { // then they are the limits to be restored, and may be in force
			t.sooner(v.Now.Add(time.Second))
		}
		return true
	}
	if r := t.Status.RetryTime; t.Status.Reason == string(actuator.ForeignResize) && r != nil {
		if v.Now.Before(r.Time) {
			t.sooner(r.Time)
			return p.Mode != kube.ModeRestore // the declared limits are already in force
		}
		t.settle()
	}
	return false
}

// adopt is what is declared after somebody else's change; foreign is false where there was none. A
// container's limit was changed by somebody else when it is neither what we last applied nor written by us.
func adopt(p Pod) (declared []v1alpha1.ContainerLimit, foreign bool) {
	limits, applied, mine := byName(current(p)), byName(p.Declared), maybeOurs(p.Pod)
	if p.PA != nil {
		for _, l := range p.PA.Status.AppliedLimits {
			applied[l.Name] = l.CPULimit
		}
	}
	for _, d := range p.Declared {
		l, ok := limits[d.Name]
		if ok && l != applied[d.Name] && !mine[d.Name] {
			d.CPULimit, foreign = l, true
		}
		declared = append(declared, d)
	}
	return declared, foreign
}

// waits follows a resize that is on its way, and says whether the pod has to wait for it.
func (t *Task) waits(cfg Config, v View) bool {
	p := t.Pod
	if now := current(p); !kube.SameLimits(t.lastApplied(), now) {
		// We were interrupted between the resize and its record.
		t.moved(v.Now, t.lastApplied(), now)
	}
	status := &t.Status
	onItsWay := status.Phase == v1alpha1.PhasePending && status.Reason == string(actuator.InFlight)
	refused := status.Phase == v1alpha1.PhaseFailed
	switch {
	case p.Progress == podresize.Done:
		if onItsWay || refused && status.Reason == string(actuator.TookTooLong) {
			t.Done = true
			t.settle()
		}
		return false
	case status.LastAppliedTime == nil || !onItsWay && !refused:
		t.hold(v1alpha1.PhaseHeld, actuator.InFlight) // somebody else's, such as a change of memory
		return true
	case refused:
		if status.RetryTime != nil && v.Now.Before(status.RetryTime.Time) {
			t.sooner(status.RetryTime.Time)
			return true
		}
		return false
	}
	late := status.LastAppliedTime.Add(cfg.ActuationTimeout)
	may := v.Blocked == "" && (p.Mode == kube.ModeEnforce || p.Mode == kube.ModeRestore)
	switch p.Progress {
	case podresize.Deferred:
		t.fail(cfg, v, actuator.ResizeDeferred)
		t.revert(may)
	case podresize.Infeasible:
		t.fail(cfg, v, actuator.ResizeInfeasible)
		t.revert(may)
	default:
		switch {
		case v.Now.Before(late):
			t.hold(v1alpha1.PhasePending, actuator.InFlight)
			t.sooner(late)
		case p.Progress == podresize.Errored:
			t.fail(cfg, v, actuator.ResizeErrored)
			t.revert(may)
		default:
			t.fail(cfg, v, actuator.TookTooLong) // it may yet be carried out, so nothing is taken back
		}
	}
	return true
}

// fail sets the back-off after a resize that the kubelet did not carry out.
func (t *Task) fail(cfg Config, v View, r actuator.Reason) {
	failed(&t.Status, cfg, v.Now, r, t.Pod.Said)
	t.sooner(t.Status.RetryTime.Time)
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

// wayBack says whether the pod is to go back to its declared limits, and why.
func wayBack(cfg Config, v View, p Pod, leaving bool) (actuator.Reason, bool) {
	switch {
	case leaving:
		return actuator.Leaving, true
	case p.Mode == kube.ModeRestore:
		return actuator.Restoring, true
	case p.Mode == kube.ModeEnforce && v.Node.Silence >= cfg.RestoreAfter:
		return actuator.AgentSilent, true
	}
	return "", false
}

// held says why the pod is not resized now, whatever is wanted; "" if it may be.
func held(cfg Config, v View, p Pod, why actuator.Reason, eligible, back bool) actuator.Reason {
	switch {
	case v.Blocked != "":
		return v.Blocked
	case !eligible && !back:
		return why
	case p.Mode == kube.ModeRecommend && !back:
		return actuator.Recommending
	case !v.Node.Ready:
		return actuator.NodeNotReady
	case v.Node.Pressure:
		return actuator.NodePressure
	case evicted(p.Pod, v.Node.Evicting):
		return actuator.NodeEvicting
	case v.Node.Silence >= cfg.FreezeAfter && !back:
		return actuator.AgentSilent
	}
	return ""
}

// silenceEnds is when the agent's silence will have a consequence that it does not have yet.
func silenceEnds(cfg Config, v View) time.Time {
	switch s := v.Node.Silence; {
	case s < cfg.FreezeAfter:
		return v.Now.Add(cfg.FreezeAfter - s)
	case s < cfg.RestoreAfter:
		return v.Now.Add(cfg.RestoreAfter - s)
	}
	return time.Time{}
}

// noDecrease says why the pod must not be lowered, and when that may change by itself.
func noDecrease(cfg Config, v View, p Pod, again time.Time) (actuator.Reason, time.Time) {
	if !ready(p.Pod) {
		return actuator.NotReady, again
	}
	var why actuator.Reason
	for _, list := range [][]corev1.ContainerStatus{p.Pod.Status.ContainerStatuses, p.Pod.Status.InitContainerStatuses} {
		for _, c := range list {
			if c.State.Running == nil {
				continue
			}
			r, grace := actuator.Starting, cfg.StartGrace
			if c.RestartCount > 0 {
				r, grace = actuator.RestartedLately, cfg.RestartGrace
			}
			if end := c.State.Running.StartedAt.Add(grace); v.Now.Before(end) {
				why = r
				if again.IsZero() || end.Before(again) {
					again = end
				}
			}
		}
	}
	return why, again
}

// leaves says whether a pod that is ineligible for this reason has left the market for good, so that
// it goes back to its declared limits. Other reasons may pass, and the pod is only held.
func leaves(why actuator.Reason) bool {
	switch why {
	case actuator.SystemNamespace, actuator.NamespaceOff, actuator.OptedOut:
		return true
	}
	return false
}
