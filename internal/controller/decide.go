package controller

import (
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/kube"
)

// Decide says what is to be done about each pod of a node, in the order in which to do it. Pods
// that need nothing, not even a look at a later time, are left out.
func Decide(cfg Config, v View) []Task {
	var planned, rest []Task
	var plans []actuator.Pod
	full := false
	for _, p := range v.Pods {
		t, plan, ok := consider(cfg, v, p)
		if !ok {
			continue
		}
		if p.PA != nil && p.PA.Spec.Decision != nil && p.PA.Spec.Decision.Price != 0 {
			full = true
		}
		if plan == nil {
			rest = append(rest, t)
		} else {
			planned, plans = append(planned, t), append(plans, *plan)
		}
	}
	tasks := make([]Task, 0, len(planned)+len(rest)+len(v.Strays))
	for _, step := range actuator.Plan(cfg.Actuator, v.Now, full, plans) {
		t := planned[step.Pod]
		follow(&t, step, v.Now)
		tasks = append(tasks, t)
	}
	tasks = append(tasks, rest...)
	for _, pa := range v.Strays {
		tasks = append(tasks, Task{Pod: Pod{PA: pa}, Delete: true})
	}
	return tasks
}

// consider decides about one pod as far as that needs no other pod. plan is what is left for the plan
// of the whole node; nil where the decision is complete. ok is false where nothing is to be done at all.
func consider(cfg Config, v View, p Pod) (t Task, plan *actuator.Pod, ok bool) {
	t = Task{Pod: p, Purpose: Allocate}
	if p.PA != nil {
		t.Status = *p.PA.Status.DeepCopy()
		t.Status.ObservedGeneration = p.PA.Generation
		t.Status.ConfirmGeneration = 0
	}
	if p.Mended {
		t.Status.Retry.Time = nil
	}
	if gone(p.Pod) {
		t.Delete = p.PA != nil && p.Pod.DeletionTimestamp == nil // a deleted pod takes its allocation along
		return t, nil, t.Delete
	}
	why, eligible := p.eligible(cfg)
	leaving := !eligible && leaves(why)
	if p.PA == nil {
		if t.Create = eligible && v.Blocked != reasons.CRDNotInstalled; t.Create {
			t.hold(v1alpha1.PhasePending, reasons.NoDecisionYet)
		} else if !leaving || len(kube.Ours(p.Pod)) == 0 {
			return t, nil, false
		}
	}
	if p.Declared == nil {
		t.Delete = p.PA != nil && leaving // nothing that could be given back
		t.hold(v1alpha1.PhaseNotApplied, reasons.DeclaredLimitUnknown)
		return t, nil, true
	}
	t.writeDown()
	t.bend(cfg, v)
	if t.standBack(cfg, v) {
		return t, nil, true
	}
	if why == reasons.NodeCannotResize { // a kubelet that was rolled back: its status does not tell what is in force
		t.hold(v1alpha1.PhaseNotApplied, why)
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
	var back bool
	if t.Why, back = wayBack(cfg, v, p, leaving); back {
		t.Purpose = Restore
	}
	if t.rests(cfg, v, why, eligible, back, leaving) {
		return t, nil, true
	}
	if !back && t.heals(cfg, v) {
		return t, nil, true
	}
	state := t.state(v)
	state.Restore, state.RetryAt = back, p.RetryAt
	if p.Cautious {
		state.DecreaseCooldown = cfg.HPACooldown
	}
	state.Stale = stale(cfg, p)
	why, t.Again = noDecrease(cfg, v, p, t.Again)
	state.NoDecrease = actuator.Reason(why)
	if end := t.recovers(cfg); v.Now.Before(end) {
		state.NoDecrease = actuator.Reason(reasons.UnhealthyAfterDecrease)
		t.sooner(end)
	}
	if r := t.Status.Retry.Time; r != nil && r.Time.After(state.RetryAt) && back == p.RestoreRefused {
		state.RetryAt = r.Time
	}
	return t, &state, true
}

// stale says whether the decision is too old to move the pod by.
//
// Age alone cannot tell: an agent publishes on change only, so that in a steady state every decision is old and
// stands. Nor can the agent's Lease: it says that the node is looked at, but not that this pod is: its counters
// may have become unreadable, or its decisions may be refused, while lowering goes on step by step to
// what was right minutes ago. So age counts only where something is to be moved, and there it is a question to
// the agent: status gets the reason DecisionTooOld, and an agent that still decides on the pod publishes anew what it decides now
// (allocation.Published). That costs two writes for each move that was decided long ago, and nothing in a steady state. An
// agent that does not decide on the pod any more cannot answer, and the pod stays where it is.
func stale(cfg Config, p Pod) bool { return p.DecisionAge >= cfg.FreezeAfter }

// bend writes the terms under which the pod is decided.
func (t *Task) bend(cfg Config, v View) {
	terms := t.Pod.Terms
	if t.suffering(v.Now, cfg) {
		terms.NoDecrease = string(reasons.UnhealthyAfterDecrease)
	}
	t.Status.Constraints = nil
	if !equality.Semantic.DeepEqual(terms, v1alpha1.Constraints{}) {
		t.Status.Constraints = &terms
	}
}

// state is the pod as the plan sees it.
func (t *Task) state(v View) actuator.Pod {
	pa := v1alpha1.PodAllocation{Status: t.Status}
	pa.Status.DeclaredLimits = t.Pod.Declared
	if t.Pod.PA != nil {
		pa.Spec = t.Pod.PA.Spec
	}
	return allocation.State(t.Pod.Pod, &pa, v.Node.Allocatable)
}

// writeDown asks for a record of the declared limits where the ledger or the allocation lacks it.
func (t *Task) writeDown() {
	p := t.Pod
	if !p.Ledgered || (p.PA != nil || t.Create) && !kube.SameLimits(t.Status.DeclaredLimits, p.Declared) {
		t.Record = p.Declared
		t.Status.DeclaredLimits = p.Declared
	}
}

// follow completes a task by its part of the node's plan.
func follow(t *Task, s actuator.Step, now time.Time) {
	t.sooner(s.RecheckAt)
	t.Move = s.Move
	why := reasons.Reason(s.Reason)
	switch failed := refused(t.Status); {
	case t.Move != nil || why == reasons.ResizeInFlight:
	case why == reasons.Settled, why == reasons.WithinDeadBand:
		if failed && t.Pod.Progress != podresize.Done {
			return // asked for, accepted, and still not in force
		}
		t.settle()
		t.hold(v1alpha1.PhaseApplied, why)
		if terms := t.Status.Constraints; terms != nil && terms.NoDecrease != "" && spared(t.Pod) {
			t.hold(v1alpha1.PhaseApplied, reasons.Reason(terms.NoDecrease))
		}
	case why == reasons.NoDecisionYet:
		t.hold(v1alpha1.PhasePending, why)
	case why == reasons.BackingOff && (failed || now.Before(t.Pod.RetryAt)):
		// The refusal says more than the wait for the next attempt.
	default:
		if why == reasons.DecisionTooOld {
			t.Status.ConfirmGeneration = t.Status.ObservedGeneration
		}
		t.hold(v1alpha1.PhaseNotApplied, why)
	}
}

// spared says whether the market would lower the pod if it were let: it wants more than its budget buys. What binds it does not
// tell by itself, as the floor of a pod that is not lowered is its limit, which may be more than it wants.
func spared(p Pod) bool {
	if p.PA == nil || p.PA.Spec.Decision == nil {
		return false
	}
	d := p.PA.Spec.Decision
	return d.BoundBy == v1alpha1.BoundByFloor || float64(d.Demand)*float64(d.Price) > float64(d.Budget)
}

// settle forgets past failures.
func (t *Task) settle() { t.Status.Retry.Failures, t.Status.Retry.Time = 0, nil }
