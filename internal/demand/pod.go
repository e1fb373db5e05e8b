package demand

import (
	"cmp"
	"math"
	"slices"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/market"
)

// Pod is one pod of the market.
type Pod struct {
	UID    string
	Budget market.Budget // that of Weights, where those are set
	Weights
	// Ceiling is the highest total limit of its limited containers; 0: the sum of their ceilings.
	Ceiling cpu.Milli
	// IncreaseOnNeed says that the pod shares a short quota with others: it needs more to be raised, and publishes its demand soon.
	IncreaseOnNeed bool
	// DemandPercent is the factor of a DemandSignal on its demand, for the price alone; below 100 it
	// has no effect.
	DemandPercent int32
	// Unmanaged pods count with their usage and are never resized: Guaranteed, BestEffort, opted out,
	// or without a limit.
	Unmanaged  bool
	Containers []Container
}

// Limit is its limit, the sum of those of its limited containers.
func (p Pod) Limit() (sum cpu.Milli) {
	for _, c := range p.Containers {
		if c.Limited() {
			sum += c.Limit
		}
	}
	return sum
}

// Most is the highest total limit of its limited containers.
func (p Pod) Most() (sum cpu.Milli) {
	for _, c := range p.Containers {
		if c.Limited() {
			sum += c.Ceiling
		}
	}
	if p.Ceiling > 0 {
		return min(sum, p.Ceiling)
	}
	return sum
}

// AtDeclared is the pod with the declared limits of its containers as their ceilings, or the floors that are higher.
func (p Pod) AtDeclared() Pod {
	p.Containers = slices.Clone(p.Containers)
	for i := range p.Containers {
		if c := &p.Containers[i]; c.Limited() {
			c.Ceiling = min(c.Ceiling, max(c.DeclaredLimit(), c.Floor))
		}
	}
	return p
}

// Weights are the factors on the request of a pod that give its budget.
type Weights struct {
	PriorityPercent     int32 // of its priority, in percent
	CoordinationPercent int32 // of the coordinator, in percent; 0: none
}

// Priority is the factor of the priority in percent; not set, it is 100.
func (w Weights) Priority() int32 { return cmp.Or(w.PriorityPercent, 100) }

// Budget is that of a pod with this request.
func (w Weights) Budget(request cpu.Milli) market.Budget {
	weight := float64(w.PriorityPercent) / 100
	if w.CoordinationPercent > 0 {
		weight *= float64(w.CoordinationPercent) / 100
	}
	return max(minBudget, market.Budget(math.Round(float64(request)*weight)))
}

// Container is one container of a Pod.
type Container struct {
	Name     string
	ID       string    // the runtime's ID; empty while it does not run
	Request  cpu.Milli // 0: none
	Declared cpu.Milli // the declared limit; 0: none, so it never gets one
	Limit    cpu.Milli // the limit in the pod's spec; 0: none
	Bounds
}

// Limited says whether the container has a CPU limit, so that the market may change it.
func (c Container) Limited() bool { return c.Declared > 0 && c.Limit > 0 }

// DeclaredLimit is the declared limit as far as the ceiling allows it, in whole quanta.
func (c Container) DeclaredLimit() cpu.Milli { return min(c.Declared.RoundUp(cpu.Quantum), c.Ceiling) }

// Need is how far the container is raised by what it shows: four times what it uses, twice a limit that throttles it, and
// what it declares at least. Programs size themselves by their limit, and one that is reached is raised again soon.
func (c Container) Need(usage cpu.Milli, throttled bool) cpu.Milli {
	need := max(4*usage, c.DeclaredLimit())
	if throttled {
		need = max(need, 2*c.Limit)
	}
	return need
}

// PriorityMultiplier is the factor of a PriorityClass value on the budget: 1 up to 1000 and without
// a class, 1/2 below 0, above 1000 1 + log2(v/1000)/2, at most 8.
func PriorityMultiplier(priority int32) float64 {
	switch {
	case priority < 0:
		return 0.5
	case priority <= 1000:
		return 1
	}
	return min(8, 1+math.Log2(float64(priority)/1000)/2)
}

// minBudget is the budget of a pod without requests: the kernel gives it 2 shares, and 1024 for a
// request of one core (pkg/kubelet/cm/helpers_linux.go, MinShares).
const minBudget = 2

// Budget is the budget of a pod without a coordinator: its CPU request times its
// PriorityMultiplier.
func Budget(request cpu.Milli, priority int32) market.Budget {
	return max(minBudget, market.Budget(math.Round(float64(request)*PriorityMultiplier(priority))))
}
