package market

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/testing/must"
)

// problems draws markets of every temper: idle, scarce, with floors above the supply,
// with equal breakpoints, with no bids.
func problems(t *rapid.T) Problem {
	small := rapid.Bool().Draw(t, "small") // small numbers make ties
	amount, budget := int64(64_000), int64(100_000)
	if small {
		amount, budget = 12, 6
	}
	bids := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Bid {
		floor := rapid.Int64Range(0, amount/4).Draw(t, "floor")
		return Bid{
			Budget:  Budget(rapid.Int64Range(0, budget).Draw(t, "budget")),
			Demand:  cpu.Milli(rapid.Int64Range(0, amount).Draw(t, "demand")),
			Floor:   cpu.Milli(floor),
			Ceiling: cpu.Milli(rapid.Int64Range(floor, amount).Draw(t, "ceiling")),
		}
	}), 0, 30).Draw(t, "bids")
	return Problem{Supply: cpu.Milli(rapid.Int64Range(0, 4*amount).Draw(t, "supply")), Bids: bids}
}

func usage(p Problem, r Result) (sum cpu.Milli) {
	for _, b := range p.Bids {
		sum += b.Usage(r.Price)
	}
	return sum
}

func TestFeasible(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := problems(t)
		r := Clear(p)
		must.Succeed(t, Certify(p, r))
		if got := usage(p, r); !r.FloorsExceedSupply && got > p.Supply {
			t.Fatalf("usage %v of a supply of %v at price %g", got, p.Supply, float64(r.Price))
		}
	})
}

func TestBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := problems(t)
		r := Clear(p)
		for i, b := range p.Bids {
			l := b.Limit(r.Price)
			if l < b.Floor || l > b.Ceiling {
				t.Fatalf("bid %d: limit %v outside [%v, %v]", i, l, b.Floor, b.Ceiling)
			}
			if r.FloorsExceedSupply && l != b.Floor {
				t.Fatalf("bid %d: floors exceed supply, limit is %v and not the floor %v", i, l, b.Floor)
			}
		}
	})
}

// TestWorkConserving: no bidder demands what is left, so none gets more unless another gets less (theorem 5).
func TestWorkConserving(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := problems(t)
		r := Clear(p)
		left := p.Supply - usage(p, r)
		if left <= cpu.Milli(len(p.Bids)) { // each usage is rounded down by less than 1m
			return
		}
		for i, b := range p.Bids {
			if got, want := b.Usage(r.Price), min(b.Demand, b.Ceiling); got < want {
				t.Fatalf("bid %d has %v of %v while %v are left", i, got, want, left)
			}
		}
	})
}

// TestSharingIncentive: bidders bound by their floors are served first; all others have their share of the rest.
func TestSharingIncentive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := problems(t)
		r := Clear(p)
		if r.FloorsExceedSupply {
			return
		}
		rest, budgets := p.Supply, Budget(0)
		atFloor := make([]bool, len(p.Bids))
		for i, b := range p.Bids {
			least := min(b.Demand, b.Floor)
			if atFloor[i] = float64(least)*float64(r.Price) > float64(b.Budget.positive()); atFloor[i] {
				rest -= least
			} else {
				budgets += b.Budget.positive()
			}
		}
		for i, b := range p.Bids {
			if atFloor[i] {
				continue
			}
			share := cpu.Milli(float64(rest) * float64(b.Budget.positive()) / float64(budgets))
			if got, want := b.Usage(r.Price), min(b.Demand, b.Ceiling, share); got < want-1 {
				t.Fatalf("bid %d uses %v, its share and demand are %v", i, got, want)
			}
		}
	})
}

func TestNoGainFromLying(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := problems(t)
		if len(p.Bids) == 0 {
			return
		}
		i := rapid.IntRange(0, len(p.Bids)-1).Draw(t, "liar")
		honest := p.Bids[i].Demand
		before := p.Bids[i].Usage(Clear(p).Price)
		p.Bids[i].Demand += cpu.Milli(rapid.Int64Range(0, 64_000).Draw(t, "lie"))
		after := min(honest, p.Bids[i].Limit(Clear(p).Price))
		if after > before+1 {
			t.Fatalf("claiming %v for %v raised its usage from %v to %v", p.Bids[i].Demand, honest, before, after)
		}
	})
}

func TestOrderFree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := problems(t)
		q := Problem{Supply: p.Supply, Bids: rapid.Permutation(p.Bids).Draw(t, "order")}
		if a, b := Clear(p), Clear(q); a != b {
			t.Fatalf("the order of bids changed %+v to %+v", a, b)
		}
	})
}

func TestMonotone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := problems(t)
		before := Clear(p)
		p.Supply += cpu.Milli(rapid.Int64Range(0, 64_000).Draw(t, "more"))
		after := Clear(p)
		for i, b := range p.Bids {
			if b.Limit(after.Price) < b.Limit(before.Price) {
				t.Fatalf("bid %d: more supply lowered its limit from %v to %v", i, b.Limit(before.Price), b.Limit(after.Price))
			}
		}
	})
}

// oracle is the slow obvious solver: it evaluates expected usage at every price where a bidder's
// behaviour changes, in exact fractions, and solves the one segment where usage crosses the
// supply. It needs neither sorting tricks nor running sums. The price is the lowest that clears, and
// nil where none does.
func oracle(p Problem) (price *big.Rat, floorsExceed bool) {
	rat := func(n int64) *big.Rat { return new(big.Rat).SetInt64(n) }
	supply := rat(int64(p.Supply))
	useAt := func(price *big.Rat) *big.Rat {
		sum := new(big.Rat)
		for _, b := range p.Bids {
			x := rat(int64(min(b.Demand, b.Ceiling)))
			if price.Sign() > 0 {
				if bought := new(big.Rat).Quo(rat(int64(b.Budget.positive())), price); bought.Cmp(x) < 0 {
					x = bought
				}
				if low := rat(int64(min(b.Demand, b.Floor))); x.Cmp(low) < 0 {
					x = low
				}
			}
			sum.Add(sum, x)
		}
		return sum
	}
	if useAt(new(big.Rat)).Cmp(supply) <= 0 {
		return new(big.Rat), false
	}
	floors := cpu.Milli(0)
	for _, b := range p.Bids {
		floors += min(b.Demand, b.Floor)
	}
	if floors > p.Supply {
		return nil, true
	}
	var turns []*big.Rat
	for _, b := range p.Bids {
		for _, x := range []cpu.Milli{min(b.Demand, b.Floor), min(b.Demand, b.Ceiling)} {
			if x > 0 {
				turns = append(turns, new(big.Rat).Quo(rat(int64(b.Budget.positive())), rat(int64(x))))
			}
		}
	}
	slices.SortFunc(turns, (*big.Rat).Cmp)
	last := turns[0]
	for _, t := range turns {
		if useAt(t).Cmp(supply) <= 0 {
			break
		}
		last = t
	}
	// Just above last, usage is F + W/price.
	fixed, spent := new(big.Rat), new(big.Rat)
	for _, b := range p.Bids {
		w := rat(int64(b.Budget.positive()))
		low, top := rat(int64(min(b.Demand, b.Floor))), rat(int64(min(b.Demand, b.Ceiling)))
		bought := new(big.Rat).Quo(w, last)
		switch {
		case bought.Cmp(top) > 0 || top.Cmp(low) == 0:
			fixed.Add(fixed, top)
		case bought.Cmp(low) <= 0:
			fixed.Add(fixed, low)
		default:
			spent.Add(spent, w)
		}
	}
	left := new(big.Rat).Sub(supply, fixed)
	if left.Sign() == 0 { // floors use just the supply, and some bidder has none
		return nil, false
	}
	return new(big.Rat).Quo(spent, left), false
}

func agree(p Problem) error {
	r := Clear(p)
	want, exceed := oracle(p)
	if r.FloorsExceedSupply != exceed {
		return fmt.Errorf("floors exceed supply: %v, oracle %v", r.FloorsExceedSupply, exceed)
	}
	if none := want == nil; none != (r.Price == MaxPrice) {
		return fmt.Errorf("price %g, but the oracle finds none: %v", float64(r.Price), none)
	}
	if want == nil {
		return Certify(p, r)
	}
	exact, _ := want.Float64()
	if diff := float64(r.Price) - exact; max(diff, -diff) > 1e-9*exact {
		return fmt.Errorf("price %g, oracle %g", float64(r.Price), exact)
	}
	return Certify(p, r)
}

func TestAgreesWithOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		must.Succeed(t, agree(problems(t)))
	})
}

// TestFloorsUseTheSupply: where floors use just the supply, the price is the lowest at which they do. Where
// some bidder without a floor could use more there is none.
func TestFloorsUseTheSupply(t *testing.T) {
	at := func(supply cpu.Milli, bids ...Bid) Result { return Clear(Problem{Supply: supply, Bids: bids}) }
	a := Bid{Budget: 300, Demand: 900, Floor: 100, Ceiling: 1000}
	b := Bid{Budget: 100, Demand: 900, Floor: 200, Ceiling: 1000}
	if got := at(300, a, b); got.Price != 3 || got.FloorsExceedSupply {
		t.Errorf("%+v: want the price of 3, at which a budget of 300 buys its floor of 100m", got)
	}
	c := Bid{Budget: 100, Demand: 900, Ceiling: 1000}
	if got := at(300, a, b, c); got.Price != MaxPrice || got.FloorsExceedSupply {
		t.Errorf("%+v beside a bidder without a floor: want MaxPrice, as no budget may buy anything", got)
	}
	if got := at(299, a, b); got.Price != MaxPrice || !got.FloorsExceedSupply {
		t.Errorf("%+v with less supply: want MaxPrice, and floors that exceed the supply", got)
	}
}

func TestFloorsUseTheSupplyOfAnyMarket(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := problems(t)
		p.Supply = 0
		for _, b := range p.Bids {
			p.Supply += min(b.Demand, b.Floor)
		}
		must.Succeed(t, agree(p))
	})
}

func TestBoundNamesTheCause(t *testing.T) {
	bid := Bid{Budget: 100, Demand: 500, Floor: 50, Ceiling: 400}
	for price, want := range map[Price]Bound{0: ByCeiling, 0.1: ByCeiling, 0.5: ByPrice, 10: ByFloor} {
		if got := bid.Bound(price); got != want {
			t.Errorf("at price %v: bound by %v, want %v", price, got, want)
		}
	}
	bid.Demand = 10
	if got := bid.Bound(10); got != ByNothing {
		t.Errorf("small demand: bound by %v, want Nothing", got)
	}
}

func TestValidateReportsEverything(t *testing.T) {
	err := Problem{Supply: -1, Bids: []Bid{{Budget: -1, Demand: -1, Floor: 2, Ceiling: 1}}}.Validate()
	if err == nil || len(err.(interface{ Unwrap() []error }).Unwrap()) != 4 {
		t.Errorf("Validate = %v, want four complaints", err)
	}
}

func TestCertifyRefusesWrongPrices(t *testing.T) {
	p := Problem{Supply: 1000, Bids: []Bid{{100, 900, 10, 2000}, {100, 900, 10, 2000}}}
	right := Clear(p)
	must.Succeed(t, Certify(p, right))
	for _, wrong := range []Result{{}, {Price: right.Price * 1.01}, {Price: right.Price / 1.01}, {Price: MaxPrice, FloorsExceedSupply: true}, {Price: -1}} {
		if Certify(p, wrong) == nil {
			t.Errorf("%+v was certified", wrong)
		}
	}
}

// scarceMarket is one in which most bidders differ in everything.
func scarceMarket(n int) Problem {
	r := rand.New(rand.NewPCG(1, 2))
	p := Problem{Supply: cpu.Milli(n) * 100}
	for range n {
		floor := cpu.Milli(10 + r.Int64N(90))
		p.Bids = append(p.Bids,
			Bid{Budget(10 + r.Int64N(1000)), cpu.Milli(r.Int64N(1000)), floor, floor + cpu.Milli(r.Int64N(16000))})
	}
	return p
}

// TestClearAllocatesNothing: once a solver has seen a market of that size.
func TestClearAllocatesNothing(t *testing.T) {
	p := scarceMarket(1000)
	var s Solver
	s.Clear(p)
	if n := testing.AllocsPerRun(10, func() { s.Clear(p) }); n != 0 {
		t.Errorf("a clearing allocates %v times", n)
	}
}

func BenchmarkClear(b *testing.B) {
	for _, n := range []int{110, 1000, 10_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			p := scarceMarket(n)
			var s Solver
			s.Clear(p)
			b.ReportAllocs()
			for b.Loop() {
				s.Clear(p)
			}
		})
	}
}

func FuzzClear(f *testing.F) {
	f.Add(int64(1000), []byte{1, 2, 3, 4, 5, 6, 7, 8})
	f.Add(int64(0), []byte{})
	f.Fuzz(func(t *testing.T, supply int64, raw []byte) {
		p := Problem{Supply: cpu.Milli(supply)}
		for ; len(raw) >= 4 && len(p.Bids) < 40; raw = raw[4:] {
			p.Bids = append(p.Bids, Bid{Budget(raw[0]), cpu.Milli(raw[1]), cpu.Milli(raw[2]), cpu.Milli(raw[3])})
		}
		if p.Validate() != nil {
			return
		}
		must.Succeed(t, agree(p))
	})
}
