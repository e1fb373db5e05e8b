package coordinator

import "math"

// claim is somebody among whom budget is divided.
type claim struct {
	weight    float64 // its own budget
	rate      float64 // its factor at a level is level times this
	useful    float64 // the factor that it has use for
	low, high float64 // bounds of its factor
	gain      float64 // the part, 0 to 1, of a rise above 1 that it is given
}

// factorAt is its factor at a level.
func (m *claim) factorAt(level float64) float64 { return m.bounded(min(level*m.rate, m.useful)) }

// factorBeyond is its factor when everybody has what it has use for, and what is left over goes to those who have least.
func (m *claim) factorBeyond(level float64) float64 { return m.bounded(max(level, m.useful)) }

func (m *claim) bounded(factor float64) float64 {
	factor = min(max(factor, m.low), m.high)
	if factor > 1 {
		factor = 1 + m.gain*(factor-1)
	}
	return factor
}

func (m *claim) minimum() float64   { return m.bounded(m.low) }
func (m *claim) maximum() float64   { return m.bounded(m.high) }
func (m *claim) satisfied() float64 { return m.bounded(m.useful) }

// divide divides a total of budget: factors at one level, whose budgets add up to it or come closest. Nobody gets more than it
// has use for as long as somebody has less.
func divide(items []claim, total float64) []float64 {
	factors := make([]float64, len(items))
	if len(items) == 1 {
		m := &items[0]
		factors[0] = min(max(total/m.weight, m.minimum()), m.maximum())
		return factors
	}
	full, slow, fast := 0.0, math.Inf(1), 0.0
	low, high := math.Inf(1), 0.0
	for k := range items {
		m := &items[k]
		full += m.weight * m.satisfied()
		low, high = min(low, m.low), max(high, m.high)
		if m.rate > 0 {
			slow, fast = min(slow, m.rate), max(fast, m.rate)
		}
	}
	left := total >= full
	from, to := low/fast, high/slow // below and above, levels change nothing
	switch {
	case left:
		from, to = low, high
	case fast == 0:
		from, to = 0, 0
	}
	for n := 0; n < maxHalvings && to > from*(1+tolerance); n++ {
		middle := math.Sqrt(from) * math.Sqrt(to)
		if budgetAt(items, middle, left) < total {
			from = middle
		} else {
			to = middle
		}
	}
	for k := range items {
		if left {
			factors[k] = items[k].factorBeyond(to)
		} else {
			factors[k] = items[k].factorAt(to)
		}
	}
	return factors
}

// budgetAt is the budget of all at a level.
func budgetAt(items []claim, level float64, left bool) float64 {
	sum := 0.0
	for k := range items {
		if m := &items[k]; left {
			sum += m.weight * m.factorBeyond(level)
		} else {
			sum += m.weight * m.factorAt(level)
		}
	}
	return sum
}

// Two levels are close enough for factors that are whole percents. Halvings of the logarithm of a ratio as large as that of two
// prices can be get there.
const (
	tolerance   = 1e-7
	maxHalvings = 64
)
