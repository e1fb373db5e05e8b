package round

import (
	"math"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/split"
	"github.com/mbcas/mbcas/market"
)

// uncappedLimit is what an uncapped pod is raised to: what it needs, as far as the other pods leave that, or its share is
// as much. A pod that begins to take all it can get would else take it from them, until its demand is known. Under a
// price that caps a pod the share of an uncapped one is known to suffice for its demand; bursts may exceed it, unless
// the pod saturates or seems to.
func (s *State) uncappedLimit(cfg Config, b *bidder, p demand.Pod) (sum cpu.Milli) {
	_, sum = split.Raise(s.partsInNeed(cfg, b, p, nil), s.mostRaised(cfg, b))
	return sum.Clamp(b.minLimit, b.bid.Ceiling)
}

// partsInNeed are the parts of a pod with what each container needs as its ceiling, while CPU is not scarce.
func (s *State) partsInNeed(cfg Config, b *bidder, p demand.Pod, published map[string]cpu.Milli) []split.Part {
	parts := s.parts(p, published, 0)
	for i := range parts {
		if part := &parts[i]; i < len(b.needs) && cfg.BoundRaises && !s.price.binds {
			part.Ceiling = min(part.Ceiling, max(part.Floor, part.Limit, b.needs[i].RoundDown(cpu.Quantum)))
		}
	}
	return parts
}

// mostRaised is the highest sum to which an uncapped pod may be raised, and each of its containers but for what the
// others of the pod demand. Under a price that caps a pod, one that uses up its limit gets what the others leave: a higher
// limit would take more from them until the price caps the pod, seconds later.
func (s *State) mostRaised(cfg Config, b *bidder) cpu.Milli {
	if !cfg.BoundRaises || s.price.binds && !b.brief && !b.usesUpItsLimit() {
		return math.MaxInt32
	}
	return b.leftByOthers
}

// room is the supply as the bidders share it.
type room struct {
	unclaimed cpu.Milli // what all bidders leave of the supply; it may be below 0
	perBudget float64   // the share in cores of a unit of budget
	idle      cpu.Milli // what no pod uses of it, without what is kept for signals and what raises of this round take
}

// setRoom sets what the others leave each bidder, and what is idle.
func (s *State) setRoom(book []bidder, node NodeDecision, perBudget float64) {
	s.room = room{unclaimed: node.Supply, perBudget: perBudget, idle: node.Supply}
	if node.UsageKnown {
		s.room.idle = max(0, node.Supply-node.Usage-keptForSignals(book, s.price.inForce))
	}
	for i := range book {
		s.room.unclaimed -= book[i].counted(s.price.inForce)
	}
	for i := range book {
		b := &book[i]
		b.leftByOthers = s.room.leftByOthers(b, b.counted(s.price.inForce))
	}
}

// counted is what a bidder takes of the room: what it can use of its demand at a price, and what is kept free for its
// signal.
func (b *bidder) counted(p market.Price) cpu.Milli {
	can := min(b.bid.Ceiling, max(b.bid.Limit(p), b.minLimit-b.idle))
	return min(b.bid.Demand, can) + b.kept(0, b.bid.Demand)
}

// leftByOthers is what the others leave a bidder of which so much is counted, and at least its share.
func (r room) leftByOthers(b *bidder, counted cpu.Milli) cpu.Milli {
	return max(r.unclaimed+counted, cpu.FromCores(r.perBudget*float64(b.bid.Budget)))
}

// worthwhile says whether a raise is large enough: more than a quarter, as the demand of the others moves what they leave.
// When a pod begins to be throttled others may begin, too, and their demand is not known: if they leave little, more than
// half. One that is throttled most of the time is raised by as little as can be lowered again.
func (b *bidder) worthwhile(cfg Config, to cpu.Milli) bool {
	least := b.limit / 4
	switch throttled := b.isThrottled(); {
	case b.published > b.limit:
		return to > b.published+b.published/4
	case throttled && b.throttleRatio >= mostly:
		return to == b.bid.Ceiling || differs(b.limit, to, cfg.PublishBand)
	case throttled && b.leftByOthers <= b.limit+b.limit/2:
		least = b.limit / 2
	}
	return to == b.bid.Ceiling || to > b.limit+least
}

// usesUpItsLimit says whether a pod takes all that its limit allows: it saturates; or it uses most of its limit and is
// throttled most of the time, before or in the last tick; or it pauses after that. One that saturates on a full node is
// hardly throttled, as the others leave it no more.
func (b *bidder) usesUpItsLimit() bool {
	mostlyThrottled := b.throttleRatio >= mostly
	pauses := mostlyThrottled && b.bid.Demand.Cores() >= max(nearlyUsedUp*b.limit.Cores(), 2*b.usage.Cores())
	usesUp := b.usage.Cores() >= nearlyUsedUp*b.limit.Cores()
	return b.saturating || pauses || usesUp && (mostlyThrottled || b.latestThrottleRatio >= mostly)
}

// mostly and nearlyAlways are throttle ratios; nearlyUsedUp is usage or demand as a share of the limit.
const mostly, nearlyAlways, nearlyUsedUp = 0.5, 0.9, 0.75
