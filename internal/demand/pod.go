package demand

import (
	"math"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/market"
)

// Pod is what Kubernetes says about one pod, in the market's words.
type Pod struct {
	UID    string
	Budget market.Budget // that of Weights, where those are given
	Weights
	// Ceiling is the highest total limit of its containers with one; 0: as high as theirs together.
	Ceiling cpu.Milli
	// RaiseOnNeed says that its limit counts against something that it shares with others, such as a quota: it is raised only
	// when its need shows.
	RaiseOnNeed bool
	// DemandPercent is what its demand is taken for when the price is made, in percent; up to 100: for what it is.
	DemandPercent int32
	// Unmanaged pods take part with their use but are never resized: Guaranteed, BestEffort,
	// opted out, or without a limit.
	Unmanaged  bool
	Containers []Container
}

// Weights are what a pod's budget is its request times of.
type Weights struct {
	PriorityPercent int32 // the multiplier of its priority, in percent
	FairnessPercent int32 // what the cluster's coordinator adds, in percent; 0: nothing
}

// Budget is what a pod with this request bids with.
func (w Weights) Budget(request cpu.Milli) market.Budget {
	weight := float64(w.PriorityPercent) / 100
	if w.FairnessPercent > 0 {
		weight *= float64(w.FairnessPercent) / 100
	}
	return max(minBudget, market.Budget(math.Round(float64(request)*weight)))
}

// Container is one container of a Pod.
type Container struct {
	Name    string
	ID      string    // the runtime's ID; empty while it does not run
	Request cpu.Milli // 0: none
	// Declared is the limit that the pod's owner declared; 0: none, so it is never given one.
	Declared cpu.Milli
	Limit    cpu.Milli // the limit in the pod's spec; 0: none
	Bounds
}

// Limited says whether the container has a CPU limit, so that the market may move it.
func (c Container) Limited() bool { return c.Declared > 0 && c.Limit > 0 }

// PriorityMultiplier is how much more a unit of request weighs for a PriorityClass value: 1 up to 1000 and for
// no class, 1/2 below 0, then 1 + log2(v/1000)/2, at most 8.
func PriorityMultiplier(priority int32) float64 {
	switch {
	case priority < 0:
		return 0.5
	case priority <= 1000:
		return 1
	}
	return min(8, 1+math.Log2(float64(priority)/1000)/2)
}

// minBudget is what a pod without requests weighs: the kernel gives it 2 of the
// 1024 shares that a core has.
const minBudget = 2

// Budget is what a pod bids with: its CPU request times the multiplier of its priority.
func Budget(request cpu.Milli, priority int32) market.Budget {
	return max(minBudget, market.Budget(math.Round(float64(request)*PriorityMultiplier(priority))))
}
