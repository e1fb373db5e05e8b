package round

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/market"
)

// The theorems of docs/theory.md about the price over time.

// TestTrimDescends: with constant demands, a constant cleared price and limits that take effect at
// once, the trim brings the error between usage and supply into its dead band, and never past it.
func TestTrimDescends(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := DefaultConfig()
		const supply = 8000
		cleared := market.Price(rapid.Float64Range(0.05, 5).Draw(t, "cleared price"))
		demands := rapid.SliceOfN(rapid.Int64Range(10, 8000), 1, 12).Draw(t, "true demands")
		book := make([]bidder, len(demands))
		for i := range book {
			// The estimates exceed the supply; the true demands are lower.
			book[i] = bidder{managed: true, bid: market.Bid{
				Budget: market.Budget(rapid.Int64Range(10, 4000).Draw(t, "budget")), Demand: 1_000_000, Ceiling: 500_000,
			}}
		}
		p := price{inForce: cleared}
		var before float64
		for k := range 3000 {
			var used cpu.Milli
			for i := range book {
				book[i].limit = book[i].bid.Limit(p.inForce)
				used += min(cpu.Milli(demands[i]), book[i].limit)
			}
			e := float64(used-supply) / supply
			band := cfg.PriceBand/2 + 0.01 // limits are whole thousandths
			if k > 0 && math.Abs(e) > math.Abs(before)+1e-3 {
				t.Fatalf("tick %d: the error grew from %.4f to %.4f", k, before, e)
			}
			if k > 0 && e*before < 0 && math.Abs(e) > band {
				t.Fatalf("tick %d: the error changed its sign from %.4f to %.4f", k, before, e)
			}
			before = e
			p.trim = p.updateTrim(clearing{
				cfg: cfg, book: book, node: &NodeDecision{Usage: used, Supply: supply}, elapsed: time.Second,
			})
			p.inForce = cleared * market.Price(math.Exp(p.trim))
		}
		if math.Abs(p.trim) < cfg.TrimLimit-1e-9 && math.Abs(before) > cfg.PriceBand/2+0.01 {
			t.Fatalf("an error of %.4f remains with the trim at %.3f", before, p.trim)
		}
	})
}

// delayed is the largest error of the last tenth of a long run of theta' = theta - k * theta, seen
// tau ticks late.
func delayed(k float64, tau int) (worst float64) {
	const ticks = 40_000
	theta := make([]float64, ticks)
	for t := range tau + 1 {
		theta[t] = 1
	}
	for t := tau; t+1 < ticks; t++ {
		theta[t+1] = theta[t] - k*theta[t-tau]
		if math.Abs(theta[t+1]) > 1e12 {
			return math.Inf(1)
		}
	}
	for _, x := range theta[ticks*9/10:] {
		worst = max(worst, math.Abs(x))
	}
	return worst
}

// TestDelayBound: below the bound on the gain the error decays, above it the error grows.
func TestDelayBound(t *testing.T) {
	bound := func(tau int) float64 { return 2 * math.Sin(math.Pi/(2*float64(2*tau+1))) }
	for tau := range 31 {
		t.Run(fmt.Sprint(tau), func(t *testing.T) {
			if got := delayed(0.97*bound(tau), tau); got > 0.01 {
				t.Errorf("3 %% below the bound an error of %g remains", got)
			}
			if got := delayed(1.03*bound(tau), tau); got < 100 {
				t.Errorf("3 %% above the bound the error is %g: want it to grow", got)
			}
		})
	}
}
