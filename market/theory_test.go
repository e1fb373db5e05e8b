package market

import (
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/testing/atlength"
)

// The theorems of docs/theory.md about one clearing. Limits are whole thousandths of a core, so
// each comparison leaves one for rounding.

// Two prices that clear the same market give every bidder the same usage. Drawn are markets that many
// prices clear: some bids have all that they want below a price of 2, the others are at their
// floors above a price of 0.5.
func TestUseIsUnique(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p Problem
		for range rapid.IntRange(1, 8).Draw(t, "have all") {
			d := rapid.Int64Range(1, 8000).Draw(t, "demand")
			p.Bids = append(p.Bids, Bid{Budget: Budget(2*d + 2), Demand: cpu.Milli(d), Ceiling: 64_000})
		}
		for range rapid.IntRange(1, 8).Draw(t, "at their floors") {
			f := rapid.Int64Range(10, 8000).Draw(t, "floor")
			p.Bids = append(p.Bids, Bid{Budget: Budget(f / 2), Demand: cpu.Milli(f + 100), Floor: cpu.Milli(f), Ceiling: 64_000})
		}
		other := Price(rapid.Float64Range(0.51, 1.99).Draw(t, "other price"))
		for _, b := range p.Bids {
			p.Supply += b.Usage(other)
		}
		r := Clear(p)
		for _, price := range []Price{r.Price, other} {
			if err := Certify(p, Result{Price: price}); err != nil {
				t.Fatalf("price %g does not clear: %v", float64(price), err)
			}
		}
		for i, b := range p.Bids {
			if a, o := b.Usage(r.Price), b.Usage(other); a != o {
				t.Fatalf("bid %d uses %v at price %g and %v at price %g, and both clear", i, a, float64(r.Price), o, float64(other))
			}
		}
	})
}

// lessPerBudget says whether a of budget v is less than b of budget w, by more than rounding.
func lessPerBudget(a cpu.Milli, v Budget, b cpu.Milli, w Budget) bool {
	return int64(a+1)*int64(w.positive()) < int64(b)*int64(v.positive())
}

// A bidder that gets less per budget than another gets its whole demand, or is at its ceiling, or the
// other one is at its floor.
func TestWeightedMaxMinFair(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := problems(t)
		r := Clear(p)
		for i, a := range p.Bids {
			got := a.Usage(r.Price)
			if got >= min(a.Demand, a.Ceiling) {
				continue
			}
			for j, b := range p.Bids {
				if have := b.Usage(r.Price); have > b.Floor && lessPerBudget(got, a.Budget, have, b.Budget) {
					t.Fatalf("bid %d has %v of budget %d while bid %d has %v of budget %d", i, got, a.Budget, j, have, b.Budget)
				}
			}
		}
	})
}

// No bidder prefers the usage of another, scaled to its own budget.
func TestEnvyFree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := problems(t)
		for i := range p.Bids {
			p.Bids[i].Floor, p.Bids[i].Ceiling = 0, 64_000 // floors and ceilings are the operator's wish, not the market's
		}
		r := Clear(p)
		for i, a := range p.Bids {
			got := a.Usage(r.Price)
			for j, b := range p.Bids {
				if got < a.Demand && lessPerBudget(got, a.Budget, b.Usage(r.Price), b.Budget) {
					t.Fatalf("bid %d has %v and envies bid %d its %v", i, got, j, b.Usage(r.Price))
				}
			}
		}
	})
}

// To claim less than one wants can pay, for as long as one is believed: the example of
// docs/theory.md.
func TestUnderClaimingPaysUntilItIsSeen(t *testing.T) {
	p := Problem{
		Supply: 2000,
		Bids:   []Bid{{Budget: 1000, Demand: 2000, Ceiling: 4000}, {Budget: 1000, Demand: 2000, Ceiling: 4000}},
	}
	honest := p.Bids[0].Usage(Clear(p).Price)
	p.Bids[0].Demand = 500
	lied := p.Bids[0]
	lied.Demand = 2000
	if got := lied.Usage(Clear(p).Price); honest != 1000 || got != 1500 {
		t.Errorf("honest %v, and %v after claiming a quarter: want 1000m and 1500m", honest, got)
	}
	// Its usage is measured and becomes its demand: the result is as before.
	p.Bids[0].Demand = 1500
	if got := lied.Usage(Clear(p).Price); got != 1000 {
		t.Errorf("%v once its usage is measured, want 1000m as with the true demand", got)
	}
}

// Many small pods get together what one large one would get, give or take rounding.
func TestSplittingGainsNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := problems(t)
		for i := range p.Bids {
			p.Bids[i].Floor = 0
		}
		parts := rapid.Int64Range(2, 20).Draw(t, "parts")
		budget := Budget(parts * rapid.Int64Range(1, 1000).Draw(t, "budget of a part"))
		demand := cpu.Milli(parts * rapid.Int64Range(0, 1000).Draw(t, "demand of a part"))
		one := Bid{Budget: budget, Demand: demand, Ceiling: 64_000}
		whole := Problem{Supply: p.Supply, Bids: append([]Bid{one}, p.Bids...)}
		many := Problem{Supply: p.Supply, Bids: p.Bids}
		part := Bid{Budget: budget / Budget(parts), Demand: demand / cpu.Milli(parts), Ceiling: 64_000}
		for range parts {
			many.Bids = append(many.Bids, part)
		}
		together := part.Usage(Clear(many).Price) * cpu.Milli(parts)
		alone := one.Usage(Clear(whole).Price)
		if most := cpu.Milli(parts); together > alone+most || alone > together+most {
			t.Fatalf("one pod of budget %d uses %v, and %d pods of the same budget together use %v", budget, alone, parts,
				together)
		}
	})
}

// Five thousand markets against the oracle, with MBCAS_LONG=1 a hundred thousand, and what becomes
// of them in whole quanta.
func TestAgreesWithOracleAtLength(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for k := range atlength.Of(5000, 100_000) {
		p := Problem{Supply: cpu.Milli(rng.Int64N(8000))}
		for range rng.IntN(6) {
			floor := cpu.Milli(rng.Int64N(60)) * cpu.Quantum
			p.Bids = append(p.Bids, Bid{
				Budget: Budget(rng.Int64N(4000)), Demand: cpu.Milli(rng.Int64N(8000)),
				Floor: floor, Ceiling: floor + cpu.Milli(rng.Int64N(400))*cpu.Quantum,
			})
		}
		if err := agree(p); err != nil {
			t.Fatalf("market %d, %+v: %v", k, p, err)
		}
		r := Clear(p)
		var used cpu.Milli
		for i, b := range p.Bids {
			limit := b.Limit(r.Price).RoundDown(cpu.Quantum)
			if limit < b.Floor || limit > b.Ceiling {
				t.Fatalf("market %d: bid %d has %v in whole quanta, outside of %v to %v", k, i, limit, b.Floor, b.Ceiling)
			}
			used += min(b.Demand, limit)
		}
		if used > p.Supply && !r.FloorsExceedSupply {
			t.Fatalf("market %d uses %v of %v in whole quanta", k, used, p.Supply)
		}
	}
}
