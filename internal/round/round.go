// Package round plays one node's whole turn: sense, demand, market, in that order. It is pure; the
// agent and the simulator run the same code.
//
// What it promises, each a test of the same name:
//   - IdleNodeThrottlesNobody: while CPU is not scarce every managed pod's limit is its ceiling.
//   - OnlyTheBoundAreLowered: a pod that the price does not bind is never lowered.
//   - JustAboveItsShareIsNotHeld: a pod that is not held is held only when it demands clearly more than its budget buys.
//   - UnheldAreLifted: a pod that the price does not bind, and that needs more, gets its ceiling.
//   - FloorsLeaveRoom: where floors exceed the supply, who wants more than its floor has just that, and nobody else is held.
//   - PriceFallsLate: the price rises at once, and falls when a lower one has done for FallDelay, or CPU lies idle.
//   - ScarcityIsSeenAtOnce: pods that use more than the supply for Onset raise the price, however slow the estimates.
//   - IntervalChangesNothing: how long it takes to see contention come and go does not depend on how often rounds are played.
//   - UnreadableIsNotZero: what the system or the pods use does not count as nothing because it cannot be read.
//   - ReleasesWithContention: the price falls in the tick after contention ends, however slow the estimates.
//   - SteadyLoadPublishesNothing: when inputs stop changing, decisions stop changing.
//   - NoisePublishesNothing: small or brief changes of demand and price that change no limit are not published.
//   - OnePodPublishesThePrice: when the price changes and no limit does, one decision of the node is published.
//   - StaleNeverDecides: a pod without a fresh rate gets no decision.
//   - NewPodsAreOnlyRaised: a pod whose containers are not warm is not lowered, and before the node has been watched for as long, nothing is decided.
//   - UnenforcedIsLeftAlone: a pod whose limit the kernel does not enforce gets no decision, and takes part as a shadow.
//   - TermsBind: no decision breaks the floors and ceilings that the platform asks for, and who must not be lowered is not.
//   - KeptUpTakesNothing: whoever is kept above what the price leaves it takes from nobody what that one's budget buys.
//   - RaisedOnNeed: who shares a quota with others is raised only when its need shows, and tells at once when it changes.
//   - StalledIsNotRaised: a pod that is stalled on memory or IO is taken to want what it uses, and is not raised for being throttled while CPU is scarce.
//   - LeastIsKept: no container gets less than the kernel takes for a quota, and the decision's floor says so.
//   - BoundsHoldForOddLimits: limits are within their bounds, and in whole quanta unless they stay as they are, whatever was declared.
//   - AskedForIsKeptFree: what a pod's demand is to be taken for beyond what it is stays free, up to its share, and others pay for it.
//   - AskingHoldsNobody: a pod's own limit does not depend on what its demand is to be taken for.
//   - NobodyHidesFromThePrice: no demand is taken for less than it is.
//   - ShadowsCount: pods outside the market take part with their use, and get no decision.
package round

import (
	"errors"
	"fmt"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/sense"
	"github.com/mbcas/mbcas/market"
)

// Config is how a node plays its rounds.
type Config struct {
	Demand demand.Config
	// LongestGap is the longest time between two samples that still yields rates.
	LongestGap time.Duration
	// Reserve is the share of allocatable CPU that the market does not sell, in [0, 1).
	// Larger means less waiting for those the price does not bind; smaller means more throughput.
	Reserve float64
	// PriceBand is the relative move of the price that changes no limit. Larger is steadier.
	PriceBand float64
	// FallDelay is how long a lower price must have done before the price falls. Longer is steadier and protects from bursts that
	// come again; shorter leaves less CPU unused.
	FallDelay time.Duration
	// Onset is how long scarcity must have lasted. When the pods have used more than the supply for so long, while CPU has no
	// price, the demand of the last tick counts beside the estimates; when no CPU has lain idle for so long, who waits below
	// its share counts as starved. Shorter holds a hog sooner; longer leaves bursts alone. This, CatchUp and Release are
	// taken to the nearest round, and are one round where rounds are longer.
	Onset time.Duration
	// CatchUp is for how long that demand then counts: the time that the estimates need to follow. Shorter may
	// drop the price before they have; longer holds to a peak that has passed.
	CatchUp time.Duration
	// Release is how long ReleaseIdle of the supply must lie idle while a pod is throttled, or half as long where twice
	// as much does, for the price to be cleared from the last tick alone. Shorter gives idle CPU
	// back sooner; longer lets lulls of those who are served pass.
	Release time.Duration
	// ReleaseIdle is the share of the supply that counts as idle for Release. Smaller
	// gives idle CPU back sooner; larger takes noise for noise.
	ReleaseIdle float64
	// ReleaseBand is how far, as a share of the supply, demand must fall below the supply before the
	// price returns to zero. Larger is steadier; smaller gives idle CPU back sooner.
	ReleaseBand float64
	// CapBand is how far, as a share, a pod's demand must lie above what its budget buys for a pod to be held that is not held
	// yet. Larger is steadier; smaller leaves less of others' shares to those just above their own.
	CapBand float64
	// TrimGain is how much of the relative error between the pods' measured use and the supply is
	// added to the price's exponent per second; 0 switches the trim off.
	TrimGain float64
	// TrimLimit bounds the trim: the price is at most e^TrimLimit times the cleared one, and
	// at least e^-TrimLimit times.
	TrimLimit float64
	// Credits are what a pod gets later for what it leaves to others now. They are off unless switched on.
	Credits Credits
	// PublishBand is the relative change of a limit that is worth publishing.
	PublishBand float64
	// PublishInterval is the least time between two published decisions of a pod that neither raise its limit nor give
	// more to a container that is throttled. The first lowering after a time without a price need not wait, at most once
	// in this time on a node. Longer costs less; shorter lets the controller's next step go to a fresher target.
	PublishInterval time.Duration
	// PriceInterval is the least time after which one decision of a node is published because the node's price, but no limit, has
	// changed by more than PublishBand. Longer costs less; shorter gives the coordinator fresher prices.
	PriceInterval time.Duration
	// RefreshInterval is the least time after which a decision is published again because its demand or price, but not its limit,
	// has changed by more than PublishBand. Longer costs less; shorter shows fresher figures in the API server.
	RefreshInterval time.Duration
	// RefreshBand is the change of demand, besides PublishBand and one percent of the node's allocatable CPU, that does not count
	// for this. Larger writes less for small pods that vary; smaller shows fresher figures.
	RefreshBand cpu.Milli
}

// DefaultConfig is what we would run ourselves.
func DefaultConfig() Config {
	return Config{
		Demand:          demand.DefaultConfig(),
		LongestGap:      3 * time.Second,
		Reserve:         0.10,
		PriceBand:       0.15,
		FallDelay:       10 * time.Second,
		Onset:           2 * time.Second,
		CatchUp:         10 * time.Second,
		Release:         2 * time.Second,
		ReleaseIdle:     0.15,
		ReleaseBand:     0.05,
		CapBand:         0.10,
		TrimGain:        0.05,
		TrimLimit:       0.7,
		Credits:         Credits{MaxFactor: 1, MaxSaved: time.Minute, HalfLife: 5 * time.Minute},
		PublishBand:     0.10,
		PublishInterval: 5 * time.Second,
		PriceInterval:   time.Minute,
		RefreshInterval: 10 * time.Minute,
		RefreshBand:     20,
	}
}

// ConservativeInterval is the time from one round to the next in the conservative profile.
const ConservativeInterval = 10 * time.Second

// ConservativeConfig looks and publishes seldom. It goes with ConservativeInterval and actuator.ConservativeConfig.
func ConservativeConfig() Config {
	c := DefaultConfig()
	c.LongestGap, c.PublishInterval = 3*ConservativeInterval, 30*time.Second
	return c
}

// Validate says everything that is wrong.
func (c Config) Validate() error {
	errs := []error{c.Demand.Validate(), c.Credits.validate()}
	for _, f := range []struct {
		name string
		v    float64
	}{
		{"Reserve", c.Reserve}, {"PriceBand", c.PriceBand}, {"ReleaseBand", c.ReleaseBand}, {"ReleaseIdle", c.ReleaseIdle},
		{"CapBand", c.CapBand}, {"TrimGain", c.TrimGain}, {"PublishBand", c.PublishBand},
	} {
		if !(f.v >= 0 && f.v < 1) {
			errs = append(errs, fmt.Errorf("round %s is %v: want at least 0 and less than 1", f.name, f.v))
		}
	}
	if !(c.TrimLimit >= 0 && c.TrimLimit <= 5) {
		errs = append(errs, fmt.Errorf("round TrimLimit is %v: want 0 to 5", c.TrimLimit))
	}
	if c.Onset <= 0 || c.CatchUp <= 0 || c.Release <= 0 {
		errs = append(errs, fmt.Errorf("round Onset is %v, CatchUp %v and Release %v: want more than 0", c.Onset, c.CatchUp, c.Release))
	}
	if c.FallDelay < 0 {
		errs = append(errs, fmt.Errorf("round FallDelay is %v: want 0 or more", c.FallDelay))
	}
	if c.LongestGap <= 0 {
		errs = append(errs, fmt.Errorf("round LongestGap is %v: want more than 0", c.LongestGap))
	}
	if c.PublishInterval < 0 || c.PriceInterval < 0 || c.RefreshInterval < 0 || c.RefreshBand < 0 {
		errs = append(errs, fmt.Errorf("round PublishInterval is %v, PriceInterval %v, RefreshInterval %v and RefreshBand %v: want 0 or more",
			c.PublishInterval, c.PriceInterval, c.RefreshInterval, c.RefreshBand))
	}
	return errors.Join(errs...)
}

// Node is what Kubernetes says about the node.
type Node struct {
	Capacity    cpu.Milli
	Allocatable cpu.Milli
	// Pressures counts the node conditions MemoryPressure, DiskPressure and PIDPressure that
	// are true. Each takes a tenth off the supply.
	Pressures int
}

// PodInput is a pod in the market and what was last published about it.
type PodInput struct {
	demand.Pod
	Published Published
}

// Published is the decision that the pod's PodAllocation holds.
type Published struct {
	At     time.Time            // zero: never published
	Limits map[string]cpu.Milli // by container name
	Demand cpu.Milli
	Price  market.Price
}

// Input is everything a round may know. Pods and Sample.Pods stand in the same order, and so do
// their containers.
type Input struct {
	Now    time.Time // given, never asked for
	Node   Node
	Pods   []PodInput
	Sample kernel.Sample
}

// State is what one round leaves to the next. The zero value begins.
type State struct {
	last      kernel.Sample
	samples   int                        // samples of the node without a gap
	estimates map[string]demand.Estimate // by container ID
	fullFor   time.Duration              // for which no CPU has lain idle
	system    float64                    // smoothed CPU use outside of pods, in cores
	savings   map[string]time.Duration   // what each pod has saved of its share, by UID
	price     price
	solver    *market.Solver
}

// Output is what a round decided.
type Output struct {
	Node      NodeDecision
	Decisions []Decision // one per managed pod with fresh and warm rates, in the order of the input
	// Skipped counts managed pods without a decision.
	Skipped Skipped
}

// Skipped counts managed pods that got no decision in a round.
type Skipped struct {
	WarmingUp int // they, or the node, have not been watched for long enough
	Stale     int // their counters could not be read, or were reset, or are too far apart
	// Unenforced have a limit that the kernel does not hold them to: the kubelet sets no quotas, so to move the limit would do
	// nothing. They take part as shadows.
	Unenforced int
}

// NodeDecision is the market of the node in figures.
type NodeDecision struct {
	Price              market.Price // at which limits are set
	Cleared            market.Price // as cleared in this round, before bands and trim
	Supply             cpu.Milli
	Demand             cpu.Milli // of all bidders, shadows included
	SignalDemand       cpu.Milli // beyond that, asked to be kept free
	Usage              cpu.Milli // by pods
	UsageKnown         bool      // false: not told by this round's sample; the price stays
	System             cpu.Milli // by everything else, smoothed
	SystemKnown        bool      // false: not told by this round's sample; System is the last known, 0 if there is none
	Pressure           float64   // CPU pressure of the node
	PressureKnown      bool
	FloorsExceedSupply bool
	Released           bool // the price was dropped early because contention ended
	Bidders, Unmanaged int
}

// Decision is one pod's part of the round.
type Decision struct {
	UID        string
	Limit      cpu.Milli // the pod's total
	Containers []ContainerLimit
	// Demand, Usage, Throttle and Pressure are those of the pod's limited containers, which the limit is for.
	// The others take part as a shadow.
	Demand, Usage cpu.Milli
	ThrottleRatio float64
	Pressure      float64
	PressureKnown bool
	Stalls        *sense.Stalls // the worst of these containers'; nil where they are not read
	Budget        market.Budget
	Price         market.Price
	Floor         cpu.Milli
	Ceiling       cpu.Milli
	Bound         market.Bound
	// Publish: the decision differs enough from what was last published, and it is time.
	Publish bool
}

// ContainerLimit is the limit decided for one container.
type ContainerLimit struct {
	Name  string
	Limit cpu.Milli
}

// Run plays one round. The state is consumed: use the one returned.
func Run(cfg Config, s State, in Input) (State, Output) {
	if s.solver == nil {
		s.solver = new(market.Solver)
	}
	reading := sense.Compare(s.last, in.Sample, cfg.LongestGap) // sense
	s.last = in.Sample
	s.samples++
	if reading.Node.Validity != sense.Valid {
		s.samples = 0
	}

	var out Output
	out.Node, s.system = supply(cfg, in.Node, reading.Node, s.system)

	s.savings = cfg.Credits.accrue(s.savings, in.Pods, reading.Pods, coresPerBudget(out.Node.Supply, in.Pods), reading.Node.Elapsed)
	in.Pods = withKernelMinimums(cfg.Credits.apply(in.Pods, s.savings), reading.Pods)

	s.fullFor = updateFullFor(in.Node, reading.Node, s.fullFor) // demand
	perBudget := 0.0
	if lasted(s.fullFor, reading.Node.Elapsed, cfg.Onset) {
		perBudget = coresPerBudget(out.Node.Supply, in.Pods)
	}
	s.estimates = estimate(cfg.Demand, s.estimates, in.Pods, reading.Pods, perBudget)
	known := s.samples >= cfg.Demand.WarmUpSamples
	entries, held := bidders(cfg.Demand, in.Pods, reading.Pods, s.estimates, known)
	out.Skipped = held

	s.price = s.price.update(cfg, s.solver, entries, &out.Node, in.Now, reading.Node.Elapsed)
	if !known { // what the pods want of it is not known either
		s.price, out.Node.Price = price{}, 0
	}
	if out.Node.Released {
		lowerEstimates(cfg, s.estimates, in.Pods, entries)
	}

	out.Decisions = decide(cfg, in, reading.Pods, entries, s) // decision
	return s, out
}
