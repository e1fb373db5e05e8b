package round

import (
	"math"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/sense"
)

const (
	// fullThreshold is the share of its capacity from which a node is full: between two threads on a CPU there is
	// always some idle time.
	fullThreshold = 0.97
	// pressureThreshold is the share of a node's CPUs that are busy from which the pressure of its containers is
	// read: low enough that a full node is above it. Time in which CPUs wait for IO counts as neither busy nor idle.
	pressureThreshold = 0.85
	// maxSystemShare is the share of the supply that usage outside of pods can take at most: the kernel's weights
	// leave the pods about half, which floors for all pods would leave idle.
	maxSystemShare = 0.5
	// systemSmoothing is how far, per second, the smoothed usage outside of pods moves towards the measured one.
	systemSmoothing = 0.1
)

// Gauge measures what a node can sell, sample by sample. The zero value starts.
type Gauge struct {
	system  float64       // smoothed CPU usage outside of pods, in cores
	fullFor time.Duration // for which no CPU has been idle
}

// Measure is the node with its supply: allocatable CPU, a tenth less for each true pressure condition, minus the
// reserve, minus the usage outside of pods that exceeds what the node reserves for it. That usage is smoothed. While
// it cannot be read, the last known value counts: 0 would sell CPU that is in use. full says whether no CPU has been
// idle for Onset.
func (g *Gauge) Measure(cfg Config, n Node, r sense.NodeRates) (d NodeDecision, full bool) {
	known := r.UsageKnown && r.KubepodsKnown
	if known {
		used := max(0, r.Usage-r.Kubepods).Cores()
		g.system += (used - g.system) * (1 - math.Pow(1-systemSmoothing, r.Elapsed.Seconds()))
	}
	d = NodeDecision{
		Usage: r.Kubepods, UsageKnown: r.KubepodsKnown, Pressure: r.Pressure,
		System: cpu.FromCores(g.system), SystemKnown: known,
	}
	allocatable := n.Allocatable.Cores()
	sold := cpu.FromCores(allocatable*math.Pow(0.9, float64(n.Pressures)) - cfg.Reserve*allocatable)
	excess := max(0, d.System-(n.Capacity-n.Allocatable))
	d.Supply = max(0, sold-min(excess, cpu.FromCores(sold.Cores()*maxSystemShare)))

	if g.fullFor += r.Elapsed; !r.UsageKnown || n.Capacity <= 0 || float64(r.Usage) < fullThreshold*float64(n.Capacity) {
		g.fullFor = 0
	}
	return d, lasted(g.fullFor, r.Elapsed, cfg.Onset)
}

// The supply is idle where usage is below it by this share and this much. Smaller takes the noise of a busy node
// for idle CPU; larger takes CPU that a throttled pod could have used for scarce.
const (
	idleShare = 0.02
	leastIdle = cpu.Milli(100)
)

// HasIdleCPU says whether pods used less than the market sold, for figures of what limits cost; known is false
// where usage was not read.
func (n NodeDecision) HasIdleCPU() (idle, known bool) {
	least := max(leastIdle, cpu.FromCores(idleShare*n.Supply.Cores()))
	return n.UsageKnown && n.Supply-n.Usage >= least, n.UsageKnown
}

// PressureFrom is the share of a node's CPUs that are busy from which rounds at this interval need the pressure of
// containers. It counts on a full node alone. The node is full after Onset, so the pressure is read at the beginning
// of the first interval that uses it; 0 where the first round on a full node uses it, so that it is always needed.
func (c Config) PressureFrom(interval time.Duration) float64 {
	if lasted(interval, interval, c.Onset) {
		return 0
	}
	return pressureThreshold
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
