package round

import (
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/sense"
	"github.com/mbcas/mbcas/market"
)

// decide gives every managed entry of the book its limit at the price in force.
func decide(cfg Config, in Input, rates []sense.PodRates, book []bidder, s State) []Decision {
	decisions := make([]Decision, 0, len(book))
	newest, published := -1, Published{} // the decision that was published last
	for _, e := range book {
		if !e.managed {
			continue
		}
		pod := in.Pods[e.pod]
		d := Decision{
			UID: pod.UID, Demand: e.bid.Demand, ThrottleRatio: e.latestThrottleRatio,
			Budget: e.bid.Budget, Price: s.price.inForce,
			Floor: e.minLimit, Ceiling: e.bid.Ceiling, Bound: e.bound(cfg, s.price.inForce), Usage: e.usage,
		}
		for j, c := range pod.Containers {
			if r := rates[e.pod].Containers[j]; c.Limited() {
				d.Pressure = max(d.Pressure, r.Pressure)
				d.PressureKnown = d.PressureKnown || r.PressureKnown
				d.Stalls = higherStalls(d.Stalls, r.Stalls)
			}
		}
		d.Limit, d.Containers = limits(cfg, s, pod, e, d)
		d.Publish = changeDue(cfg, in.Now, s.price.urgent, pod.Published, d) || relievesThrottling(cfg, pod, rates[e.pod], d) ||
			refreshDue(cfg, in, pod, d)
		if newest < 0 || pod.Published.At.After(published.At) {
			newest, published = len(decisions), pod.Published
		}
		decisions = append(decisions, d)
	}
	// The coordinator compares the prices of nodes, so one pod publishes the price of this node. It is the pod that was published
	// last: to write its PodAllocation has succeeded before.
	if newest >= 0 && in.Now.Sub(published.At) >= cfg.PriceInterval && priceDiffers(cfg, s.price.inForce, published.Price) {
		decisions[newest].Publish = true
	}
	return decisions
}

// limits is the pod's limit and its split. A pod that the price does not bind is not held: the price counts on its demand, which
// is a mean, and what it uses beyond that in bursts comes at other times than its neighbours' bursts; a burst that lasts
// becomes demand. It is never lowered, and while CPU is scarce it is raised only when its need shows, which saves
// writes; so it is at all times where a raise takes something from others. What it was offered stands, whether or not it has
// been taken up.
func limits(cfg Config, s State, p PodInput, e bidder, d Decision) (cpu.Milli, []ContainerLimit) {
	current, target := e.limit, max(e.bid.Limit(s.price.inForce), d.Floor)
	if d.Bound == market.ByNothing {
		target = d.Ceiling
		needs := e.throttleRatio >= needThrottleRatio || e.latestDemand > current/2
		if target < current || ((s.price.inForce > 0 || p.RaiseOnNeed) && !needs) {
			target = max(current, min(target, e.published)).Clamp(d.Floor, d.Ceiling)
		}
	}
	keep := target == current && e.throttleRatio < cfg.Demand.ThrottleThreshold
	if e.warmingUp && target.RoundDown(cpu.Quantum) <= current {
		target, keep = current, true
	}
	limit, parts := split(target, p.Pod, s.estimates, keep)
	if limit < d.Floor || limit > d.Ceiling { // where the pod's own bounds are narrower than its containers' together
		limit, parts = split(limit.Clamp(d.Floor, d.Ceiling), p.Pod, s.estimates, false)
	}
	return limit, parts
}

// higherStalls is the larger of each share, as far as they are known.
func higherStalls(a, b *sense.Stalls) *sense.Stalls {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	larger := func(a, b sense.Ratio) sense.Ratio {
		return sense.Ratio{Known: a.Known || b.Known, Value: max(a.Value, b.Value)}
	}
	return &sense.Stalls{Memory: larger(a.Memory, b.Memory), IO: larger(a.IO, b.IO)}
}

// needThrottleRatio is the smoothed throttle ratio from which a pod below its share is taken to need more.
const needThrottleRatio = 0.01

// split divides a pod's limit over its limited containers by the same rule as the node's CPU over pods: a
// container's own demand is its budget, within its floor and ceiling. Parts are whole quanta; what rounding
// leaves goes to the container that demands most, or else to the first that has room. keep leaves the parts as they are
// as far as they lie within their bounds: an owner may have declared less than the least, or more than the node has.
func split(total cpu.Milli, p demand.Pod, known map[string]demand.Estimate, keep bool) (cpu.Milli, []ContainerLimit) {
	var problem market.Problem
	var parts []ContainerLimit
	var most, sum cpu.Milli
	busiest := 0
	for _, c := range p.Containers {
		if !c.Limited() {
			continue
		}
		want := known[c.ID].Demand()
		if want > most {
			most, busiest = want, len(parts)
		}
		problem.Bids = append(problem.Bids, market.Bid{Budget: market.Budget(want), Demand: c.Ceiling, Floor: c.Floor, Ceiling: c.Ceiling})
		parts = append(parts, ContainerLimit{c.Name, c.Limit})
		sum += c.Limit
	}
	if keep {
		sum = 0
		for i, b := range problem.Bids {
			parts[i].Limit = parts[i].Limit.Clamp(b.Floor, b.Ceiling)
			sum += parts[i].Limit
		}
		return sum, parts
	}
	problem.Supply = total
	price := market.Clear(problem).Price
	sum = 0
	for i, b := range problem.Bids {
		parts[i].Limit = max(b.Limit(price).RoundDown(cpu.Quantum), b.Floor)
		sum += parts[i].Limit
	}
	give := func(i int) {
		room := (problem.Bids[i].Ceiling - parts[i].Limit).RoundDown(cpu.Quantum)
		more := max(0, min((total-sum).RoundDown(cpu.Quantum), room))
		parts[i].Limit += more
		sum += more
	}
	give(busiest)
	for i := range parts {
		give(i)
	}
	i := 0
	for _, c := range p.Containers {
		if !c.Limited() {
			continue
		}
		if l := parts[i].Limit; l < c.Settable && l != c.Limit { // so little more cannot be set
			parts[i].Limit, sum = c.Limit, sum+c.Limit-l
		}
		i++
	}
	return sum, parts
}

// changeDue says whether a decision is published because a limit changes: an increase at once, and so, where eager, the first
// decrease after a time without a price; any other change after the publish interval. Without the exception, what is published
// of a pod whose demand jumps would delay the decrease that the jump makes necessary by a whole interval.
//
// A container is raised by what the pod as a whole gains. What it gets from its neighbours in the pod follows their
// demand, which moves all the time, and waits as a lowering does.
func changeDue(cfg Config, now time.Time, eager bool, was Published, d Decision) bool {
	if was.At.IsZero() {
		return true
	}
	gain := d.Limit
	for _, c := range d.Containers {
		gain -= was.Limits[c.Name]
	}
	changed := false
	for _, c := range d.Containers {
		before := was.Limits[c.Name]
		if !differs(c.Limit, before, cfg.PublishBand) {
			continue
		}
		if c.Limit > before && differs(before+max(0, min(gain, c.Limit-before)), before, cfg.PublishBand) {
			return true
		}
		changed = true
	}
	age := now.Sub(was.At)
	return changed && (age >= cfg.PublishInterval || eager && gain < 0 && was.Price == 0 && d.Price > 0)
}

// refresh says whether a decision is published although its limits stay, because its demand or its price has changed. The API
// server and the controller pay for each publication, so noise must cause none: a change of demand counts only beyond
// PublishBand, RefreshBand and one percent of the node. A pod that shares a quota need not wait for RefreshInterval, as
// the division of the quota depends on its demand, but its demand must have changed by quotaBand.
func refreshDue(cfg Config, in Input, p PodInput, d Decision) bool {
	was, age := p.Published, in.Now.Sub(p.Published.At)
	least := max(cfg.RefreshBand, in.Node.Allocatable/100)
	if change := max(d.Demand-was.Demand, was.Demand-d.Demand); change > least {
		if differs(d.Demand, was.Demand, cfg.PublishBand) && age >= cfg.RefreshInterval {
			return true
		}
		if p.RaiseOnNeed && differs(d.Demand, was.Demand, quotaBand) && age >= cfg.PublishInterval {
			return true
		}
	}
	return age >= cfg.RefreshInterval && priceDiffers(cfg, d.Price, was.Price)
}

// quotaBand is the relative change of demand that is published at once for a pod that shares a quota.
const quotaBand = 0.25

// priceDigits is the least relative difference between two prices that shows when they are published.
const priceDigits = 0.01

// priceDiffers says whether two prices differ by more than the bands; 0, which is no scarcity, differs from every other price.
func priceDiffers(cfg Config, a, b market.Price) bool {
	return differs(a, b, max(cfg.PublishBand, priceDigits))
}

// relievesThrottling says whether a container that is throttled gets more than was published, wherever that comes from.
func relievesThrottling(cfg Config, p PodInput, r sense.PodRates, d Decision) bool {
	part := 0 // d.Containers are the limited ones of the pod, in its order
	for j, c := range p.Containers {
		if !c.Limited() {
			continue
		}
		now, before := d.Containers[part].Limit, p.Published.Limits[c.Name]
		part++
		// The container's own periods: what the quota of the pod holds back, another split does not free.
		if r.Containers[j].ThrottleRatio >= cfg.Demand.ThrottleThreshold && now > before && differs(now, before, cfg.PublishBand) {
			return true
		}
	}
	return false
}
