package round

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/testing/atlength"
	"github.com/mbcas/mbcas/market"
)

// The theorems of docs/theory.md about the shipped price: the tests run price.update, with all its bands.

func between(rng *rand.Rand, low, high float64) float64 { return low + (high-low)*rng.Float64() }

// drawBook is an order book of managed and unmanaged bidders, with a supply between their floors and their
// ceilings.
func drawBook(rng *rand.Rand) ([]bidder, cpu.Milli) {
	book := make([]bidder, 1+rng.IntN(10))
	var floors, ceilings float64
	for i := range book {
		floor := cpu.Milli(between(rng, 10, 100))
		ceiling := floor + cpu.Milli(between(rng, 100, 8000))
		book[i] = bidder{
			managed: i == 0 || rng.IntN(6) > 0, minLimit: floor, limit: ceiling, published: ceiling,
			bid: market.Bid{Budget: market.Budget(between(rng, 2, 4000)), Floor: floor, Ceiling: ceiling},
		}
		floors, ceilings = floors+float64(floor), ceilings+float64(ceiling)
	}
	return book, cpu.Milli(math.Ceil(floors + between(rng, 0.05, 0.9)*(ceilings-floors)))
}

// sharePriceOf is the price at which every bidder has its share of the supply.
func sharePriceOf(book []bidder, supply cpu.Milli) market.Price {
	problem := market.Problem{Supply: supply}
	for _, b := range book {
		b.bid.Demand = b.bid.Ceiling
		problem.Bids = append(problem.Bids, b.bid)
	}
	return market.Clear(problem).Price
}

// TestPriceLeavesTheShare: whatever the demands, the price in force exceeds the one at which every bidder has its
// share by the price band at most, once supply, budgets and bounds have stayed for twice FallDelay: the price may
// first fall to one that sufficed before they changed.
func TestPriceLeavesTheShare(t *testing.T) {
	cfg := DefaultConfig()
	bounded, late, fits := 0, 0, 0
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		p, now, solver := price{}, epoch, new(market.Solver)
		for range 3 { // times that the market changes as a whole
			book, supply := drawBook(rng)
			share := sharePriceOf(book, supply)
			highest := share / market.Price(1-cfg.PriceBand) * (1 + 1e-9)
			load, overload := between(rng, 0.5, 4), between(rng, 0.8, 1.3)
			if rng.IntN(3) == 0 { // all demands just fit, in many seconds
				load = between(rng, 1.0, 1.15)
			}
			counted := time.Duration(0)
			for range 120 {
				var total cpu.Milli
				for i := range book {
					b := &book[i]
					b.bid.Demand = cpu.Milli(load * between(rng, 0.8, 1) * float64(supply) / float64(len(book)))
					b.limit = b.bid.Limit(p.inForce)
					b.latestDemand, b.usage = b.bid.Demand, min(b.bid.Demand, b.limit)
					b.latestThrottleRatio = rng.Float64()
					total += b.bid.Demand
				}
				now = now.Add(time.Second)
				d := NodeDecision{Supply: supply, Usage: cpu.Milli(overload * float64(supply)), UsageKnown: true}
				p = p.update(clearing{
					cfg: cfg, solver: solver, book: book, node: &d, elapsed: time.Second, demandKnown: true,
				})
				counted += time.Second
				if d.Cleared == 0 && float64(total) > (1-cfg.ReleaseBand)*float64(supply) {
					fits++
				}
				if d.Cleared*market.Price(math.Exp(p.trim)) > highest {
					bounded++
				}
				switch {
				case p.inForce <= highest:
				case counted < 2*cfg.FallDelay:
					late++
				default:
					t.Fatalf("seed %d: after %v the price is %v, and at %v every bidder has its share", seed, counted,
						float64(p.inForce), float64(share))
				}
			}
		}
	}
	if bounded < 100 || late < 100 || fits < 100 {
		t.Errorf("%d times the trimmed price was higher, %d times the price was above, %d times all demands just fitted: "+
			"this shows little", bounded, late, fits)
	}
}

// TestSharePriceIsHighest: no demand, signal or release clears at a price above the share price, so the share price
// alone bounds the price.
func TestSharePriceIsHighest(t *testing.T) {
	positive, equal, exceeded, released := 0, 0, 0, 0
	for seed := range uint64(20_000) {
		rng := rand.New(rand.NewPCG(seed, 3))
		book, supply := drawBook(rng)
		if rng.IntN(4) == 0 {
			supply = cpu.Milli(between(rng, 5, 100)) * cpu.Milli(len(book)) // floors may exceed it
		}
		load := between(rng, 0.5, 4)
		for i := range book {
			b := &book[i]
			if rng.IntN(4) == 0 {
				b.bid.Floor = 0
			}
			b.bid.Demand = cpu.Milli(load * rng.Float64() * float64(supply) / float64(len(book)))
			b.latestDemand = cpu.Milli(between(rng, 0, 2) * float64(b.bid.Demand))
			if b.managed && rng.IntN(4) == 0 {
				b.signalPercent = 100 + rng.Int32N(900)
			}
		}
		d := NodeDecision{Supply: supply}
		c := clearing{cfg: DefaultConfig(), solver: new(market.Solver), book: book, node: &d}
		problem := c.problem()
		cleared := c.clear(problem, rng.IntN(2) == 0)
		highest := sharePrice(c.solver, problem)
		if cleared > highest {
			t.Errorf("seed %d: the market clears at %v, above the share price of %v", seed, float64(cleared), float64(highest))
		}
		for n, counts := range map[*int]bool{
			&positive: cleared > 0, &equal: cleared > 0 && cleared == highest,
			&exceeded: d.FloorsExceedSupply, &released: d.Released,
		} {
			if counts {
				*n++
			}
		}
	}
	if min(positive, equal, exceeded, released) < 100 {
		t.Errorf("%d prices, of them %d as high as the share price, %d with floors above the supply, %d released: "+
			"this shows little", positive, equal, exceeded, released)
	}
}

// constantLoad is a market with constant demands and estimates, whose limits take effect at once.
type constantLoad struct {
	book             []bidder
	truth            []cpu.Milli // demands, at most the estimates
	keeps            []bool      // while uncapped, the pod keeps a limit that is as high as its demand
	supply, capacity cpu.Milli
}

// drawConstantLoad draws a price and pods that saturate, pods that rest although their estimates have not fallen,
// and pods that demand about their budget line. At the price they use the supply, but for a drawn error.
func drawConstantLoad(rng *rand.Rand, cfg Config) (constantLoad, market.Price) {
	var s constantLoad
	weights := [3]float64{0.5 * rng.Float64(), rng.Float64(), rng.Float64()}
	p := market.Price(between(rng, 0.3, 1.5))
	for i := range 2 + rng.IntN(8) {
		b := bidder{managed: true, limit: 2e6, published: 2e6, minLimit: 10, bid: market.Bid{
			Budget: market.Budget(between(rng, 2e4, 2e5)), Floor: 10, Ceiling: 2e6,
		}}
		line, truth := float64(b.bid.Limit(p)), 1.0
		switch kind := rng.Float64() * (weights[0] + weights[1] + weights[2]); {
		case i == 0 || kind < weights[0]:
			b.bid.Demand = 4e6
		case kind < weights[0]+weights[1]:
			b.bid.Demand, truth = cpu.Milli(between(rng, 0, 1)*line), between(rng, 0, 0.1)
		default:
			b.bid.Demand, truth = cpu.Milli(between(rng, 0.98, 1.1)*line), min(1, between(rng, 0.95, 1.1))
		}
		s.book, s.keeps = append(s.book, b), append(s.keeps, rng.IntN(2) == 0)
		s.truth = append(s.truth, cpu.Milli(truth*float64(b.bid.Demand)))
	}
	s.capacity = math.MaxInt64
	miss := between(rng, 0.05, 0.15) * float64(2*rng.IntN(2)-1)
	s.supply = cpu.Milli(float64(s.use(cfg, p)) / (1 + miss))
	s.capacity = cpu.Milli(between(rng, 1.12, 1.6) * float64(s.supply))
	return s, p
}

// use sets the limits at a price, and returns what the pods use.
func (s constantLoad) use(cfg Config, p market.Price) (used cpu.Milli) {
	for i := range s.book {
		b := &s.book[i]
		if b.managed {
			limit := max(b.bid.Limit(p), b.minLimit)
			if b.bound(cfg, p) == market.ByNothing {
				limit = b.bid.Ceiling
				if s.keeps[i] && b.limit >= b.bid.Demand {
					limit = b.limit
				}
			}
			b.limit, b.published = limit, limit
		}
		b.usage = min(s.truth[i], b.limit)
		used += b.usage
	}
	return min(used, s.capacity)
}

// capped says whether the price bounds some pod.
func (s constantLoad) capped(cfg Config, p market.Price) bool {
	for i := range s.book {
		if s.book[i].managed && s.book[i].bound(cfg, p) == market.ByPrice {
			return true
		}
	}
	return false
}

// withinLines is G of docs/theory.md: the true demands within the budget lines, as a part of the supply.
func (s constantLoad) withinLines(p market.Price) float64 {
	sum := cpu.Milli(0)
	for i, b := range s.book {
		sum += min(s.truth[i], b.bid.Limit(p))
	}
	return float64(sum) / float64(s.supply)
}

// extremes are the facts (a), (b) and (c) on which the proof rests, as parts of the supply, and the turns.
type extremes struct {
	afterFall     float64 // highest usage after a fall
	afterRise     float64 // least usage after the first rise that follows a fall
	afterRiseFall float64 // least G after a rise and a later fall
	turned        [10]int // markets by turns
}

// restOf runs the price until it rests, notes the extremes on the way, and returns it with the error that remains.
func (x *extremes) restOf(cfg Config, s constantLoad, at market.Price) (p price, e float64, rests bool) {
	p = price{resumed: true, inForce: at}
	now, solver, usage := epoch, new(market.Solver), s.use(cfg, at)
	rose, last, turns, within := false, 0, 0, false
	for tick := 0; !rests && tick < 1e6; tick++ { // just outside of its dead band the trim moves slowly
		now = now.Add(time.Second)
		d := NodeDecision{Supply: s.supply, Usage: usage, UsageKnown: true}
		before := p
		p = p.update(clearing{
			cfg: cfg, solver: solver, book: s.book, node: &d, elapsed: time.Second, demandKnown: true,
		})
		usage = s.use(cfg, p.inForce)
		e = float64(usage)/float64(s.supply) - 1
		rests = p.inForce == before.inForce && p.trim == before.trim && p.lowerFor == before.lowerFor
		change := cmp.Compare(p.inForce, before.inForce)
		if !within { // the theorem begins here
			target := min(d.Cleared*market.Price(math.Exp(p.trim)), sharePriceOf(s.book, s.supply))
			within = change == 0 && !differs(target, p.inForce, cfg.PriceBand)
			continue
		}
		switch {
		case change > 0 && last < 0:
			turns++
			x.afterRise = min(x.afterRise, 1+e)
		case change < 0:
			if last > 0 {
				turns++
			}
			x.afterFall = max(x.afterFall, 1+e)
			if rose {
				x.afterRiseFall = min(x.afterRiseFall, s.withinLines(p.inForce))
			}
		}
		if change != 0 {
			last, rose = change, rose || change > 0
		}
	}
	x.turned[min(turns, 9)]++
	return p, e, rests
}

// TestPriceTurnsThriceAtMost: with constant demands and estimates, and limits that take effect at once, the
// price changes its direction three times at most. It rests where usage is within the dead band of the supply,
// and elsewhere only at one of its bounds.
func TestPriceTurnsThriceAtMost(t *testing.T) {
	cfg := DefaultConfig()
	x := extremes{afterRise: math.Inf(1), afterRiseFall: math.Inf(1)}
	for seed := range uint64(atlength.Of(700, 2000)) {
		s, at := drawConstantLoad(rand.New(rand.NewPCG(seed, 2)), cfg)
		share := sharePriceOf(s.book, s.supply)
		p, e, rests := x.restOf(cfg, s, at)
		outside := math.Abs(e) - cfg.PriceBand/2
		atBound := p.trim < 1e-9-cfg.TrimLimit
		if e > 0 {
			atBound = p.trim > cfg.TrimLimit-1e-9 || p.inForce*market.Price(1+cfg.PriceBand) >= share
		}
		slow := outside > 0 && outside < 1e-5 // a band takes the trim more than three days
		if !slow && (!rests || outside > 0 && s.capped(cfg, p.inForce) && !atBound) {
			t.Errorf("seed %d: an error of %.3f remains at a price of %v with a trim of %.3f; it rests: %v", seed, e, p.inForce,
				p.trim, rests)
		}
	}
	t.Logf("%+v", x)
	if x.afterFall > 1.0883 || x.afterRise < 0.934 || x.afterRiseFall < 0.977 || slices.Max(x.turned[4:]) > 0 {
		t.Errorf("%+v: want usage of 1.0883 at most after a fall, and of 0.934 at least after the next rise, "+
			"G of 0.977 at least after a rise and a fall, and three turns at most", x)
	}
	near, turned := atlength.Of(1.06, 1.05), atlength.Of(8, 10)
	if x.afterFall < 1.08 || x.afterRise > 0.94 || x.afterRiseFall > near || x.turned[1] < turned || x.turned[2] < turned {
		t.Errorf("%+v: no market came near the bounds, which shows little", x)
	}
}

// TestCapBandMayUseTheReserve: pods that all demand a little more than their shares stay uncapped, and use what the
// reserve keeps free.
func TestCapBandMayUseTheReserve(t *testing.T) {
	usageAt := func(demand cpu.Milli) (usage cpu.Milli, decreases int) {
		var pods []*fakePod
		for _, name := range []string{"a", "b", "c", "d"} {
			pods = append(pods, &fakePod{name: name, request: 500, declared: 4000, demand: 500})
		}
		w := priceAlone(pods...)
		w.run(20)
		for _, p := range pods {
			p.demand = demand
		}
		usage = w.run(300).Node.Usage
		for _, p := range pods {
			if p.limit < p.declared {
				decreases++
			}
		}
		return usage, decreases
	}
	if usage, lowered := usageAt(980); usage != 3920 || lowered != 0 {
		t.Errorf("at 1.09 times their shares they use %v, and %d are lowered: want 0.98 of 4000m, and none", usage, lowered)
	}
	if usage, lowered := usageAt(1000); usage > 3600 || lowered != 4 {
		t.Errorf("at 1.11 times their shares they use %v, and %d are lowered: want the supply, and all", usage, lowered)
	}
}
