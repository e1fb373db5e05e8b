package round

import (
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/sense"
)

// The API server and the controller pay for each publication, so a decision is published only when it differs enough
// from the published one: when a limit changes. The agent's Lease carries the price of the node, and confirms
// decisions that stay as they are.

// changeDue says whether a decision is published because a limit changes: a raise at once, and so a decrease of a
// pod whose raise was revoked; any other change after the publish interval.
//
// A container is raised by what the pod gains as a whole. What it gets from other containers of the pod follows their
// demand, which varies all the time, and waits as a decrease does.
func changeDue(cfg Config, now time.Time, was Published, d Decision) bool {
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
	return changed && (gain < 0 && d.RevokedFor > 0 && d.Limit-gain > d.Ceiling || now.Sub(was.At) >= cfg.PublishInterval)
}

// relievesThrottling says whether a throttled container gets more than was published, from the pod as a whole or from
// its other containers.
func relievesThrottling(cfg Config, p PodInput, r sense.PodRates, d Decision) bool {
	part := 0 // d.Containers are the limited ones of the pod, in its order
	for j, c := range p.Containers {
		if !c.Limited() {
			continue
		}
		limit, before := d.Containers[part].Limit, p.Published.Limits[c.Name]
		part++
		// The container's own periods count: another split does not relieve the quota of the pod.
		if r.Containers[j].ThrottleRatio >= cfg.Demand.ThrottleThreshold && limit > before &&
			differs(limit, before, cfg.PublishBand) {
			return true
		}
	}
	return false
}

// waitChanges says whether a pod whose published limit is not in force yet, as in mode recommend or while the
// controller raises other pods, has come to be throttled at its limit, or to demand it, or does not any more. The
// controller raises such pods first, and knows them from publications alone.
func waitChanges(cfg Config, now time.Time, p PodInput, current cpu.Milli, d Decision) bool {
	was, throttled := p.Published, d.ThrottleRatio >= cfg.Demand.ThrottleThreshold
	switch {
	case d.Limit <= current:
		return false
	case was.Demand < current && was.ThrottleRatio < cfg.Demand.ThrottleThreshold:
		return throttled || d.Demand >= current
	}
	return !throttled && d.Demand < current/2 && now.Sub(was.At) >= calmInterval
}

// calmInterval is how long a pod counts as one that demands its limit. Shorter costs more publications about pods
// with bursts; longer has more pods at the head of the queue that need nothing.
const calmInterval = time.Hour

// figuresDue says whether a decision is published although its limits stay. What binds the limit is the state of the
// pod, and says why its limit stays. Others count on its demand: the division of a short quota and, where CPU has a
// price, the coordinator. Noise must cause no publication: a change of demand counts only beyond DemandBand, a
// quarter, and one percent of the node.
func figuresDue(cfg Config, in Input, p PodInput, d Decision) bool {
	was, age := p.Published, in.Now.Sub(p.Published.At)
	change := max(d.Demand-was.Demand, was.Demand-d.Demand)
	changed := change > max(cfg.DemandBand, in.Node.Allocatable/100) && differs(d.Demand, was.Demand, demandBand)
	if changed && p.IncreaseOnNeed && age >= cfg.QuotaInterval {
		return true
	}
	return age >= cfg.FiguresInterval && (d.Bound != was.Bound || changed && d.Price > 0)
}

// demandBand is the relative change of demand that is published although the limits stay.
const demandBand = 0.25

// differs says whether a and b differ by more than the band, as a share of b.
func differs[N ~int64 | ~float64](a, b N, band float64) bool {
	diff := float64(a - b)
	return max(diff, -diff) > band*float64(b)
}
