// Package market clears the CPU of one node: bids go in, one price and a CPU limit for
// each bid come out.
//
// CPU of a node is one divisible good. Each bidder i has a budget w, a demand d and a
// floor f and ceiling c for its limit; the supply is S. The use x that the market expects
// maximises the sum of w log x (Nash social welfare of a Fisher market with satiable
// buyers; Eisenberg and Gale 1959) subject to x <= d and the sum of x being at most S. The optimum has
// one price p with x = min(d, w/p). What the budget of a bidder buys at that price is not x but its budget line,
//
//	limit = clamp(w/p, f, c)        (p = 0: limit = c)
//
// so a bidder who wants less than its share is not held to what it wants (Bid.Bound says who is held at all).
// With floors and ceilings p is the price at which expected use meets supply:
//
//	sum of min(d, clamp(w/p, f, c)) = S
//
// For a single good this is also weighted max-min fairness.
//
// What the package promises, each a property test of the same name:
//   - Feasible: expected use never sums to more than the supply, unless the floors alone do.
//   - Bounded: no limit lies outside its bid's floor and ceiling.
//   - WorkConserving: while supply is left over, no bid is held below min(demand, ceiling).
//   - SharingIncentive: no bid is held below min(demand, its budget's share of what those leave whom their floors hold).
//   - NoGainFromLying: to claim more demand never raises min(limit, true demand).
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

// Budget is what a bidder bids with. A CPU request of one core at multiplier 1 is a budget of 1000.
type Budget int64

// Bid is what one bidder brings to the market.
type Bid struct {
	Budget  Budget    // 0 is taken as 1, so that everybody can buy something
	Demand  cpu.Milli // mean use if nothing held it back
	Floor   cpu.Milli // lowest limit
	Ceiling cpu.Milli // highest limit
}

// Problem is one clearing.
type Problem struct {
	Supply cpu.Milli
	Bids   []Bid
}

// Bound says what holds a limit.
type Bound uint8

const (
	ByNothing Bound = iota // demand fits below the limit
	ByPrice                // the budget buys less than the demand
	ByFloor                // the budget buys less than the floor, and the demand is above it
	ByCeiling              // the budget buys more than the ceiling, and the demand is above it
)

func (b Bound) String() string {
	switch b {
	case ByNothing:
		return "Nothing"
	case ByPrice:
		return "Price"
	case ByFloor:
		return "Floor"
	case ByCeiling:
		return "Ceiling"
	}
	return fmt.Sprintf("Bound(%d)", uint8(b))
}

// Result is a cleared market.
type Result struct {
	Price Price
	// FloorsExceedSupply: what the bidders use within their floors is more than the supply. The
	// price is then MaxPrice and every limit is its floor. (Where it is just the supply, the price
	// is MaxPrice too: nothing is left that a budget could buy.)
	FloorsExceedSupply bool
}

// Validate says everything that is wrong with the problem.
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
			errs = append(errs, fmt.Errorf("bid %d: floor %v and ceiling %v: want 0m <= floor <= ceiling <= %v", i, b.Floor, b.Ceiling, maxAmount))
		}
	}
	return errors.Join(errs...)
}

// Amounts and budgets are bounded so that products of two fit into 64 bits and sums
// over a million bids stay exact.
const (
	maxAmount = 1_000_000 * cpu.Core
	maxBudget = Budget(1_000_000_000)
)

// Solver clears markets. It keeps its scratch space, so that clearing again allocates
// nothing. The zero value is ready; it is not for use by two goroutines at once.
type Solver struct{ breakpoints []breakpoint }

// breakpoint is a price, budget/use, at which a bidder begins to be held by the price, or
// ceases to be because it has come down to its low.
type breakpoint struct {
	budget  Budget
	usage   cpu.Milli
	atFloor bool
}

// lowerPriced compares the prices of two turns exactly.
func (a breakpoint) lowerPriced(b breakpoint) bool {
	return int64(a.budget)*int64(b.usage) < int64(b.budget)*int64(a.usage)
}

// segment is expected use between two neighbouring turns: fixed + spent/price. Both are whole numbers,
// so the order of the bids cannot change the answer.
type segment struct {
	constant cpu.Milli
	budgets  Budget
}

// past is the stretch on the dear side of t.
func (s segment) past(t breakpoint) segment {
	if t.atFloor {
		return segment{s.constant + t.usage, s.budgets - t.budget}
	}
	return segment{s.constant - t.usage, s.budgets + t.budget}
}

// exceeds says whether use at the price of t is more than the supply:
// spent * t.use / t.budget > supply - fixed, in exact 128-bit products.
func (s segment) exceeds(supply cpu.Milli, t breakpoint) bool {
	left := supply - s.constant
	if left < 0 {
		return true
	}
	h1, l1 := bits.Mul64(uint64(s.budgets), uint64(t.usage))
	h2, l2 := bits.Mul64(uint64(left), uint64(t.budget))
	return h1 > h2 || h1 == h2 && l1 > l2
}

// Clear finds the price. It is a pure function of the problem, which must be valid
// (see Problem.Validate): same problem, same price.
//
// As the price rises from 0, each bidder first uses its cap min(d, c), then w/p, then its
// low min(d, f). Clear looks for the stretch between two neighbouring turns where use crosses
// the supply by halving the turns around a pivot (breakpoint search; Kiwiel 2008, Math. Program. 112, section 3).
// Cost grows as n; as n log n when the pivots are unlucky.
func (s *Solver) Clear(p Problem) Result {
	s.breakpoints = s.breakpoints[:0]
	var cheap segment // where nobody is held by the price
	var floors cpu.Milli
	for _, b := range p.Bids {
		w, low, top := b.Budget.positive(), min(b.Demand, b.Floor), min(b.Demand, b.Ceiling)
		cheap.constant += top
		floors += low
		if low == top {
			continue
		}
		s.breakpoints = append(s.breakpoints, breakpoint{w, top, false})
		if low > 0 {
			s.breakpoints = append(s.breakpoints, breakpoint{w, low, true})
		}
	}
	if cheap.constant <= p.Supply {
		return Result{}
	}
	if floors >= p.Supply {
		return Result{Price: MaxPrice, FloorsExceedSupply: floors > p.Supply}
	}
	at := crossingSegment(cheap, s.breakpoints, p.Supply)
	return Result{Price: Price(float64(at.budgets) / float64(p.Supply-at.constant))}
}

// crossingSegment is the stretch on which use meets the supply. All turns lie on the dear side of s.
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
		// Turns up to the pivot go to the front. Those at the pivot's own price stand between.
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

// Clear is Solver.Clear for those who clear once.
func Clear(p Problem) Result { return new(Solver).Clear(p) }

// Limit is the bid's budget line at a price: what the budget buys, within floor and ceiling.
// It is rounded down to whole thousandths, so that rounding never creates use.
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

// Usage is what the market expects the bidder to use at a price.
func (b Bid) Usage(p Price) cpu.Milli { return min(b.Demand, b.Limit(p)) }

// Bound says what holds the bid's limit at a price.
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
