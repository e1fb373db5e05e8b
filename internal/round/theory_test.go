package round

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/market"
)

// The theorems of docs/theory.md about the shipped price: the tests run price.moved, with all its bands.

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
	late, fits := 0, 0
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
				p = p.moved(clearing{
					cfg: cfg, solver: solver, book: book, node: &d, elapsed: time.Second, demandKnown: true,
				})
				counted += time.Second
				if d.Cleared == 0 && float64(total) > (1-cfg.ReleaseBand)*float64(supply) {
					fits++
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
	if late < 100 || fits < 100 {
		t.Errorf("%d times the price was above, %d times all demands just fitted: this shows little", late, fits)
	}
}

// TestSharePriceIsHighest: no demand, signal or release clears at a price above the share price.
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

// TestCapBandMayUseTheReserve: a pod that demands less than 0.3 above its share stays uncapped, and uses what the reserve
// keeps free.
func TestCapBandMayUseTheReserve(t *testing.T) {
	usageAt := func(demand cpu.Milli) (usage cpu.Milli, decreases int) {
		var pods []*fakePod
		for _, name := range []string{"a", "b", "c", "d"} {
			pods = append(pods, &fakePod{name: name, request: 500, declared: 4000, demand: 500})
		}
		w := priceAlone(pods...)
		w.run(20)
		for _, p := range pods {
			p.demand = 900
		}
		pods[0].demand = demand
		usage = w.run(300).Node.Usage
		for _, p := range pods {
			if p.limit < p.declared {
				decreases++
			}
		}
		return usage, decreases
	}
	if usage, lowered := usageAt(1150); usage != 3850 || lowered != 0 {
		t.Errorf("one at 1.28 times its share: they use %v, and %d are lowered: want 0.96 of 4000m, and none", usage, lowered)
	}
	if usage, lowered := usageAt(1400); usage > 3690 || lowered != 1 {
		t.Errorf("one at 1.56 times its share: they use %v, and %d are lowered: want the supply and a dead band of 90m at most, and it", usage, lowered)
	}
}
