package round

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/market"
)

// The theorems of docs/theory.md about the shipped price: price.update is played, with all its bands.

// between is a drawn number.
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
					cfg: cfg, solver: solver, book: book, node: &d, now: now, elapsed: time.Second, demandKnown: true,
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
		t.Errorf("%d times the trim asked for more, %d times the price was above, %d times all demands just fitted: "+
			"this shows little", bounded, late, fits)
	}
}

// stillLoad is a market with constant demands and estimates, whose limits take effect at once.
type stillLoad struct {
	book             []bidder
	truth            []cpu.Milli // demands, at most the estimates
	keeps            []bool      // an uncapped pod whose limit is as high as its demand keeps it
	supply, capacity cpu.Milli
}

// drawStillLoad draws pods that saturate, pods that have come to rest although their estimates have not, and pods
// that demand about their share.
func drawStillLoad(rng *rand.Rand) stillLoad {
	s := stillLoad{supply: 7200}
	s.capacity = cpu.Milli(between(rng, 1.12, 1.6) * 7200)
	budgets, weights := 0.0, []float64{rng.Float64(), rng.Float64(), rng.Float64()}
	for range 2 + rng.IntN(8) {
		b := bidder{managed: true, limit: 8000, published: 8000, minLimit: 10, bid: market.Bid{
			Budget: market.Budget(between(rng, 200, 2000)), Floor: 10, Ceiling: 8000,
		}}
		budgets += float64(b.bid.Budget)
		s.book, s.keeps = append(s.book, b), append(s.keeps, rng.IntN(2) == 0)
	}
	for i := range s.book {
		b, truth := &s.book[i], 1.0
		share := 7200 * float64(b.bid.Budget) / budgets
		switch kind := rng.Float64() * (weights[0] + weights[1] + weights[2]); {
		case i == 0 || kind < weights[0]:
			b.bid.Demand = 16_000
		case kind < weights[0]+weights[1]:
			b.bid.Demand, truth = cpu.Milli(between(rng, 0, 1)*share), between(rng, 0, 0.1)
		default:
			b.bid.Demand, truth = cpu.Milli(between(rng, 0.7, 1.5)*share), between(rng, 0.9, 1)
		}
		s.truth = append(s.truth, cpu.Milli(truth*float64(b.bid.Demand)))
	}
	return s
}

// play sets the limits at a price, and returns what the pods use.
func (s stillLoad) play(cfg Config, p market.Price) (used cpu.Milli) {
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
func (s stillLoad) capped(cfg Config, p market.Price) bool {
	for i := range s.book {
		if s.book[i].managed && s.book[i].bound(cfg, p) == market.ByPrice {
			return true
		}
	}
	return false
}

// TestPriceTurnsThriceAtMost: with constant demands and estimates, and limits that take effect at once, the
// price changes its direction three times at most. It rests where usage is within the dead band of the supply,
// and elsewhere only at one of its bounds.
func TestPriceTurnsThriceAtMost(t *testing.T) {
	cfg := DefaultConfig()
	var turned [10]int
	for seed := range uint64(1000) {
		rng := rand.New(rand.NewPCG(seed, 2))
		s := drawStillLoad(rng)
		share := sharePriceOf(s.book, s.supply)
		p := price{resumed: true, inForce: share * market.Price(between(rng, 0.4, 1.1))}
		now, solver := epoch, new(market.Solver)
		turns, rose, fell, rests, e := 0, false, false, false, 0.0
		for tick := 0; !rests && tick < 1e6; tick++ { // just outside of its dead band the trim moves slowly
			now = now.Add(time.Second)
			d := NodeDecision{Supply: s.supply, Usage: s.play(cfg, p.inForce), UsageKnown: true}
			e = float64(d.Usage)/float64(s.supply) - 1
			before := p
			p = p.update(clearing{
				cfg: cfg, solver: solver, book: s.book, node: &d, now: now, elapsed: time.Second, demandKnown: true,
			})
			if rises, falls := p.inForce > before.inForce, p.inForce < before.inForce; rises || falls {
				if rises && fell || falls && rose {
					turns++
				}
				rose, fell = rises, falls
			}
			rests = p.inForce == before.inForce && p.trim == before.trim && p.lowerFor == before.lowerFor
		}
		turned[min(turns, 9)]++
		if turns > 3 {
			t.Errorf("seed %d: the price turned %d times", seed, turns)
		}
		atBound := p.trim < 1e-9-cfg.TrimLimit
		if e > 0 {
			atBound = p.trim > cfg.TrimLimit-1e-9 || p.inForce*market.Price(1+cfg.PriceBand) >= share
		}
		if !rests || math.Abs(e) > cfg.PriceBand/2 && s.capped(cfg, p.inForce) && !atBound {
			t.Errorf("seed %d: an error of %.3f remains at a price of %v with a trim of %.3f; it rests: %v", seed, e, p.inForce,
				p.trim, rests)
		}
	}
	t.Logf("markets by turns of the price: %v", turned)
	if turned[1]+turned[2]+turned[3] < 5 {
		t.Errorf("markets by turns of the price: %v: too few turns show little", turned)
	}
}

// TestCapBandMayUseTheReserve: pods that all demand a little more than their shares stay uncapped, and use what the
// reserve keeps free.
func TestCapBandMayUseTheReserve(t *testing.T) {
	play := func(demand cpu.Milli) (usage cpu.Milli, decreases int) {
		var pods []*fakePod
		for _, name := range []string{"a", "b", "c", "d"} {
			pods = append(pods, &fakePod{name: name, request: 500, declared: 4000, demand: 500})
		}
		w := newWorld(pods...)
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
	if usage, lowered := play(980); usage != 3920 || lowered != 0 {
		t.Errorf("at 1.09 times their shares they use %v, and %d are lowered: want 0.98 of 4000m, and none", usage, lowered)
	}
	if usage, lowered := play(1000); usage > 3600 || lowered != 4 {
		t.Errorf("at 1.11 times their shares they use %v, and %d are lowered: want the supply, and all", usage, lowered)
	}
}
