package round

import (
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/sense"
	"github.com/mbcas/mbcas/internal/split"
	"github.com/mbcas/mbcas/market"
)

// decide gives every managed bidder its limit at the price in force.
func decide(cfg Config, in Input, rates []sense.PodRates, book []bidder, s State) []Decision {
	decisions := make([]Decision, 0, len(book))
	for _, b := range book {
		if !b.managed {
			continue
		}
		pod := in.Pods[b.pod]
		d := decideOne(cfg, s, pod, rates[b.pod], b)
		has := b.limit
		if in.Now.Sub(pod.Published.At) >= cfg.PublishInterval { // not applied, as in mode recommend: it takes nothing
			has = max(has, b.published)
		}
		s.room.idle -= max(0, d.Limit-has) // the next pod gets what this one leaves
		d.Publish = changeDue(cfg, in.Now, pod.Published, d) ||
			relievesThrottling(cfg, pod, rates[b.pod], d) || waitChanges(cfg, in.Now, pod, b.limit, d) ||
			figuresDue(cfg, in, pod, d)
		decisions = append(decisions, d)
	}
	return decisions
}

// decideOne is the decision about a managed bidder at the price in force.
func decideOne(cfg Config, s State, pod PodInput, rates sense.PodRates, b bidder) Decision {
	if !b.warmingUp && !s.price.binds && s.mayRevoke(cfg) { // more would be revoked
		b.leftByOthers = min(b.leftByOthers, b.declared+s.look.takenBelow(pod.Priority()))
	}
	d := Decision{
		UID: pod.UID, Pod: b.pod, Demand: b.bid.Demand, ThrottleRatio: b.latestThrottleRatio,
		Budget: b.bid.Budget, Price: s.price.inForce,
		Floor: b.minLimit, Ceiling: b.bid.Ceiling, Bound: b.bound(cfg, s.price.inForce), Usage: b.usage,
		RevokedFor: s.raises[pod.UID].RevokedFor(),
	}
	for j, c := range pod.Containers {
		if c.Limited() {
			d.Pressure = d.Pressure.Higher(s.estimates[c.ID].Pressure)
			d.Stalls = d.Stalls.Higher(rates.Containers[j].Stalls)
		}
	}
	d.Limit, d.Containers = limits(cfg, s, pod, b, d)
	return d
}

// limits is the limit of the pod and of its containers.
func limits(cfg Config, s State, p PodInput, b bidder, d Decision) (cpu.Milli, []ContainerLimit) {
	current, target := b.limit, s.target(cfg, &b, p, d.Bound)
	keep := target == current && b.throttleRatio < cfg.Demand.ThrottleThreshold
	if b.warmingUp && target.RoundDown(cpu.Quantum) <= current {
		target, keep = current, true
	}
	parts := s.parts(p.Pod, nil, 0)
	divided := split.Keep(parts)
	switch {
	case keep:
	case d.Bound == market.ByNothing && target > current:
		raised, _ := split.Raise(s.partsInNeed(cfg, &b, p.Pod, p.Published.Limits), s.mostRaised(cfg, &b))
		divided = split.Divide(s.solver, target, raised)
	default: // what the pod keeps, each container does
		divided = split.Divide(s.solver, target, s.parts(p.Pod, nil, b.keeps))
	}
	limit, limits := named(p.Pod, divided)
	if limit < d.Floor || limit > d.Ceiling { // the pod's bounds are narrower than its containers' sum
		return named(p.Pod, split.Divide(s.solver, limit.Clamp(d.Floor, d.Ceiling), parts))
	}
	return limit, limits
}

// target is the limit that the market leaves a pod.
//
// An uncapped pod is not lowered, unless its raise is revoked. The price counts on its demand, which is a mean; its
// bursts beyond that come at other times than those of its neighbours, and a burst that lasts becomes demand. It is
// raised only when it needs more: each increase costs a resize, which would delay others. Its published limit stays,
// applied or not. A capped pod that demands no more than it keeps is not lowered by less than CapBand. One that uses up its
// limit rises above its declared limit by idle CPU alone until the node has been full for Onset: others may not have been
// lowered yet.
func (s *State) target(cfg Config, b *bidder, p PodInput, bound market.Bound) cpu.Milli {
	current, target := b.limit, max(b.bid.Limit(s.price.inForce)+b.idle, b.minLimit)
	switch {
	case bound == market.ByNothing:
		target = s.uncappedLimit(cfg, b, p.Pod)
		if target > b.declared && !differs(b.declared, target, cfg.PublishBand) { // it could not be lowered again
			target = b.declared
		}
		if target < current || !b.needsMore() || !b.worthwhile(cfg, target) {
			target = max(current, b.published).Clamp(b.minLimit, b.bid.Ceiling)
		}
	case target > current && b.usesUpItsLimit() && s.gauge.fullFor < cfg.Onset:
		target = min(target, max(current, b.published, b.minLimit, b.declared, b.usage+max(0, s.room.idle)))
	case target < current && bound == market.ByFloor && b.bid.Demand <= target && !differs(target, current, cfg.CapBand):
		target = max(target, min(current, b.published)) // what it keeps varies with the claims of others
	case target < current:
		target = s.whileDemandsFit(b, target).Clamp(b.minLimit, b.bid.Ceiling)
	}
	return target
}

// whileDemandsFit is the limit of a capped pod that the price would lower to target. While all demands fit the supply,
// the price in force is one from before, and a lower limit would give CPU to no pod. So no decrease is published, and one
// on its way ends where the limit is; if they fit barely it goes on, as such demands would end it and begin it in turn.
func (s *State) whileDemandsFit(b *bidder, target cpu.Milli) cpu.Milli {
	switch {
	case s.price.slack == scarce:
		return target
	case s.price.slack == demandsFit && b.published > 0:
		return max(target, min(b.limit, b.published))
	}
	return b.limit
}

// needsMore says whether an uncapped pod is throttled, was so while it is busy, or may soon be: it uses half of its
// limit. Demand beyond usage that is not throttled waits for a CPU, and no limit helps it.
func (b *bidder) needsMore() bool {
	return b.usage > b.limit/2 || b.isThrottled() || b.throttleRatio >= needThrottleRatio && b.usage.Cores() >= nearLimit*b.limit.Cores()
}

// isThrottled says whether more CPU would have helped the pod in the last tick.
func (b *bidder) isThrottled() bool {
	return b.throttleRatio >= needThrottleRatio && b.latestThrottleRatio > 0
}

// needThrottleRatio is the smoothed throttle ratio from which an uncapped pod needs more CPU.
const needThrottleRatio = 0.01

// parts are the limited containers of a pod, with higher limits that are published: a raise lowers none of them.
// A share of declared limits is a floor.
func (s State) parts(p demand.Pod, published map[string]cpu.Milli, share float64) []split.Part {
	parts := make([]split.Part, 0, len(p.Containers))
	for _, c := range p.Containers {
		if c.Limited() {
			kept := cpu.FromCores(share * c.DeclaredLimit().Cores()).RoundDown(cpu.Quantum)
			parts = append(parts, split.Part{
				Demand: s.estimates[c.ID].Demand(), Floor: max(c.Floor, kept), Ceiling: c.Ceiling, Settable: c.Settable,
				Limit: max(c.Limit, published[c.Name]),
			})
		}
	}
	return parts
}

// named are the limits of a pod's limited containers, with their sum.
func named(p demand.Pod, limits []cpu.Milli) (sum cpu.Milli, parts []ContainerLimit) {
	parts = make([]ContainerLimit, 0, len(limits))
	for _, c := range p.Containers {
		if c.Limited() {
			parts = append(parts, ContainerLimit{c.Name, limits[len(parts)]})
			sum += limits[len(parts)-1]
		}
	}
	return sum, parts
}
