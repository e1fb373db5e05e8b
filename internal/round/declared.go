package round

import (
	"cmp"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/disagreement"
	"github.com/mbcas/mbcas/internal/sense"
	"github.com/mbcas/mbcas/internal/split"
)

// keepDeclared raises the lowest limit of each managed bidder to what it keeps at any price. That buys nothing.
func (s *State) keepDeclared(cfg Config, in Input, rates sense.Rates, full bool, book []bidder) {
	if !cfg.Disagreement.Enabled() {
		return
	}
	s.disagreement = ofPods(s.disagreement, in.Pods)
	pods := make([]disagreement.Pod, len(book))
	for i := range book {
		b := &book[i]
		pods[i] = disagreement.Pod{Request: b.request, Demand: b.bid.Demand}
		if b.managed {
			pods[i] = asDeclared(cfg, in.Pods[b.pod], rates.Pods[b.pod], b, full)
		}
	}
	// The kernel divides what nothing else uses, and not what the node allows pods to request.
	left := in.Node.Capacity - cpu.FromCores(s.gauge.system)
	t := disagreement.Tick{Now: in.Now, Elapsed: rates.Node.Elapsed, Supply: left, Pods: pods}
	for i, k := range s.disagreement.Keep(cfg.Disagreement, s.solver, t) {
		if b, p := &book[i], &pods[i]; b.managed {
			b.revoked = s.raises[in.Pods[b.pod].UID].RevokedFor() > 0
			b.whenBusy = min(k.Limit.RoundDown(cpu.Quantum), b.bid.Ceiling)
			if !b.needsMore() && s.price.inForce > 0 { // a resize costs CPU that others wait for
				k.Limit = min(k.Limit, max(b.limit, b.published))
			}
			if limit := min(k.Limit.RoundDown(cpu.Quantum), b.bid.Ceiling); limit > b.minLimit {
				b.minLimit, b.keptLimit = limit, limit
			}
			if b.saturating = k.Saturates; !b.saturating {
				b.keeps = k.Limit.Cores() / max(1, p.Declared).Cores()
				b.idle = split.Idle(s.parts(in.Pods[b.pod].Pod, nil, b.keeps))
			}
		}
	}
}

// asDeclared is a managed bidder with its declared limit, and the evidence of the last tick. Containers that do not wait
// count there with what they use: their limits bound nothing.
func asDeclared(cfg Config, p PodInput, rates sense.PodRates, b *bidder, full bool) disagreement.Pod {
	d := disagreement.Pod{
		UID: p.UID, Request: b.request, Demand: b.latestDemand, Mean: b.bid.Demand, Usage: b.usage,
		Ceiling: b.bid.Ceiling, Priority: p.Priority(),
	}
	var waited float64
	var inForce, least cpu.Milli
	for j, c := range p.Containers {
		if !c.Limited() {
			continue
		}
		r := withPodQuota(rates.Containers[j], rates.Own, c)
		quota, share := cmp.Or(r.Quota, c.Limit), r.ThrottleRatio
		if full || share > 0 {
			share = max(share, r.Pressure.Value)
		}
		unknown := full && !r.Pressure.Known
		d.Declared += c.DeclaredLimit()
		inForce, least = inForce+quota, least+min(c.Declared, c.Ceiling)
		if share >= disagreement.WaitsFrom || unknown {
			d.Limit += quota
		} else {
			d.Limit += r.Usage
		}
		d.MayWait = d.MayWait || unknown
		waited += share * r.Usage.Cores()
	}
	d.Waits, d.Declared = waited/max(b.usage.Cores(), 0.001), min(d.Declared, b.bid.Ceiling)
	least = min(least, b.bid.Ceiling)
	if d.Has = b.limit; b.published > 0 {
		d.Has = min(d.Has, b.published)
	}
	d.BelowDeclared = min(b.limit, inForce) < least
	d.Capped = p.Published.Price > 0 && b.published > 0 && b.published < least && differs(b.published, least, cfg.PublishBand)
	return d
}
