package demand

import (
	"math"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/market"
)

// Pod is what Kubernetes says about one pod, in the market's words.
type Pod struct {
	UID    string
	Budget market.Budget
	// Shadow pods take part with their use but are never resized: Guaranteed, BestEffort,
	// opted out, or without a limit.
	Shadow     bool
	Containers []Container
}

// Container is one container of a Pod.
type Container struct {
	Name    string
	ID      string    // the runtime's ID; empty while it does not run
	Request cpu.Milli // 0: none
	// Declared is the limit that the pod's owner declared; 0: none, so it is never given one.
	Declared cpu.Milli
	Limit    cpu.Milli // the limit in the pod's spec; 0: none
	Ceiling  cpu.Milli // highest limit it may get
}

// Limited says whether the container has a CPU limit, so that the market may move it.
func (c Container) Limited() bool { return c.Declared > 0 && c.Limit > 0 }

// Floor is the lowest limit of a container: above its request by one quantum, so that the
// pod stays Burstable, and at least 100m or what was declared if that is less.
func Floor(request, declared cpu.Milli) cpu.Milli {
	return max(request+cpu.Quantum, min(100, declared), cpu.Quantum).RoundUp(cpu.Quantum)
}

// Multiplier is how much more a unit of request weighs for a PriorityClass value: 1 up to 1000 and for
// no class, 1/2 below 0, then 1 + log2(v/1000)/2, at most 8.
func Multiplier(priority int32) float64 {
	switch {
	case priority < 0:
		return 0.5
	case priority <= 1000:
		return 1
	}
	return min(8, 1+math.Log2(float64(priority)/1000)/2)
}

// leastBudget is what a pod without requests weighs: the kernel gives it 2 of the
// 1024 shares that a core has.
const leastBudget = 2

// Budget is what a pod bids with: its CPU request times the multiplier of its priority.
func Budget(request cpu.Milli, priority int32) market.Budget {
	return max(leastBudget, market.Budget(math.Round(float64(request)*Multiplier(priority))))
}
