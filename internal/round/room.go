package round

import (
	"math"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/split"
	"github.com/mbcas/mbcas/market"
)

// uncappedLimit is what an uncapped pod is raised to: what the other pods leave, and at least its share. A pod that
// begins to take all it can get would else take it from them, until its demand is known. Under a price that caps a pod
// the share of an uncapped one is known to suffice for its demand; bursts may exceed it, unless the pod seems to saturate.
func (s *State) uncappedLimit(cfg Config, b *bidder, p demand.Pod) (sum cpu.Milli) {
	for _, part := range split.Raise(s.parts(p), s.leftTo(cfg, b)) {
		sum += part.Ceiling
	}
	return sum.Clamp(b.minLimit, b.bid.Ceiling)
}

// leftTo is what a raise may give each container of an uncapped pod, but for what the others of the pod demand.
func (s *State) leftTo(cfg Config, b *bidder) cpu.Milli {
	if !cfg.BoundRaises || s.price.binds && !b.brief && !b.saturates() {
		return math.MaxInt32
	}
	return b.left
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

// worthwhile says whether a raise to a limit is more than what the demand of the others moves it by. A pod that is
// throttled gets less, too.
func (b *bidder) worthwhile(to cpu.Milli) bool {
	return b.isThrottled() || to == b.bid.Ceiling || to > b.limit+b.limit/4
}

// saturates says whether a pod takes all it can get, as far as that is known: it is throttled nearly always in the
// last tick or, until a moment ago, most of the time, and uses up its limit, so not in bursts of its threads alone.
func (b *bidder) saturates() bool {
	throttled := b.throttleRatio >= mostly || b.latestThrottleRatio >= nearlyAlways
	return throttled && max(b.bid.Demand, b.usage).Cores() >= nearlyUsedUp*b.limit.Cores()
}

// mostly is a smoothed throttle ratio, nearlyAlways that of a tick, and nearlyUsedUp a demand as a share of the
// limit.
const mostly, nearlyAlways, nearlyUsedUp = 0.5, 0.9, 0.75
