package round

import (
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/market"
)

// uncappedLimit is what an uncapped pod is raised to. Without a price it is what the other pods leave, and at least its
// share: a pod that begins to take all it can get would else take it from them, until its demand is known. Under a
// price its share is known to suffice for its demand, and bursts may exceed it.
func (s *State) uncappedLimit(cfg Config, b *bidder) cpu.Milli {
	if s.price.inForce > 0 || !cfg.BoundRaises {
		return b.bid.Ceiling
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

// leave sets what the others leave each bidder.
func (r room) leave(book []bidder) {
	for i := range book {
		book[i].left = r.leftTo(book[i].bid, book[i].bid.Demand)
	}
}

// leftTo is what the others leave a bidder of whose demand a part is counted in the room.
func (r room) leftTo(b market.Bid, counted cpu.Milli) cpu.Milli {
	return max(r.left+counted, cpu.FromCores(r.perBudget*float64(b.Budget)))
}

// leaveIdle sets what the others leave where some have just stopped: their usage shows it at once, their demand a
// round later. Pods that saturate wait for that, since it may be a lull.
func leaveIdle(book []bidder, node NodeDecision) {
	for i := range book {
		if b := &book[i]; b.throttleRatio < saturating {
			b.left = max(b.left, node.Supply-node.Usage-node.SignalDemand+b.usage)
		}
	}
}

// worthwhile says whether a raise to a limit is more than what the demand of the others moves it by. A pod that
// is throttled gets less, too.
func (b *bidder) worthwhile(to cpu.Milli) bool {
	return b.latestThrottleRatio >= needThrottleRatio || to == b.bid.Ceiling || to > b.limit+b.limit/4
}

// saturating is the smoothed throttle ratio from which a pod takes all it can get.
const saturating = 0.5
