package coordinator

import "math"

// claim is a claim on budget that is divided: of a replica in its workload, or of a workload in its
// namespace. Its factor is relative to its own budget.
type claim struct {
	weight    float64 // its own budget
	rate      float64 // its factor at a level is level times this
	useful    float64 // the factor beyond which more budget has no effect
	low, high float64 // bounds of its factor
	gain      float64 // the part, 0 to 1, of an increase above 1 that it gets
}

// factorAt is its factor at a level: up to the useful factor or, beyond that, where every claim has
// its useful factor, and the rest goes to those with the lowest factors.
func (c *claim) factorAt(level float64, beyond bool) float64 {
	if beyond {
		return c.bounded(max(level, c.useful))
	}
	return c.bounded(min(level*c.rate, c.useful))
}

func (c *claim) bounded(factor float64) float64 {
	factor = min(max(factor, c.low), c.high)
	if factor > 1 {
		factor = 1 + c.gain*(factor-1)
	}
	return factor
}

func (c *claim) minimum() float64   { return c.bounded(c.low) }
func (c *claim) maximum() float64   { return c.bounded(c.high) }
func (c *claim) satisfied() float64 { return c.bounded(c.useful) }

// divide divides a total budget among claims: the factors at one level, whose budgets add up to the
// total or come closest (water-filling). No claim gets more than is useful while another has less.
func divide(claims []claim, total float64) []float64 {
	factors := make([]float64, len(claims))
	if len(claims) == 1 {
		c := &claims[0]
		factors[0] = min(max(total/c.weight, c.minimum()), c.maximum())
		return factors
	}
	useful, slowest, fastest := 0.0, math.Inf(1), 0.0
	low, high := math.Inf(1), 0.0
	for k := range claims {
		c := &claims[k]
		useful += c.weight * c.satisfied()
		low, high = min(low, c.low), max(high, c.high)
		if c.rate > 0 {
			slowest, fastest = min(slowest, c.rate), max(fastest, c.rate)
		}
	}
	beyond := total >= useful
	from, to := low/fastest, high/slowest // lower and higher levels change nothing
	switch {
	case beyond:
		from, to = low, high
	case fastest == 0:
		from, to = 0, 0
	}
	for n := 0; n < maxHalvings && to > from*(1+tolerance); n++ {
		middle := math.Sqrt(from) * math.Sqrt(to)
		if budgetAt(claims, middle, beyond) < total {
			from = middle
		} else {
			to = middle
		}
	}
	for k := range claims {
		factors[k] = claims[k].factorAt(to, beyond)
	}
	return factors
}

// budgetAt is the budget of all claims at a level.
func budgetAt(claims []claim, level float64, beyond bool) float64 {
	sum := 0.0
	for k := range claims {
		sum += claims[k].weight * claims[k].factorAt(level, beyond)
	}
	return sum
}

const (
	// tolerance is the ratio of two levels that give the same factors in whole percents.
	tolerance = 1e-7
	// maxHalvings of the logarithm reach it from the largest ratio of two prices.
	maxHalvings = 64
)
