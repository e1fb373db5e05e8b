package round

import (
	"math"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/sense"
	"github.com/mbcas/mbcas/market"
)

// supply is what the market may sell: allocatable CPU, a tenth less for each true pressure condition,
// minus the reserve, minus what the system uses beyond what the node keeps back for it. It returns
// the smoothed system use, too. While that cannot be read the last one known stands: to take it for none would
// sell CPU that is not there. Where it could never be read the term is left out.
func supply(cfg Config, n Node, r sense.NodeRates, system float64) (NodeDecision, float64) {
	known := r.UsageKnown && r.KubepodsKnown
	if known {
		used := max(0, r.Usage-r.Kubepods).Cores()
		system += (used - system) * (1 - math.Pow(1-systemSmoothing, r.Elapsed.Seconds()))
	}
	d := NodeDecision{
		Usage: r.Kubepods, UsageKnown: r.KubepodsKnown,
		System: cpu.FromCores(system), SystemKnown: known,
		Pressure: r.Pressure, PressureKnown: r.PressureKnown,
	}
	sold := cpu.FromCores(n.Allocatable.Cores()*math.Pow(0.9, float64(n.Pressures)) - cfg.Reserve*n.Allocatable.Cores())
	beyond := max(0, d.System-(n.Capacity-n.Allocatable))
	d.Supply = max(0, sold-min(beyond, cpu.FromCores(sold.Cores()*maxSystemShare)))
	return d, system
}

// updateFullFor is for how long no CPU has lain idle.
func updateFullFor(n Node, r sense.NodeRates, before time.Duration) time.Duration {
	if !r.UsageKnown || n.Capacity <= 0 || float64(r.Usage) < fullThreshold*float64(n.Capacity) {
		return 0
	}
	return before + r.Elapsed
}

// coresPerBudget is how many cores of the supply a unit of budget stands for, by the sharing incentive.
func coresPerBudget(supply cpu.Milli, pods []PodInput) float64 {
	var budgets float64
	for _, p := range pods {
		budgets += float64(p.Budget)
	}
	return supply.Cores() / max(1, budgets)
}

// fullThreshold is the share of its capacity from which a node counts as full: some idle time lies between any two threads.
const fullThreshold = 0.97

// maxSystemShare is the share of what could be sold that the system can take from the market, however busy it is:
// the kernel's weights leave the pods about half beside it, and floors for all would leave that idle.
const maxSystemShare = 0.5

// systemSmoothing is how far, per second, the system's smoothed use moves towards what is seen.
const systemSmoothing = 0.1

// price is the node's price and what moves it.
type price struct {
	inForce       market.Price  // at which limits are set
	lowerFor      time.Duration // for which a lower price would have done
	lowerMax      market.Price  // the highest of these lower ones
	trim          float64       // exponent that corrects the cleared price
	overSupplyFor time.Duration // for which the pods have used more than the supply
	idleFor       time.Duration // for which CPU has lain idle beside a throttled pod
	latestUntil   time.Time     // until when the demand of the last tick counts, too
	urgentAt      time.Time     // from zero, when that was last acted on at once
	urgent        bool          // the first lowerings at this price are not held back
}

// lasted says whether what has gone on for so long has done so for want, to the nearest round: ticks jitter.
func lasted(long, elapsed, want time.Duration) bool {
	return long > 0 && long+elapsed/2 >= want
}

// update clears the market and moves the price: feed-forward from the clearing, an integral trim that
// drives measured use to the supply, and bands so that noise moves nothing.
//
// Scarcity that is plain to see is not left to the estimates to confirm, as those that wait are starved meanwhile: when
// the pods have used more than the supply for cfg.Onset (once may be a burst that is over already), the demand of the last
// tick counts too, for cfg.CatchUp, in which the estimates follow.
func (p price) update(cfg Config, solver *market.Solver, book []bidder, d *NodeDecision, now time.Time, elapsed time.Duration) price {
	if d.Usage > d.Supply {
		p.overSupplyFor += elapsed
	} else {
		p.overSupplyFor = 0
	}
	if p.inForce == 0 && lasted(p.overSupplyFor, elapsed, cfg.Onset) {
		p.latestUntil = now.Add(cfg.CatchUp)
	}
	before := p.inForce
	early := now.Add(elapsed / 2).Before(p.latestUntil)
	problem := market.Problem{Supply: d.Supply, Bids: make([]market.Bid, len(book))}
	for i := range book {
		e := &book[i]
		if early {
			e.bid.Demand = max(e.bid.Demand, e.latestDemand)
		}
		problem.Bids[i] = e.bid
		problem.Bids[i].Demand = e.signalled(e.bid.Demand)
		d.Demand += e.bid.Demand
		d.SignalDemand += problem.Bids[i].Demand - e.bid.Demand
		if e.managed {
			d.Bidders++
		} else {
			d.Unmanaged++
		}
	}
	if !d.UsageKnown { // the price stays
		p.overSupplyFor, p.idleFor, p.lowerFor, p.lowerMax, d.Price = 0, 0, 0, 0, p.inForce
		return p
	}
	cleared := solver.Clear(problem)
	if cleared.FloorsExceedSupply && d.SignalDemand > 0 { // with not even room for the floors, none is kept free
		for i, e := range book {
			problem.Bids[i].Demand = e.bid.Demand
		}
		cleared = solver.Clear(problem)
	}
	p.idleFor = p.updateIdleFor(cfg, book, *d, elapsed)
	wasted := lasted(p.idleFor, elapsed, cfg.Release)
	if cleared.Price > 0 && wasted {
		for i, e := range book {
			problem.Bids[i].Demand = e.signalled(min(e.bid.Demand, lastTickDemand(cfg, e)))
		}
		if again := solver.Clear(problem); again.Price < cleared.Price {
			cleared, d.Released = again, true
		}
	}
	if cleared.Price == market.MaxPrice {
		cleared.Price = floorPrice(book)
	}
	d.Cleared, d.FloorsExceedSupply = cleared.Price, cleared.FloorsExceedSupply

	switch {
	case cleared.Price == 0 && (wasted || float64(d.Demand+d.SignalDemand) <= (1-cfg.ReleaseBand)*float64(d.Supply)):
		if p = p.moveTo(cfg, 0, wasted, elapsed); p.inForce == 0 {
			p.trim = 0
		}
	case cleared.Price == 0:
		// Demand is just below the supply: a price that is in force stays, and none comes up.
	default:
		p.trim = trim(cfg, p, book, *d, elapsed)
		most := max(cleared.Price, sharePrice(solver, problem))
		p = p.moveTo(cfg, min(most, cleared.Price*market.Price(math.Exp(p.trim))), wasted, elapsed)
	}
	if before == 0 && p.inForce > 0 {
		// A price that flaps has limits lowered and raised with each turn, so not each turn is worth a hurry.
		if p.urgent = p.urgentAt.IsZero() || now.Sub(p.urgentAt) >= cfg.PublishInterval; p.urgent {
			p.urgentAt = now
		}
	}
	d.Price = p.inForce
	return p
}

// sharePrice is the price at which everybody would have just its share if all wanted more than that. Above it the trim would take
// from those whom the price holds what is theirs, for bursts of those whom it does not hold.
func sharePrice(solver *market.Solver, p market.Problem) market.Price {
	for i := range p.Bids {
		p.Bids[i].Demand = p.Bids[i].Ceiling
	}
	return solver.Clear(p).Price
}

// floorPrice is the price where the use within the floors takes all of the supply: the lowest at which all who want more than their floor
// have just that. Every higher one gives the same limits; this one says something, and leads back without a leap.
func floorPrice(book []bidder) market.Price {
	p := market.Price(0)
	for _, e := range book {
		if e.managed && e.bid.Demand > e.bid.Floor {
			p = max(p, market.Price(float64(max(e.bid.Budget, 1))/float64(max(e.bid.Floor, 1))))
		}
	}
	if p == 0 { // those outside of the market fill the node by themselves
		return market.MaxPrice
	}
	return min(p, market.MaxPrice)
}

// moveTo goes to the wanted price where it is far from the one in force. It falls only when a lower one would have done
// for cfg.FallDelay: bursts come again, and limits that follow every one of them down and up help nobody. Where CPU
// lies idle beside a throttled pod it falls at once.
func (p price) moveTo(cfg Config, want market.Price, wasted bool, elapsed time.Duration) price {
	if !differs(want, p.inForce, cfg.PriceBand) {
		p.lowerFor, p.lowerMax = 0, 0
		return p
	}
	if want < p.inForce && !wasted {
		p.lowerFor += elapsed
		p.lowerMax = max(p.lowerMax, want)
		if !lasted(p.lowerFor, elapsed, cfg.FallDelay) {
			return p
		}
		want = p.lowerMax
	}
	p.inForce, p.lowerFor, p.lowerMax = want, 0, 0
	return p
}

// updateIdleFor is how long a pod has been throttled while CPU lay idle: the estimates still hold demand that has
// gone. Time in which twice as much lay idle counts twice.
func (p price) updateIdleFor(cfg Config, book []bidder, d NodeDecision, elapsed time.Duration) time.Duration {
	idle := 1 - float64(d.Usage+keptForSignals(book, p.inForce))/float64(max(d.Supply, 1))
	if idle < cfg.ReleaseIdle {
		return 0
	}
	for _, e := range book {
		if e.managed && e.latestThrottleRatio >= cfg.Demand.ThrottleThreshold {
			if idle >= 2*cfg.ReleaseIdle {
				return p.idleFor + 2*elapsed
			}
			return p.idleFor + elapsed
		}
	}
	return 0
}

// lastTickDemand is a demand for which the last tick alone speaks. A pod that was throttled but used clearly less than its limit
// stopped within the tick: it wants no more than it used.
func lastTickDemand(cfg Config, e bidder) cpu.Milli {
	switch {
	case e.latestThrottleRatio < cfg.Demand.ThrottleThreshold:
		return e.latestDemand
	case e.managed && float64(e.usage) < stoppedThreshold*float64(e.limit):
		return e.usage
	}
	return e.bid.Demand
}

// stoppedThreshold is the share of its limit below which a throttled pod cannot have wanted more all the time.
const stoppedThreshold = 0.85

// lowerEstimates lowers the estimates to what the release saw, so that demand which has gone does not come back with the next tick.
func lowerEstimates(cfg Config, known map[string]demand.Estimate, pods []PodInput, book []bidder) {
	for _, e := range book {
		now := lastTickDemand(cfg, e)
		if now >= e.bid.Demand {
			continue
		}
		share := now.Cores() / e.bid.Demand.Cores()
		for _, c := range pods[e.pod].Containers {
			if est, ok := known[c.ID]; ok && c.Limited() == e.managed {
				est.Mean *= share
				known[c.ID] = est
			}
		}
	}
}

// trim integrates the relative error between use and supply while the price holds somebody; where it
// holds nobody, a different price would change nothing. It waits while limits are still on their way down to what the
// price says: the error of that time mends itself. An error within half the price band counts as none:
// the price moves by whole bands, so to chase it would only swing around it.
func trim(cfg Config, p price, book []bidder, d NodeDecision, elapsed time.Duration) float64 {
	if d.Supply <= 0 || p.inForce == 0 || p.lowerFor > 0 { // a fall that waits will mend the error
		return p.trim
	}
	holds := false
	for _, e := range book {
		if !e.managed || e.bound(cfg, p.inForce) != market.ByPrice {
			continue
		}
		holds = true
		if e.limit > e.bid.Limit(p.inForce) && differs(e.limit, e.bid.Limit(p.inForce), 1.5*cfg.PublishBand) {
			return p.trim
		}
	}
	if !holds {
		return p.trim
	}
	miss := max(-0.5, min(0.5, float64(d.Usage+keptForSignals(book, p.inForce)-d.Supply)/float64(d.Supply)))
	miss -= max(-cfg.PriceBand/2, min(cfg.PriceBand/2, miss))
	return max(-cfg.TrimLimit, min(cfg.TrimLimit, p.trim+cfg.TrimGain*miss*elapsed.Seconds()))
}

// differs says whether a and b differ by more than the band, as a share of b.
func differs[N ~int64 | ~float64](a, b N, band float64) bool {
	diff := float64(a - b)
	return max(diff, -diff) > band*float64(b)
}
