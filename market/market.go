// Package market clears the CPU of one node: from bids it computes one price, and a CPU limit for
// each bid. It is pure.
//
// CPU of a node is one divisible good. Each bidder i has a budget w, a demand d and a floor f and
// ceiling c for its limit; the supply is S. The expected usage x maximises the sum of w log x (Nash
// social welfare of a Fisher market with satiable buyers; Eisenberg and Gale 1959) subject to x <=
// d and the sum of x being at most S. The optimum has one price p with x = min(d, w/p). What the
// budget of a bidder buys at that price is not x but its budget line,
//
//	limit = clamp(w/p, f, c)        (p = 0: limit = c)
//
// so a bidder that demands less than its share is not capped at its demand (Bid.Bound says which
// are capped). With floors and ceilings p is the price at which expected usage equals supply:
//
//	sum of min(d, clamp(w/p, f, c)) = S
//
// For a single good this is also weighted max-min fairness.
//
// What the package promises, each a property test of the same name:
//   - Feasible: expected usage never exceeds the supply, unless usage within the floors does.
//   - Bounded: no limit lies outside its bid's floor and ceiling.
//   - WorkConserving: while supply is left, no limit is below min(demand, ceiling).
//   - SharingIncentive: no limit is below the demand, or the budget's share of the supply that
//     bidders at their floors leave.
//   - NoGainFromLying: a higher claimed demand never raises min(limit, true demand).
//   - OrderFree: permuted bids get permuted limits.
//   - Monotone: more supply lowers no limit.
//   - AgreesWithOracle: a slow obvious solver finds the same price.
package market

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"github.com/mbcas/mbcas/cpu"
)

// Budget is the weight of a bidder. A CPU request of one core with priority multiplier 1 is 1000.
type Budget int64

// Bid is that of one bidder.
type Bid struct {
	Budget  Budget    // 0 counts as 1, so that every bidder can buy something
	Demand  cpu.Milli // mean usage with no limit
	Floor   cpu.Milli // lowest limit
	Ceiling cpu.Milli // highest limit
}

// Problem is one clearing.
type Problem struct {
	Supply cpu.Milli
	Bids   []Bid
}

// Bound is what bounds a limit.
type Bound uint8

const (
	ByNothing Bound = iota // demand fits below the limit
	ByPrice                // the budget buys less than the demand
	ByFloor                // the budget buys less than the floor, and the demand is above it
	ByCeiling              // the budget buys more than the ceiling, and the demand is above it
)

var boundNames = [...]string{ByNothing: "Nothing", ByPrice: "Price", ByFloor: "Floor", ByCeiling: "Ceiling"}

func (b Bound) String() string {
	if int(b) >= len(boundNames) {
		return fmt.Sprintf("Bound(%d)", uint8(b))
	}
	return boundNames[b]
}

// Result is a cleared market.
type Result struct {
	Price Price
	// FloorsExceedSupply: usage within the floors exceeds the supply. The price is then MaxPrice and
	// every limit is its floor. (Where it equals the supply and some bidder without a floor demands
	// more, no price clears either, and the price is MaxPrice too.)
	FloorsExceedSupply bool
}

// Validate returns every fault, joined.
func (p Problem) Validate() error {
	var errs []error
	if p.Supply < 0 || p.Supply > maxAmount {
		errs = append(errs, fmt.Errorf("supply %v: want 0m to %v", p.Supply, maxAmount))
	}
	for i, b := range p.Bids {
		if b.Budget < 0 || b.Budget > maxBudget {
			errs = append(errs, fmt.Errorf("bid %d: budget %d: want 0 to %d", i, b.Budget, maxBudget))
		}
		if b.Demand < 0 || b.Demand > maxAmount {
			errs = append(errs, fmt.Errorf("bid %d: demand %v: want 0m to %v", i, b.Demand, maxAmount))
		}
		if b.Floor < 0 || b.Ceiling < b.Floor || b.Ceiling > maxAmount {
			errs = append(errs, fmt.Errorf("bid %d: floor %v and ceiling %v: want 0m <= floor <= ceiling <= %v",
				i, b.Floor, b.Ceiling, maxAmount))
		}
	}
	return errors.Join(errs...)
}

// Amounts and budgets are bounded, so that products of two fit into 64 bits and sums over a million
// bids are exact.
const (
	maxAmount = 1_000_000 * cpu.Core
	maxBudget = Budget(1_000_000_000)
)

// Solver clears markets. It keeps its scratch space, so clearing again allocates nothing. The zero
// value is ready for use, by one goroutine at a time.
type Solver struct{ breakpoints []breakpoint }

// breakpoint is a price, budget/usage, at which the price begins to cap a bidder or, with atFloor,
// ceases to because the bidder is at its floor.
type breakpoint struct {
	budget  Budget
	usage   cpu.Milli
	atFloor bool
}

// lowerPriced compares the prices of two breakpoints exactly.
func (a breakpoint) lowerPriced(b breakpoint) bool {
	return int64(a.budget)*int64(b.usage) < int64(b.budget)*int64(a.usage)
}

// segment is the expected usage between two neighbouring breakpoints: constant + budgets/price.
// Both are whole numbers, so the order of the bids cannot change the result.
type segment struct {
	constant cpu.Milli
	budgets  Budget
}

// past is the segment at the prices above t.
func (s segment) past(t breakpoint) segment {
	if t.atFloor {
		return segment{s.constant + t.usage, s.budgets - t.budget}
	}
	return segment{s.constant - t.usage, s.budgets + t.budget}
}

// exceeds says whether usage at the price of t exceeds the supply:
// budgets * t.usage / t.budget > supply - constant, in exact 128-bit products.
func (s segment) exceeds(supply cpu.Milli, t breakpoint) bool {
	left := supply - s.constant
	if left < 0 {
		return true
	}
	h1, l1 := bits.Mul64(uint64(s.budgets), uint64(t.usage))
	h2, l2 := bits.Mul64(uint64(left), uint64(t.budget))
	return h1 > h2 || h1 == h2 && l1 > l2
}

// Clear finds the lowest price that clears. It is a pure function of the problem, which must be valid
// (see Problem.Validate): same problem, same price.
//
// As the price rises from 0, the usage of each bidder is first min(d, c), then w/p, then min(d, f).
// Clear finds the segment between two neighbouring breakpoints where usage equals the supply, by
// halving the breakpoints around a pivot (breakpoint search; Kiwiel 2008, Math. Program. 112,
// section 3). Cost grows as n; as n log n when the pivots are unlucky.
func (s *Solver) Clear(p Problem) Result {
	s.breakpoints = s.breakpoints[:0]
	var lowest segment // at the lowest prices, where no bidder is capped
	var floors cpu.Milli
	for _, b := range p.Bids {
		w, low, top := b.Budget.positive(), min(b.Demand, b.Floor), min(b.Demand, b.Ceiling)
		lowest.constant += top
		floors += low
		if low == top {
			continue
		}
		s.breakpoints = append(s.breakpoints, breakpoint{w, top, false})
		if low > 0 {
			s.breakpoints = append(s.breakpoints, breakpoint{w, low, true})
		}
	}
	if lowest.constant <= p.Supply {
		return Result{}
	}
	if floors > p.Supply {
		return Result{Price: MaxPrice, FloorsExceedSupply: true}
	}
	at := crossingSegment(lowest, s.breakpoints, p.Supply)
	return Result{Price: min(MaxPrice, Price(float64(at.budgets)/float64(p.Supply-at.constant)))}
}

// crossingSegment is the segment in which usage equals the supply. All breakpoints are at prices
// above s.
func crossingSegment(s segment, turns []breakpoint, supply cpu.Milli) segment {
	for tries := 2 * bits.Len(uint(len(turns))); len(turns) > 0; tries-- {
		if tries == 0 { // the pivots are unlucky: from here each halves what is left
			slices.SortFunc(turns, func(a, b breakpoint) int {
				return cmp.Compare(int64(a.budget)*int64(b.usage), int64(b.budget)*int64(a.usage))
			})
		}
		pivot := turns[len(turns)/2]
		if tries > 0 {
			pivot = median(turns[0], pivot, turns[len(turns)-1])
		}
		// Breakpoints up to the pivot are moved to the front, those at its own price behind the others.
		beyond, under := s, 0
		same := 0
		for i, t := range turns {
			if pivot.lowerPriced(t) {
				continue
			}
			beyond = beyond.past(t)
			turns[i], turns[same] = turns[same], t
			if t.lowerPriced(pivot) {
				turns[same], turns[under] = turns[under], t
				under++
			}
			same++
		}
		if beyond.exceeds(supply, pivot) {
			s, turns = beyond, turns[same:]
		} else {
			turns = turns[:under]
		}
	}
	return s
}

// median is the median of three by price.
func median(a, b, c breakpoint) breakpoint {
	if b.lowerPriced(a) {
		a, b = b, a
	}
	if c.lowerPriced(b) {
		b = c
		if b.lowerPriced(a) {
			b = a
		}
	}
	return b
}

// Clear is Solver.Clear without a Solver.
func Clear(p Problem) Result { return new(Solver).Clear(p) }

// Limit is the bid's budget line at a price: what the budget buys, within floor and ceiling.
// It is rounded down to whole thousandths, so that rounding never adds usage.
func (b Bid) Limit(p Price) cpu.Milli {
	if p <= 0 {
		return b.Ceiling
	}
	bought := float64(b.Budget.positive()) / float64(p)
	if bought >= float64(b.Ceiling) {
		return b.Ceiling
	}
	return cpu.Milli(bought).Clamp(b.Floor, b.Ceiling)
}

// Usage is the expected usage of the bidder at a price.
func (b Bid) Usage(p Price) cpu.Milli { return min(b.Demand, b.Limit(p)) }

// Bound is what bounds the bid's limit at a price.
func (b Bid) Bound(p Price) Bound {
	limit := b.Limit(p)
	switch {
	case b.Demand <= limit:
		return ByNothing
	case limit == b.Ceiling && (p <= 0 || float64(b.Budget.positive()) >= float64(p)*float64(b.Ceiling)):
		return ByCeiling
	case limit == b.Floor:
		return ByFloor
	}
	return ByPrice
}

func (w Budget) positive() Budget { return max(w, 1) }
