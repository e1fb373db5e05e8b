package round

import (
	"cmp"
	"slices"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/market"
)

// price is the price of the node and the state of its control.
type price struct {
	inForce  market.Price  // at which limits are set
	binds    bool          // it caps a busy pod; one that does not is without effect
	lowerFor time.Duration // for which a lower price has sufficed
	lowerMax market.Price  // the highest of these lower prices
	fellFrom market.Price  // from which it fell, the highest within EarlyFall; 0: a rise took it back, or the fall has proved right
	fellFor  time.Duration // since that fall, or since the last early one was forgotten
	early    int           // falls that came too early and are not forgotten
	idleFor  time.Duration // for which CPU has been idle beside a throttled pod
	slack    slack         // what all demands left of the supply when that was known last
}

// slack is what all demands leave of the supply.
type slack uint8

const (
	scarce     slack = iota // nothing, or no round has known it
	demandsFit              // less than ReleaseBand
	amplyFit                // enough for the price to fall to zero
)

// clearing is the input of one move of the price. The move fills in the node.
type clearing struct {
	cfg     Config
	solver  *market.Solver
	book    []bidder
	node    *NodeDecision
	elapsed time.Duration
	// demandKnown says that the node has enough samples. Until then the price stays.
	demandKnown bool
	usable      cpu.Milli // demand within the ceilings
}

// capsOne says whether the price caps a pod that uses its limit: the demand of an idle one may have ended. No price would
// leave a pod more than its declared limit whose raise was revoked.
func (p price) capsOne(cfg Config, book []bidder) bool {
	return p.inForce > 0 && slices.ContainsFunc(book, func(b bidder) bool {
		bound := b.bound(cfg, p.inForce)
		busy := b.latestThrottleRatio > 0 || b.usage.Cores() > stoppedShare*min(b.limit, b.bid.Demand).Cores()
		hasMost := b.revoked && b.minLimit >= b.bid.Ceiling
		return b.managed && busy && !hasMost && (bound == market.ByPrice || bound == market.ByFloor)
	})
}

// moved clears the market and moves the price towards the cleared one, with bands so that noise moves nothing.
func (p price) moved(c clearing) price {
	problem := c.problem()
	p = p.passed(c.cfg, c.elapsed)
	if !c.node.UsageKnown || !c.demandKnown { // the price stays
		p.idleFor, p.lowerFor, p.lowerMax, c.node.Price = 0, 0, 0, p.inForce
		return p
	}
	p.slack = scarce
	p.idleFor = p.updateIdleFor(c)
	patience := p.patience(c, problem)
	idle := lasted(p.idleFor, c.elapsed, time.Duration(patience)*c.cfg.Release)
	cleared := c.clear(problem, idle)

	total := float64(c.usable + c.node.SignalDemand)
	switch {
	case cleared == 0 && (idle || total <= (1-c.cfg.ReleaseBand)*float64(c.node.Supply)):
		p = p.moveTo(c.cfg, 0, idle, c.elapsed, patience)
		p.slack = amplyFit
	case cleared == 0:
		// Demand is just below the supply: no price begins, and one in force stays, but not above the share price.
		if most := sharePrice(c.solver, problem); most < p.inForce && differs(most, p.inForce, c.cfg.PriceBand) {
			p = p.moveTo(c.cfg, most, false, c.elapsed, patience)
		}
		p.slack = demandsFit
	default:
		p = p.moveTo(c.cfg, cleared, idle, c.elapsed, patience)
	}
	c.node.Price = p.inForce
	return p
}

// problem is the market with the smoothed demands.
func (c *clearing) problem() market.Problem {
	problem := market.Problem{Supply: c.node.Supply, Bids: make([]market.Bid, len(c.book))}
	for i := range c.book {
		b := &c.book[i]
		problem.Bids[i] = b.bid
		problem.Bids[i].Demand = b.signalled(b.bid.Demand)
		c.node.Demand += b.bid.Demand
		c.usable += min(b.bid.Demand, b.bid.Ceiling)
		c.node.SignalDemand += problem.Bids[i].Demand - b.bid.Demand
		if b.managed {
			c.node.Bidders++
		} else {
			c.node.Unmanaged++
		}
	}
	return problem
}

// clear is the price of the problem. While CPU is idle beside a throttled pod, it is the price for the demand of the
// last tick, if that is lower: the estimates include demand that has ended.
func (c clearing) clear(problem market.Problem, idle bool) market.Price {
	cleared := c.solver.Clear(problem)
	if cleared.FloorsExceedSupply && c.node.SignalDemand > 0 { // nothing is left to keep free for signals
		for i := range c.book {
			c.book[i].signalPercent = 0
			problem.Bids[i].Demand = c.book[i].bid.Demand
		}
		cleared = c.solver.Clear(problem)
	}
	if cleared.Price > 0 && idle {
		for i, b := range c.book {
			problem.Bids[i].Demand = b.signalled(min(b.bid.Demand, lastTickDemand(c.cfg, b)))
		}
		if again := c.solver.Clear(problem); again.Price < cleared.Price {
			cleared, c.node.Released = again, true
		}
	}
	if cleared.Price == market.MaxPrice {
		cleared.Price = floorPrice(c.book)
	}
	c.node.Cleared, c.node.FloorsExceedSupply = cleared.Price, cleared.FloorsExceedSupply
	return cleared.Price
}

// sharePrice is the price at which every bidder has its share if all demand more. No demands clear at a higher one.
func sharePrice(solver *market.Solver, p market.Problem) market.Price {
	for i := range p.Bids {
		p.Bids[i].Demand = p.Bids[i].Ceiling
	}
	return solver.Clear(p).Price
}

// floorPrice is the price where usage within the floors takes all of the supply: the lowest at which every pod that
// demands more than its floor has its floor. Every higher price gives the same limits; this one falls without a jump.
func floorPrice(book []bidder) market.Price {
	p := market.Price(0)
	for _, b := range book {
		if b.managed && b.bid.Demand > b.bid.Floor {
			p = max(p, market.Price(float64(max(b.bid.Budget, 1))/float64(max(b.bid.Floor, 1))))
		}
	}
	return min(cmp.Or(p, market.MaxPrice), market.MaxPrice) // 0: unmanaged pods alone fill the node
}

// moveTo goes to another price where it differs from the one in force by more than the band. It falls only when a
// lower price has sufficed for FallDelay: bursts repeat, and limits that follow each of them help no pod. While CPU
// is idle beside a throttled pod it falls at once. Both wait longer after a fall that came too early.
func (p price) moveTo(cfg Config, to market.Price, idle bool, elapsed time.Duration, patience int) price {
	if !differs(to, p.inForce, cfg.PriceBand) {
		p.lowerFor, p.lowerMax = 0, 0
		return p
	}
	if to < p.inForce && !idle {
		p.lowerFor += elapsed
		p.lowerMax = max(p.lowerMax, to)
		if !lasted(p.lowerFor, elapsed, time.Duration(patience)*cfg.FallDelay) {
			return p
		}
		to = p.lowerMax
	}
	switch {
	case to < p.inForce && p.inForce > p.fellFrom:
		p.fellFrom, p.fellFor = p.inForce, 0
	case to > p.inForce && p.fellFrom > 0 && to >= p.fellFrom/2: // the fall was early
		p.fellFrom, p.early = 0, min(p.early+1, 2)
	}
	p.inForce, p.lowerFor, p.lowerMax = to, 0, 0
	return p
}

// passed counts the time. A fall that lasts was right. An early one is forgotten after a while, so that a lower price is
// tried again.
func (p price) passed(cfg Config, elapsed time.Duration) price {
	if p.fellFrom > 0 || p.early > 0 {
		p.fellFor += elapsed
	}
	switch {
	case p.fellFrom > 0 && p.fellFor > cfg.EarlyFall:
		p.fellFrom, p.early = 0, 0
	case p.fellFor > forgetEarly:
		p.fellFor, p.early = 0, max(0, p.early-1)
	}
	return p
}

// forgetEarly is how long an early fall counts. Shorter tries lower prices more often beside bursts that go on.
const forgetEarly = 5 * time.Minute

// patience is how many times as long the price waits until it falls, as its last falls came too early. Above the share
// price it waits no longer: no burst needs such a price.
func (p price) patience(c clearing, problem market.Problem) int {
	if p.early == 0 || !p.binds {
		return 1
	}
	problem.Bids = slices.Clone(problem.Bids)
	if most := sharePrice(c.solver, problem); most < p.inForce && differs(most, p.inForce, c.cfg.PriceBand) {
		return 1
	}
	return 1 << (2 * p.early)
}

// updateIdleFor is for how long CPU has been idle while a pod was throttled. Time with twice ReleaseIdle counts twice.
func (p price) updateIdleFor(c clearing) time.Duration {
	idle := 1 - float64(c.node.Usage+keptForSignals(c.book, p.inForce))/float64(max(c.node.Supply, 1))
	throttled := func(b bidder) bool { return b.managed && b.latestThrottleRatio >= c.cfg.Demand.ThrottleThreshold }
	switch {
	case idle < c.cfg.ReleaseIdle || !slices.ContainsFunc(c.book, throttled):
		return 0
	case idle >= 2*c.cfg.ReleaseIdle:
		return p.idleFor + 2*c.elapsed
	}
	return p.idleFor + c.elapsed
}

// lastTickDemand is the demand by the last tick alone. A pod that was throttled but used clearly less than its limit
// stopped within the tick: it demands no more than it used.
func lastTickDemand(cfg Config, b bidder) cpu.Milli {
	switch {
	case b.latestThrottleRatio < cfg.Demand.ThrottleThreshold:
		return b.latestDemand
	case b.managed && float64(b.usage) < nearlyUsedUp*float64(b.limit):
		return b.usage
	}
	return b.bid.Demand
}

// lowerEstimates lowers the demands and their estimates to those at which the price was released.
func lowerEstimates(cfg Config, estimates map[string]demand.Estimate, pods []PodInput, book []bidder) {
	for i := range book {
		b := &book[i]
		latest := lastTickDemand(cfg, *b)
		if latest >= b.bid.Demand {
			continue
		}
		share := latest.Cores() / b.bid.Demand.Cores()
		for _, c := range pods[b.pod].Containers {
			if est, ok := estimates[c.ID]; ok && c.Limited() == b.managed {
				est.Mean *= share
				estimates[c.ID] = est
			}
		}
		if b.bid.Demand = latest; b.latestThrottleRatio >= cfg.Demand.ThrottleThreshold { // it has stopped
			b.throttleRatio, b.latestThrottleRatio = 0, 0
		}
	}
}
