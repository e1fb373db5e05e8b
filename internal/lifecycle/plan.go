package lifecycle

import (
	"time"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
)

// leaveToPlan hands the pod to the plan of the node, which orders decreases before increases.
func leaveToPlan(s *state) verdict {
	var desired Limits
	if s.pod.Decision != nil {
		desired = s.pod.Decision.Limits
	}
	stale := s.stale()
	if forfeited, _ := s.boostForfeited(); forfeited && stale {
		desired, stale = s.withoutBoost(nil), false
	} else if forfeited {
		desired = s.withoutBoost(desired)
	}
	s.plan = s.planned(s.atLeastBoosted(desired))
	s.plan.InFlight, s.plan.Supersedable = s.Supersedes, s.Supersedes
	s.plan.RetryAt = s.pod.Memory.RetryAt
	s.plan.Capped = s.pod.limitedByPrice() && s.Purpose != Startup
	s.plan.Queued, s.plan.WaitsSince = s.pod.Queued, s.pod.Memory.WaitsSince
	s.plan.Revoked = s.pod.Decision != nil && s.pod.Decision.RevokedFor > 0
	s.planRestore()
	if s.pod.HPA {
		s.plan.DecreaseCooldown, s.plan.SmallSteps = s.cfg.HPACooldown, true // the HPA needs time to add replicas
	}
	s.plan.Stale = stale
	why, until := s.noDecrease()
	s.plan.NoDecrease = why
	s.Recheck(until)
	if r := s.Status.RetryAt; r.After(s.plan.RetryAt) && s.restoring == s.pod.Memory.RestoreRefused {
		s.plan.RetryAt = r
	}
	return toPlan
}

// planRestore plans the way back to the declared limits. Its pods wait for no decision, and after an
// unresponsive agent nothing is urgent: they are lowered in steps.
func (s *state) planRestore() {
	if !s.restoring {
		return
	}
	s.plan.Restore, s.plan.InSteps = true, s.Why == reasons.AgentUnresponsive
	to := s.pod.RestoreLimits()
	for i := range s.plan.Containers {
		c := &s.plan.Containers[i]
		if c.Declared = to.Of(c.Name); s.raiseOnly {
			c.Declared = max(c.Declared, c.Limit)
		}
	}
}

// stale says whether the decision is too old to resize by.
//
// The agent publishes changes only, so in a steady state every decision is old and holds: a renewal of
// the agent's Lease confirms all of them, but for those that it names. It names a decision that it
// could not make anew, or could not publish another one for. Such a decision is not applied, and the
// pod stays as it is, until the agent confirms it or publishes another.
func (s *state) stale() bool { return s.pod.Decision != nil && s.pod.Decision.Age >= s.cfg.FreezeAfter }

// planned is the pod as the plan of the node sees it, with these limits desired.
func (s *state) planned(desired Limits) actuator.Pod {
	p := s.pod.Planned(desired, s.NoDecrease != "")
	p.LastDecrease, p.LastIncrease = s.Status.LastDecrease, s.Status.LastIncrease
	return p
}

// Planned is the pod as actuator.Plan sees it, with these limits desired: within the bounds of its
// containers, and together within the ceiling of the pod. keep says that it must not be decreased.
func (p *Pod) Planned(desired Limits, keep bool) actuator.Pod {
	plan := actuator.Pod{UID: p.UID}
	var sum cpu.Milli
	var targets, floors, settable []cpu.Milli
	for _, c := range p.Containers {
		if !p.managed(c) {
			continue // without a limit, or limited after the record was made
		}
		floor, target := c.Floor, desired.Of(c.Name)
		if keep {
			floor = c.NoDecreaseFloor
		}
		if c.Completed {
			floor, target = min(floor, c.Limit), min(target, c.Limit)
		}
		plan.Containers = append(plan.Containers, actuator.Container{
			Name: c.Name, Limit: c.Limit, Declared: p.Declared.Of(c.Name), Floor: floor, Ceiling: c.Ceiling, Desired: target,
			NotRunning: c.NotRunning,
		})
		switch {
		case target == 0:
			target = c.Limit
		case target > c.Limit:
			target = max(target, c.Settable)
		}
		sum += c.Limit
		targets, floors, settable = append(targets, target.Clamp(floor, c.Ceiling)), append(floors, floor), append(settable, c.Settable)
	}
	for i, target := range cpu.FitTotal(targets, floors, p.Ceiling) {
		c := &plan.Containers[i]
		if c.Desired > 0 {
			c.Desired = target
			if target > c.Limit && target < settable[i] {
				c.Desired = c.Limit // the ceiling leaves no room for a limit that can be set
			}
		}
		if p.Ceiling > 0 && sum > p.Ceiling { // a pod above its ceiling is lowered even if the change is small
			c.Ceiling = min(c.Ceiling, target)
		}
	}
	return plan
}

// follow completes a task by its part of the plan of the node.
func (t *Task) follow(step actuator.Step, p *Pod, now time.Time) {
	t.Recheck(step.RecheckAt)
	t.Move = step.Move
	reason := step.Reason
	if t.WaitsSince = p.Memory.WaitsSince; reason == reasons.WaitingForDecreases {
		t.WaitsSince = Earlier(t.WaitsSince, now)
	} else if t.Move == nil || !t.Move.Raises() {
		t.WaitsSince = time.Time{}
	}
	switch failed := t.Status.failed(); {
	case t.Move != nil || t.Supersedes || reason == reasons.ResizeInFlight:
	case reason == reasons.Settled, reason == reasons.WithinDeadBand:
		if failed && p.Progress != actuator.Done {
			return // asked for, accepted, and still not in force
		}
		t.settle()
		if t.NoDecrease != "" && p.limitedByPrice() {
			reason = t.NoDecrease
		}
		if t.Why == reasons.StartupBoost || t.Why == reasons.PodNotReady {
			reason = t.Why
		}
		if t.Report(PhaseApplied, reason, ""); p.Quota.Wrong() {
			t.Report(PhaseNotApplied, reasons.PodQuotaDiffers, p.Quota.String())
		}
	case reason == reasons.NoDecisionYet:
		t.Report(PhasePending, reason, "")
	case reason == reasons.BackingOff && (failed || now.Before(p.Memory.RetryAt)):
		// The refusal says more than the wait for the next attempt.
	case t.Why == reasons.AgentUnresponsive: // a restore in steps
		t.Report(PhaseNotApplied, t.Why, reason.Sentence())
	default:
		t.Report(PhaseNotApplied, reason, "")
	}
}

// limitedByPrice says whether the market would lower the pod if it were allowed: its demand exceeds
// its budget line. What binds the limit does not tell by itself, as the floor of a pod that is not
// lowered may be above its demand.
func (p *Pod) limitedByPrice() bool {
	d := p.Decision
	return d != nil && (d.AtFloor || float64(d.Demand)*float64(d.Price) > float64(d.Budget))
}
