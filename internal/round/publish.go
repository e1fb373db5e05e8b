package round

import (
	"time"

	"github.com/mbcas/mbcas/internal/sense"
	"github.com/mbcas/mbcas/market"
)

// The API server and the controller pay for each publication, so a decision is published only when
// it differs enough from the published one. Limits are published soon, figures alone seldom.

// changeDue says whether a decision is published because a limit changes: a raise at once, and so,
// where urgent, the first decrease after a time without a price; any other change after the publish
// interval. Without urgent, a decision that was published because demand jumps would delay the
// decrease that the jump makes necessary by a whole interval.
//
// A container is raised by what the pod gains as a whole. What it gets from other containers of the
// pod follows their demand, which varies all the time, and waits as a decrease does.
func changeDue(cfg Config, now time.Time, urgent bool, was Published, d Decision) bool {
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
	firstDecrease := urgent && gain < 0 && was.Price == 0 && d.Price > 0
	return changed && (firstDecrease || now.Sub(was.At) >= cfg.PublishInterval)
}

// relievesThrottling says whether a throttled container gets more than was published, from the pod
// as a whole or from its other containers.
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

// refreshDue says whether a decision is published although its limits stay, because its demand or
// its price has changed. Noise must cause no publication: a change of demand counts only beyond
// PublishBand, RefreshBand and one percent of the node. A pod that shares a quota need not wait for
// RefreshInterval, as the division of the quota depends on its demand, but its demand must have
// changed by quotaBand.
func refreshDue(cfg Config, in Input, p PodInput, d Decision) bool {
	was, age := p.Published, in.Now.Sub(p.Published.At)
	band := max(cfg.RefreshBand, in.Node.Allocatable/100)
	if change := max(d.Demand-was.Demand, was.Demand-d.Demand); change > band {
		if age >= cfg.RefreshInterval && differs(d.Demand, was.Demand, cfg.PublishBand) {
			return true
		}
		if p.IncreaseOnNeed && age >= cfg.PublishInterval && differs(d.Demand, was.Demand, quotaBand) {
			return true
		}
	}
	return age >= cfg.RefreshInterval && priceDiffers(cfg, d.Price, was.Price)
}

// quotaBand is the relative change of demand that a pod that shares a quota publishes.
const quotaBand = 0.25

// priceDue says whether a decision is published because the price of the node has changed since
// was, the newest published decision of the node. The coordinator compares the prices of nodes, so
// one pod publishes the price: the one with that decision, as writing it succeeded last.
func priceDue(cfg Config, now time.Time, was Published, price market.Price) bool {
	return now.Sub(was.At) >= cfg.PriceInterval && priceDiffers(cfg, price, was.Price)
}

// priceDiffers says whether two prices differ by more than the bands. A price of 0, at which CPU is
// not scarce, differs from every other.
func priceDiffers(cfg Config, a, b market.Price) bool {
	return differs(a, b, max(cfg.PublishBand, priceDigits))
}

// priceDigits is the least relative difference between two prices that shows in their text.
const priceDigits = 0.01

// differs says whether a and b differ by more than the band, as a share of b.
func differs[N ~int64 | ~float64](a, b N, band float64) bool {
	diff := float64(a - b)
	return max(diff, -diff) > band*float64(b)
}
