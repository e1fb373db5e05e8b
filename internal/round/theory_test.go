package round

import (
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
