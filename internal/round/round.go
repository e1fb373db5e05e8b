package round

import (
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/disagreement"
	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/sense"
	"github.com/mbcas/mbcas/market"
)

// Node is the Kubernetes state of the node.
type Node struct {
	Capacity    cpu.Milli
	Allocatable cpu.Milli
	// Pressures counts the node conditions MemoryPressure, DiskPressure and PIDPressure that are true.
	// Each takes a tenth off the supply.
	Pressures int
}

// PodInput is a pod of the market and its published decision.
type PodInput struct {
	demand.Pod
	Published Published
}

// Published is the decision in the pod's PodAllocation.
type Published struct {
	At     time.Time            // zero: none
	Limits map[string]cpu.Milli // by container name
	Demand cpu.Milli
	Price  market.Price
	Bound  market.Bound
	// ThrottleRatio is that of the pod then.
	ThrottleRatio float64
}

// Input is everything that a round depends on. Pods and Sample.Pods are in the same order, and so are their containers.
type Input struct {
	Now    time.Time
	Node   Node
	Pods   []PodInput
	Sample kernel.Sample
	// PriceBefore was in force when the state was lost, if PriceBeforeKnown by now.
	PriceBefore      market.Price
	PriceBeforeKnown bool
}

// State is what a round keeps for the next. The zero value is that of the first round.
type State struct {
	last         kernel.Sample
	samples      int                        // of the node without a gap
	estimates    map[string]demand.Estimate // by container ID
	gauge        Gauge
	price        price
	priced       bool           // Input.PriceBefore does not count any more
	solver       *market.Solver `delta:"-"` // its scratch memory
	room         room
	look         lookState
	releases     releases
	disagreement disagreement.State
	raises       map[string]disagreement.Raise // above declared limits, by UID
	fullAt       time.Time                     // of the last look, if that found hardly any idle CPU
	fullFor      time.Duration                 // looks since the first such one
}

// Output is the result of a round.
type Output struct {
	Node      NodeDecision
	Decisions []Decision // one for each managed pod that is not skipped, in the order of the input
	Skipped   Skipped
	// Watch are the pods that looks read until the next round, as indices into Input.Pods; empty: no
	// limit could be raised before it, and no raise revoked.
	Watch []int
}

// Skipped counts managed pods without a decision.
type Skipped struct {
	WarmingUp int // too few samples of the pod, or of the node
	Stale     int // the counters could not be read, were reset, or are too far apart
	// Unenforced pods have a limit without a quota: the kubelet sets no quotas, so a resize would have
	// no effect. They count as unmanaged.
	Unenforced int
}

// NodeDecision is the state of the node's market.
type NodeDecision struct {
	Price              market.Price // at which limits are set
	Cleared            market.Price // as cleared in this round, before the bands
	Supply             cpu.Milli
	Demand             cpu.Milli   // of all bidders, with unmanaged pods
	SignalDemand       cpu.Milli   // added to Demand by DemandSignals
	Usage              cpu.Milli   // by pods
	UsageKnown         bool        // false: not readable in this round, and the price stays
	System             cpu.Milli   // usage outside of pods, smoothed
	SystemKnown        bool        // false: not readable in this round; System is the last known, or 0
	Pressure           sense.Ratio // for a CPU
	FloorsExceedSupply bool
	Released           bool // the price was cleared from the last tick alone, as contention ended
	Bidders, Unmanaged int
}

// Decision is the decision about one pod.
type Decision struct {
	UID        string
	Pod        int       // its index into Input.Pods
	Limit      cpu.Milli // of the pod: the sum of those of its containers
	Containers []ContainerLimit
	// Demand, Usage, ThrottleRatio and Pressure are those of the pod's limited containers. Its other
	// containers count as unmanaged.
	Demand, Usage cpu.Milli
	ThrottleRatio float64
	Pressure      sense.Ratio
	Stalls        *sense.Stalls // the highest of these containers; nil where they are not read
	Budget        market.Budget
	Price         market.Price
	Floor         cpu.Milli
	Ceiling       cpu.Milli
	Bound         market.Bound
	// RevokedFor is for how long the pod is not raised above its declared limit, as a raise was revoked.
	RevokedFor time.Duration
	// Publish: the decision differs enough from the published one, and its interval has passed.
	Publish bool
}

// ContainerLimit is the limit of one container.
type ContainerLimit struct {
	Name  string
	Limit cpu.Milli
}

// Run runs one round. It consumes the state: use the returned one.
func Run(cfg Config, s State, in Input) (State, Output) {
	if s.solver == nil {
		s.solver = new(market.Solver)
	}
	rates := sense.Compare(s.last, in.Sample, cfg.LongestGap) // sense
	before := s.last
	s.last = in.Sample
	s.samples++
	if rates.Node.Validity != sense.Valid {
		s.samples = 0
	}

	var out Output
	var full bool
	out.Node, full = s.gauge.Measure(cfg, in.Node, rates.Node)

	s.passRaises(in.Pods, rates.Node.Elapsed)
	in.Pods = s.bounded(in.Pods, rates.Pods)

	perBudget := coresPerBudget(out.Node.Supply, in.Pods)
	starvedBelow := 0.0 // no pod starves on a node that is not full
	if full {
		starvedBelow = perBudget
	}
	s.estimates = estimate(cfg.Demand, s.estimates, in.Pods, rates.Pods, starvedBelow)
	s = s.judgeRelease(in.Pods, rates.Pods, in.Now)
	warm := s.samples >= cfg.Demand.WarmUpSamples
	book, skipped := bidders(cfg.Demand, in.Pods, rates.Pods, s.estimates, warm)
	out.Skipped = skipped

	s.keepDeclared(cfg, in, rates, full, book)
	if !s.priced && in.PriceBeforeKnown {
		s.price, s.priced = price{inForce: in.PriceBefore}, true
	}
	s.priced = s.priced || warm
	s.price = s.price.moved(clearing{ // market
		cfg: cfg, solver: s.solver, book: book, node: &out.Node, elapsed: rates.Node.Elapsed,
		demandKnown: warm,
	})
	if out.Node.Released {
		lowerEstimates(cfg, s.estimates, in.Pods, book)
	}
	s.price.binds = s.price.capsOne(cfg, book)
	s.setRoom(book, out.Node, perBudget)

	s.noteRaises(cfg, in.Pods, book)
	s.look = lookState{pods: in.Pods, rates: rates.Pods, node: out.Node, book: book, busy: s.look.busy}
	out.Decisions = decide(cfg, in, rates.Pods, book, s) // decision
	s.look = newLookState(cfg, s, in, out.Decisions, s.look)
	s.addNewPods(cfg, before, in.Sample, &out)
	if out.Watch = s.look.watchedPods(); len(out.Watch) == 0 { // no look follows
		s.fullAt, s.fullFor = time.Time{}, 0
	}
	return s, out
}

// ofPods are the values of the pods that still exist. One that no round decides about for a while goes on where it was.
func ofPods[T any](before map[string]T, pods []PodInput) map[string]T {
	after := make(map[string]T, len(before))
	for _, p := range pods {
		if v, known := before[p.UID]; known {
			after[p.UID] = v
		}
	}
	return after
}
