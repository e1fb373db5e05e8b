package actuator

import (
	"slices"
	"time"

	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
)

// Plan decides the moves of the pods of one node, in the order in which to carry them out:
// decreases first, then increases, then pods without a move. If the node is full (CPU is scarce),
// increases of capped pods wait for decreases that are planned or in flight, up to DecreasesWait.
func Plan(cfg Config, now time.Time, full bool, pods []Pod) []Step {
	steps := make([]Step, len(pods))
	decreasing := false
	for i, p := range pods {
		steps[i] = planPod(cfg, now, p)
		steps[i].Pod = i
		if m := steps[i].Move; m != nil && m.Delta() < 0 && !p.Queued || m == nil && p.InFlight && decreasedLast(p) {
			decreasing = true
		}
	}
	for i, p := range pods {
		m, until := steps[i].Move, now.Add(cfg.DecreasesWait)
		if !p.WaitsSince.IsZero() {
			until = p.WaitsSince.Add(cfg.DecreasesWait)
		}
		if full && decreasing && m != nil && m.Delta() > 0 && p.Capped && !p.Restore && now.Before(until) {
			steps[i] = Step{Pod: i, Reason: reasons.WaitingForDecreases, RecheckAt: until}
		}
	}
	slices.SortStableFunc(steps, func(a, b Step) int { return a.rank() - b.rank() })
	return steps
}

// decreasedLast reports whether the pod's last move was a decrease.
func decreasedLast(p Pod) bool {
	return !p.LastDecrease.IsZero() && !p.LastDecrease.Before(p.LastIncrease)
}

func (s Step) rank() int {
	switch {
	case s.Move == nil:
		return 2
	case s.Move.Delta() < 0:
		return 0
	}
	return 1
}

// planPod plans one pod by itself. What is in flight goes on, unless an increase supersedes it.
func planPod(cfg Config, now time.Time, p Pod) Step {
	if !p.InFlight {
		return planAtRest(cfg, now, p)
	}
	step := Step{Reason: reasons.ResizeInFlight}
	if !p.Supersedable {
		return step
	}
	if s := planAtRest(cfg, now, p); s.Move != nil && !s.Move.Lowers() {
		return s
	}
	if now.Before(p.RetryAt) {
		step.RecheckAt = p.RetryAt
	}
	return step
}

// planAtRest plans a pod without a resize in flight.
func planAtRest(cfg Config, now time.Time, p Pod) Step {
	if now.Before(p.RetryAt) {
		return Step{Reason: reasons.BackingOff, RecheckAt: p.RetryAt}
	}
	if p.Restore && !p.InSteps {
		return restore(p)
	}
	if p.Restore { // what was taken is given back at once
		p.LastIncrease = time.Time{}
	}
	step := Step{Reason: reasons.Settled}
	move := Move{UID: p.UID}
	decided := false
	for _, c := range p.Containers {
		if p.Restore { // neither bounds nor bands apply
			c.Desired, c.Floor, c.Ceiling = c.Declared, c.Declared, c.Declared
		}
		if c.Desired == 0 {
			continue
		}
		decided = true
		to, why, again := next(cfg, now, p, c)
		if to != c.Limit {
			move.Changes = append(move.Changes, Change{c.Name, c.Limit, to})
		}
		if why != "" {
			step.Reason = why
		}
		if !again.IsZero() && (step.RecheckAt.IsZero() || again.Before(step.RecheckAt)) {
			step.RecheckAt = again
		}
	}
	if !decided {
		return Step{Reason: reasons.NoDecisionYet}
	}
	switch {
	case len(move.Changes) == 0:
		return step
	case p.Stale && !p.Restore: // a pod at its desired limits needs no newer decision
		return Step{Reason: reasons.DecisionTooOld}
	}
	step.Move = &move
	return step
}

// restore goes to the declared limits in one move. They are the owner's choice, so neither bounds
// nor bands apply.
func restore(p Pod) Step {
	move, step := Move{UID: p.UID}, Step{}
	for _, c := range p.Containers {
		switch {
		case c.Limit < c.Declared && c.NotRunning:
			step.Reason = reasons.ContainerNotRunning
		case c.Limit != c.Declared:
			move.Changes = append(move.Changes, Change{c.Name, c.Limit, c.Declared})
		}
	}
	switch {
	case len(move.Changes) > 0:
		step.Move = &move
	case step.Reason == "":
		step.Reason = reasons.Settled
	}
	return step
}

// next is the limit that the container may have now, and why it is not yet the desired one.
func next(cfg Config, now time.Time, p Pod, c Container) (to cpu.Milli, why reasons.Reason, again time.Time) {
	want := c.Desired.Clamp(c.Floor, c.Ceiling)
	outside := c.Limit < c.Floor || c.Limit > c.Ceiling
	switch change := want - c.Limit; {
	case change == 0:
		return c.Limit, "", time.Time{}
	case !outside && float64(max(change, -change)) < cfg.DeadBand*float64(c.Limit):
		return c.Limit, reasons.WithinDeadBand, time.Time{}
	case change > 0 && c.NotRunning:
		return c.Limit, reasons.ContainerNotRunning, time.Time{}
	case change > 0:
		s := step{to: want}
		if most := scale(c.Limit, cfg.MaxIncreaseFactor).RoundDown(cpu.Quantum); cfg.MaxIncreaseFactor > 0 && want > most {
			s = step{max(most, min(want, c.Limit+cpu.Quantum), c.Floor), reasons.StepLimited}
		}
		return s.paced(c.Limit, now, p.LastIncrease, cfg.IncreaseCooldown)
	case p.NoDecrease != "":
		if want = max(want, c.Declared); p.Restore || !p.Capped && !p.Revoked || c.Declared == 0 || want >= c.Limit {
			return c.Limit, p.NoDecrease, time.Time{}
		}
	}
	s, last, cooldown := step{to: want}, p.LastDecrease, max(cfg.DecreaseCooldown, p.DecreaseCooldown)
	least := scale(c.Limit, 1/p.decreaseFactor(cfg, c)).RoundUp(cpu.Quantum)
	if declared := c.Declared.RoundUp(cpu.Quantum); p.Revoked && !p.Restore && 0 < declared && declared < c.Limit {
		if least = min(least, declared); now.Before(last.Add(cooldown)) {
			least, last = declared, time.Time{} // what goes below it waits
		}
	}
	if rest := float64(least - want); 0 < rest && rest < cfg.DeadBand*float64(least) { // else the last step would not be made
		least = cpu.FromCores(want.Cores() / (1 - cfg.DeadBand)).RoundUp(cpu.Quantum)
	}
	if want < least {
		// A step that rounds to zero still moves by one quantum.
		s = step{max(want, min(least, c.Limit-cpu.Quantum)), reasons.StepLimited}
	}
	return s.paced(c.Limit, now, last, cooldown)
}

// decreaseFactor is the largest factor by which one step lowers the limit of a container.
func (p Pod) decreaseFactor(cfg Config, c Container) float64 {
	if c.Limit <= c.Declared.RoundUp(cpu.Quantum) && !p.SmallSteps {
		return max(cfg.MaxDecreaseFactor, cfg.BelowDeclaredFactor)
	}
	return cfg.MaxDecreaseFactor
}

// step is one change of a container's limit, and why it is not a full one.
type step struct {
	to  cpu.Milli
	why reasons.Reason
}

// paced is the step, or the wait for it while the pod cools down. A wait for one of several steps has
// the reason StepLimited, so that it shows as long as the steps take.
func (s step) paced(
	limit cpu.Milli, now, last time.Time, cooldown time.Duration,
) (cpu.Milli, reasons.Reason, time.Time) {
	if at := last.Add(cooldown); cooldown > 0 && !last.IsZero() && now.Before(at) {
		if s.why == "" {
			s.why = reasons.CoolingDown
		}
		return limit, s.why, at
	}
	if s.why == "" {
		return s.to, "", time.Time{}
	}
	return s.to, s.why, now.Add(cooldown)
}

func scale(m cpu.Milli, factor float64) cpu.Milli { return cpu.FromCores(m.Cores() * factor) }
