package round

import (
	"math"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/sense"
)

const (
	// fullThreshold is the share of its capacity from which a node is full: between two threads on
	// a CPU there is always some idle time.
	fullThreshold = 0.97
	// maxSystemShare is the share of the supply that usage outside of pods can take at most: the
	// kernel's weights leave the pods about half, which floors for all pods would leave idle.
	maxSystemShare = 0.5
	// systemSmoothing is how far, per second, the smoothed usage outside of pods moves towards the
	// measured one.
	systemSmoothing = 0.1
)

// supply is what the market sells: allocatable CPU, a tenth less for each true pressure condition,
// minus the reserve, minus the usage outside of pods that exceeds what the node reserves for it. It
// also returns that usage, smoothed. While it cannot be read, the last known value counts: 0 would
// sell CPU that is in use.
func supply(cfg Config, n Node, r sense.NodeRates, system float64) (NodeDecision, float64) {
	known := r.UsageKnown && r.KubepodsKnown
	if known {
		used := max(0, r.Usage-r.Kubepods).Cores()
		system += (used - system) * (1 - math.Pow(1-systemSmoothing, r.Elapsed.Seconds()))
	}
	d := NodeDecision{
		Usage: r.Kubepods, UsageKnown: r.KubepodsKnown,
		System: cpu.FromCores(system), SystemKnown: known,
		Pressure: r.Pressure, PressureKnown: r.PressureKnown,
	}
	allocatable := n.Allocatable.Cores()
	sold := cpu.FromCores(allocatable*math.Pow(0.9, float64(n.Pressures)) - cfg.Reserve*allocatable)
	excess := max(0, d.System-(n.Capacity-n.Allocatable))
	d.Supply = max(0, sold-min(excess, cpu.FromCores(sold.Cores()*maxSystemShare)))
	return d, system
}

// updateFullFor is for how long no CPU has been idle.
func updateFullFor(n Node, r sense.NodeRates, before time.Duration) time.Duration {
	if !r.UsageKnown || n.Capacity <= 0 || float64(r.Usage) < fullThreshold*float64(n.Capacity) {
		return 0
	}
	return before + r.Elapsed
}

// coresPerBudget is the share of the supply, in cores, of a unit of budget.
func coresPerBudget(supply cpu.Milli, pods []PodInput) float64 {
	var budgets float64
	for _, p := range pods {
		budgets += float64(p.Budget)
	}
	return supply.Cores() / max(1, budgets)
}

// lasted says whether a state has lasted for at least want, to the nearest round: ticks jitter.
func lasted(duration, elapsed, want time.Duration) bool {
	return duration > 0 && duration+elapsed/2 >= want
}
