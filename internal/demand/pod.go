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
	// Shadow pods take part with their use but are never resized: Guaranteed, BestEffort,
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
	Ceiling  cpu.Milli // highest limit it may get
	// Least is the lowest limit that others than the market ask for; 0: nobody does. It keeps the limit up, and entitles to nothing:
	// beyond its share the container gets what the kernel's weights leave it.
	Least cpu.Milli
	// Floor is the lowest limit that it may get, where that has been worked out; 0: it follows from the rest.
	Floor cpu.Milli
}

// Bounds are the lowest and the highest limit that the container may get. Least gives way to Ceiling. Where no limit that could be set is
// within the ceiling, both are the limit that it has: it is left as it is.
func (c Container) Bounds() (floor, ceiling cpu.Milli) {
	switch {
	case c.Floor > 0:
		return max(c.Floor, min(c.Least, c.Ceiling)), c.Ceiling
	case c.Settable() > c.Ceiling:
		return c.Limit, c.Limit
	case c.stands() && c.Least <= c.Limit && c.Limit <= c.Ceiling:
		return max(c.Least, min(Floor(c.Request, c.Declared), c.Limit)), c.Ceiling
	}
	return min(max(Floor(c.Request, c.Declared), c.Least), c.Ceiling), c.Ceiling
}

// Entitled is the lowest limit that its request entitles the container to. What else keeps its limit up does not.
func (c Container) Entitled() cpu.Milli {
	floor, _ := c.Bounds()
	return min(floor, Floor(c.Request, c.Declared))
}

// Lowest is the lowest limit with which the container can be left: one quantum above its request, or the declared one while it
// stands there. At these a pod keeps its QoS class: it would turn Guaranteed, which the API server refuses, only with every limit
// at its request, and with every limit as declared it is what it was made.
func (c Container) Lowest() cpu.Milli {
	switch lowest := c.Settable(); {
	case lowest > c.Ceiling:
		return c.Limit
	case c.stands():
		return min(lowest, c.Limit)
	default:
		return lowest
	}
}

// Settable is the lowest limit that is ever set, one quantum above the request. A container that stands lower is left there or raised to that.
func (c Container) Settable() cpu.Milli { return Floor(c.Request, 0) }

// stands says whether the container has the limit that its owner declared, and the kernel takes it. It may keep it, be it lower than
// any limit that the market would set.
func (c Container) stands() bool { return c.Limit == c.Declared && c.Limit >= cpu.Quantum }

// Limited says whether the container has a CPU limit, so that the market may move it.
func (c Container) Limited() bool { return c.Declared > 0 && c.Limit > 0 }

// Floor is the lowest limit that the market sets for a container: above its request by one quantum, so that the
// pod stays Burstable, and at least 100m or what was declared if that is less.
func Floor(request, declared cpu.Milli) cpu.Milli {
	return max(request+cpu.Quantum, min(100, declared), cpu.Quantum).RoundUp(cpu.Quantum)
}

// Multiplier is how much more a unit of request weighs for a PriorityClass value: 1 up to 1000 and for
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

// leastBudget is what a pod without requests weighs: the kernel gives it 2 of the
// 1024 shares that a core has.
const minBudget = 2

// Budget is what a pod bids with: its CPU request times the multiplier of its priority.
func Budget(request cpu.Milli, priority int32) market.Budget {
	return max(minBudget, market.Budget(math.Round(float64(request)*PriorityMultiplier(priority))))
}
