package lifecycle

import (
	"slices"
	"time"

	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
)

// boost gives a pod that starts at least a multiple of its declared limits. Bounds, quotas and hold-offs apply
// as to any increase, and once it is over the market alone decides.
func boost(s *state) verdict {
	if s.restoring {
		return next
	}
	limits, until := s.startupLimits()
	if limits == nil {
		return next
	}
	s.Recheck(until)
	if s.pod.limitedByPrice() { // a boost is a raise as any other
		return next
	}
	if d := s.pod.Decision; d != nil && d.RevokedFor > 0 {
		s.Recheck(s.now.Add(d.RevokedFor))
		return next
	}
	s.boosted = limits
	for _, c := range s.pod.Containers {
		least, decided := limits.Of(c.Name), cpu.Milli(0)
		if s.pod.Decision != nil {
			decided = s.pod.Decision.Limits.Of(c.Name)
		}
		if least > max(decided, s.pod.Declared.Of(c.Name)) && s.pod.managed(c) {
			s.Why = reasons.StartupBoost
			if least > c.Limit {
				s.Purpose = Startup
			}
		}
	}
	return next
}

// atLeastBoosted are the desired limits of a pod that may start: what is decided lowers none below those of its
// start.
func (s *state) atLeastBoosted(desired Limits) Limits {
	if s.boosted == nil {
		return desired
	}
	var limits Limits
	for _, c := range s.pod.Containers {
		if !s.pod.managed(c) {
			continue
		}
		want := desired.Of(c.Name)
		if want == 0 {
			want = c.Limit
		}
		limits = append(limits, Limit{c.Name, max(want, s.boosted.Of(c.Name))})
	}
	return limits
}

// startupLimits are the least limits of a pod that starts, and until when; nil: none. Before its containers run
// that is not known yet.
func (s *state) startupLimits() (limits Limits, until time.Time) {
	if s.pod.StartupBoost <= 1 || s.pod.Excluded.Reason != "" {
		return nil, time.Time{}
	}
	starts, until := s.starts()
	if !starts {
		return nil, time.Time{}
	}
	var least, declared []cpu.Milli
	for _, c := range s.pod.Containers {
		if !s.pod.managed(c) || c.Completed {
			continue
		}
		limit := s.pod.Declared.Of(c.Name)
		boosted := cpu.FromCores(limit.Cores() * s.pod.StartupBoost).RoundDown(cpu.Quantum)
		limits = append(limits, Limit{c.Name, limit})
		least, declared = append(least, max(min(boosted, c.Ceiling), limit)), append(declared, limit)
	}
	for i, fitted := range cpu.FitTotal(least, declared, s.pod.Ceiling) {
		limits[i].CPU = max(fitted.RoundDown(cpu.Quantum), declared[i])
	}
	return limits, until
}

// starts says whether the pod starts for the first time, and until when at the latest; zero: not known yet. One
// that was Ready before, or that had a container restart, has started.
func (s *state) starts() (starts bool, until time.Time) {
	p, first := s.pod, s.pod.firstStart()
	ready := p.Memory.FirstReady // a pod that loses its readiness, or whose node does, does not start again
	if p.Ready && ready.IsZero() {
		ready = p.ReadySince
	}
	switch {
	case first.IsZero():
		return !p.Ready && !p.started(), time.Time{}
	case !ready.IsZero():
		until = Earlier(ready.Add(s.cfg.BoostGrace), first.Add(s.cfg.BoostMax))
	case p.UnreadySince.After(first):
		return false, time.Time{}
	default:
		until = first.Add(s.cfg.BoostMax)
	}
	return s.now.Before(until), until
}

// unreadyBoost is how long after its start a boosted pod that has never been Ready keeps what its boost gave it. A pod
// that is not Ready is not lowered, as it may be starting; one that is not Ready by then has failed, and its limit
// counts in ResourceQuotas and lets it take CPU from others. Longer than the longest boost by default, so that a slow
// start is not lowered at once when its boost ends.
const unreadyBoost = 10 * time.Minute

// boostForfeited says whether the pod has not been Ready for so long after a boost that it may be lowered, and from
// when on, as far as that is known. A pod that was Ready before keeps what it has.
func (s *state) boostForfeited() (forfeited bool, from time.Time) {
	p, first := s.pod, s.pod.firstStart()
	ready := p.Ready || !p.Memory.FirstReady.IsZero() || p.UnreadySince.IsZero()
	if p.StartupBoost <= 1 || ready || !p.started() || !first.IsZero() && p.UnreadySince.After(first) {
		return false, time.Time{}
	}
	since := p.UnreadySince // of a pod that restarts this is all that is known
	if first.After(since) {
		since = first
	}
	from = since.Add(max(unreadyBoost, s.cfg.BoostMax))
	return !s.now.Before(from), from
}

// withoutBoost are the desired limits of such a pod: as decided, and at least the declared ones. Where no decision
// holds they are these.
func (s *state) withoutBoost(desired Limits) Limits {
	var limits Limits
	for _, c := range s.pod.Containers {
		if !s.pod.managed(c) {
			continue
		}
		decided, declared := desired.Of(c.Name), s.pod.Declared.Of(c.Name)
		if decided < declared {
			s.Why = reasons.PodNotReady
		}
		limits = append(limits, Limit{c.Name, max(decided, declared)})
	}
	return limits
}

// firstStart is when the first of the containers whose limit is resized started; zero: none has, or one has
// restarted since.
func (p *Pod) firstStart() (first time.Time) {
	for _, c := range p.Containers {
		switch {
		case !p.managed(c):
		case c.Restarts > 0:
			return time.Time{}
		default:
			first = Earlier(first, c.StartedAt)
		}
	}
	return first
}

// waitsForSidecar says whether a sidecar whose limit is resized runs and has not started.
func (p *Pod) waitsForSidecar() bool {
	return slices.ContainsFunc(p.Containers, func(c Container) bool {
		return p.managed(c) && c.NotRunning && !c.StartedAt.IsZero()
	})
}

// started says whether a container whose limit is resized has started.
func (p *Pod) started() bool {
	for _, c := range p.Containers {
		if p.managed(c) && (!c.StartedAt.IsZero() || c.Restarts > 0 || len(c.EndedAt) > 0) {
			return true
		}
	}
	return false
}
