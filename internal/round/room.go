package round

import (
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/market"
)

// uncappedLimit is what an uncapped pod is raised to. Without a price it is what the other pods leave, and at least its
// share: a pod that begins to take all it can get would else take it from them, until its demand is known. Under a
// price its share is known to suffice for its demand, and bursts may exceed it, unless it saturated a moment ago.
func (s *State) uncappedLimit(cfg Config, b *bidder) cpu.Milli {
	switch {
	case !cfg.BoundRaises, s.price.inForce > 0 && !b.saturates():
		return b.bid.Ceiling
	case s.price.inForce > 0:
		return max(b.bid.Limit(s.price.inForce), b.minLimit)
	}
	return b.left.RoundDown(cpu.Quantum).Clamp(b.minLimit, b.bid.Ceiling)
}

// room is what the demands of all bidders leave of the supply; it may be below 0.
type room struct {
	left      cpu.Milli
	perBudget float64 // the share in cores of a unit of budget
}

func roomOf(node NodeDecision, perBudget float64) room {
	return room{node.Supply - node.Demand - node.SignalDemand, perBudget}
}

// leave sets what the others leave each bidder. Where some have just stopped, their usage shows it at once, their
// demand a round later. Pods that saturate wait for that, since it may be a lull.
func (r room) leave(book []bidder, node NodeDecision) {
	for i := range book {
		b := &book[i]
		if b.left = r.leftTo(b.bid, b.bid.Demand); node.Released && node.UsageKnown && !b.saturates() {
			b.left = max(b.left, node.Supply-node.Usage-node.SignalDemand+b.usage)
		}
	}
}

// leftTo is what the others leave a bidder of whose demand a part is counted in the room.
func (r room) leftTo(b market.Bid, counted cpu.Milli) cpu.Milli {
	return max(r.left+counted, cpu.FromCores(r.perBudget*float64(b.Budget)))
}

// worthwhile says whether a raise to a limit is more than what the demand of the others moves it by. A pod that
// is throttled gets less, too.
func (b *bidder) worthwhile(to cpu.Milli) bool {
	return b.isThrottled() || to == b.bid.Ceiling || to > b.limit+b.limit/4
}

// saturates says whether a pod takes all it can get: it is throttled most of the time, and not in bursts of its
// threads alone. A pause of a few seconds changes nothing.
func (b *bidder) saturates() bool {
	return b.throttleRatio >= saturatingRatio && b.bid.Demand.Cores() >= saturatingDemand*b.limit.Cores()
}

// saturatingRatio is the smoothed throttle ratio of a pod that saturates, saturatingDemand its demand as a share of
// its limit.
const saturatingRatio, saturatingDemand = 0.5, 0.75
