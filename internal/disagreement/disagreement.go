// Package disagreement computes what each pod of a node keeps at any price.
//
// No pod is worse off than with its limits as declared, except for the sake of a waiting pod of higher priority,
// and except for a share that saturating pods leave to others. What declared limits give a pod is the
// disagreement point of the market (Nash 1950, The Bargaining Problem, Econometrica 18): the weighted max-min
// division of the node's CPU by requests, as the kernel's weights divide it. A pod that is raised above its
// declared limit may take what declared limits give another one until its raise is revoked.
//
// What it promises, each a test of the same name:
//   - SaturatesMostOfTheTime: a pod saturates if it takes all it can get for more than three quarters of the time,
//     which counts only while its limit is at least the declared one; and until it takes less.
//   - GivenIsWhileItIsGiven: what declared limits give a pod now and then counts with what they give it then.
//   - RevocationsAreRare: after a revoked raise a pod waits for the next one, longer while that happens again.
//   - OnlyRaisesAboveDeclaredLimitsAreRecent: and not those while a price caps pods.
//   - FullPodsClaimNothing: what declared limits give a pod it claims from no other.
//   - WaitingPodsClaim: what a pod keeps falls while pods of higher priority wait, and does not rise for claimLasts.
package disagreement

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/market"
)

// Config is the settings.
type Config struct {
	// Leave is the share of what declared limits give a saturating pod which it leaves to others, in [0, 1). Larger
	// leaves services more for bursts; smaller keeps batch work closer to its declared limits.
	Leave float64
	// SaturatedAfter is for how long a pod takes all it can get until it saturates; half of that for one that hardly
	// ever took less. Shorter knows such pods sooner; longer takes fewer bursts for one.
	SaturatedAfter time.Duration
}

// DefaultConfig is the recommended config.
func DefaultConfig() Config { return Config{Leave: 0.2, SaturatedAfter: 40 * time.Second} }

// Enabled says whether pods keep anything.
func (c Config) Enabled() bool { return c.SaturatedAfter > 0 }

// Validate says everything that is wrong.
func (c Config) Validate() error {
	var errs []error
	if c.Leave < 0 || c.Leave >= 1 {
		errs = append(errs, fmt.Errorf("disagreement Leave is %v: want at least 0 and less than 1", c.Leave))
	}
	if c.SaturatedAfter < 0 {
		errs = append(errs, fmt.Errorf("disagreement SaturatedAfter is %v: want 0 or more", c.SaturatedAfter))
	}
	return errors.Join(errs...)
}

const (
	// WaitsFrom is the share of a tick from which a pod waits.
	WaitsFrom = 0.3
	// claimLasts is for how long after a pod waited its claim keeps limits where they are: bursts repeat, and a limit
	// that has been raised by the next one is lowered step by step, during the burst. Such a claim lowers no limit, as
	// the estimate of demand is too high just after load ends: it falls by a tenth in a second.
	claimLasts = 10 * time.Second
	// waitingShare is the share of its declared limit from which a pod waits, throttled or not: a burst takes it from
	// there to all of that before the next round.
	waitingShare = 0.5
	// claimFactor is how much a waiting pod needs, as a multiple of its demand: that is a mean, and bursts exceed it. It
	// claims this, as far as its ceiling allows it, less that part of its demand that declared limits give it.
	claimFactor = 3
)

// Pod is a bidder in a tick. The parts of pods that are not managed have no UID.
type Pod struct {
	UID      string
	Request  cpu.Milli
	Demand   cpu.Milli // of the tick
	Mean     cpu.Milli // demand, smoothed
	Usage    cpu.Milli
	Limit    cpu.Milli // in force, of what waits; what the rest uses
	Declared cpu.Milli // limit, as far as the ceiling allows it
	Ceiling  cpu.Milli
	Priority int32 // factor on its budget, in percent
	// Has is its limit, or what is decided as such and not in force yet, if that is lower.
	Has cpu.Milli
	// Waits is the share of the tick in which it was throttled, or waited for a CPU of a full node.
	Waits float64
	// MayWait: it may have waited for a CPU of a full node, where the kernel does not say.
	MayWait bool
	// BelowDeclared: its limit is below the declared one. Capped: the market decided a limit that clearly is.
	BelowDeclared, Capped bool
}

// Tick is the time from one round to the next.
type Tick struct {
	Now     time.Time
	Elapsed time.Duration
	Supply  cpu.Milli // what pods can use of the node
	Pods    []Pod
}

// Kept is what a pod keeps.
type Kept struct {
	Limit     cpu.Milli
	Saturates bool
}

// Keep is what each pod keeps after a tick, in the order of the pods. A capped pod that is not known saturated before
// the state was lost.
func (s State) Keep(c Config, solver *market.Solver, t Tick) []Kept {
	problem := s.asDeclared(c, t)
	price := solver.Clear(problem).Price
	given := make([]cpu.Milli, len(t.Pods))
	by := claims{waiting: map[int32]cpu.Milli{}, recent: map[int32]cpu.Milli{}, given: map[int32]cpu.Milli{}}
	for i, p := range t.Pods {
		if p.UID == "" {
			continue
		}
		gets := problem.Bids[i].Usage(price)
		pod := s[p.UID].smoothed(gets, t.Elapsed)
		took, waits := 0.0, p.Waits >= WaitsFrom
		switch {
		case p.Waits >= alwaysWaits:
			took = 1
		case waits || p.MayWait:
			took = p.Usage.Cores() / max(1, min(p.Limit, ifItTookAll(solver, problem, i))).Cores()
		}
		claims := waits && p.Limit < p.Ceiling || p.Usage.Cores() >= waitingShare*p.Declared.Cores()
		if claims {
			pod.waitedAt, pod.claim = t.Now, max(0, min(p.Ceiling, claimFactor*p.Mean)-min(gets, p.Mean))
		}
		pod = pod.next(c, p.BelowDeclared, took, t.Elapsed)
		s[p.UID], given[i] = pod, pod.given()
		by.add(p.Priority, given[i], min(p.Ceiling, pod.claim), claims, t.Now.Sub(pod.waitedAt))
	}
	kept := make([]Kept, len(t.Pods))
	for i, p := range t.Pods {
		if p.UID == "" {
			continue
		}
		k := Kept{Limit: p.Declared, Saturates: s[p.UID].saturates}
		if k.Saturates {
			k.Limit = min(k.Limit, cpu.FromCores((1-c.Leave)*given[i].Cores()))
		}
		least := cpu.FromCores(max(0, 1-by.share(by.recent, p.Priority)) * k.Limit.Cores())
		most := cpu.FromCores(max(0, 1-by.share(by.waiting, p.Priority)) * k.Limit.Cores())
		k.Limit = max(least, min(most, p.Has))
		kept[i] = k
	}
	return kept
}

// asDeclared is the market of the tick with every limit as declared. Budgets are requests, and there is no reserve. A
// saturating pod demands all that it can get: a limit of ours hides how much that is.
func (s State) asDeclared(c Config, t Tick) market.Problem {
	problem := market.Problem{Supply: max(0, t.Supply), Bids: make([]market.Bid, len(t.Pods))}
	for i, p := range t.Pods {
		bid := market.Bid{Budget: max(2, market.Budget(p.Request)), Demand: p.Demand, Ceiling: p.Demand}
		if p.UID != "" {
			if _, known := s[p.UID]; !known && p.Capped {
				s[p.UID] = pod{busy: c.SaturatedAfter, saturates: true}
			}
			if bid.Ceiling = p.Declared; s[p.UID].saturates {
				bid.Demand = bid.Ceiling
			}
		}
		problem.Bids[i] = bid
	}
	return problem
}

// ifItTookAll is what a bidder gets in this market if it takes all it can get.
func ifItTookAll(solver *market.Solver, problem market.Problem, i int) cpu.Milli {
	bid := &problem.Bids[i]
	demand := bid.Demand
	bid.Demand = bid.Ceiling
	could := bid.Usage(solver.Clear(problem).Price)
	bid.Demand = demand
	return could
}

// claims are sums by priority: what pods that wait claim from those of lower priority, what pods claim that wait or have
// waited recently, and what declared limits give to all pods.
type claims struct{ waiting, recent, given map[int32]cpu.Milli }

// add adds a pod, with what declared limits give it, what it claimed when it last waited, whether it waits, and how long
// ago it last did.
func (c claims) add(priority int32, given, claim cpu.Milli, waits bool, ago time.Duration) {
	c.given[priority] += given
	if waits {
		c.waiting[priority] += claim
	}
	if ago <= claimLasts {
		c.recent[priority] += claim
	}
}

// share is the part of what declared limits give to a pod of this priority that those of higher priority claim: each
// claim is divided among all pods of lower priority. It exceeds 1 where they claim more than there is.
func (c claims) share(of map[int32]cpu.Milli, priority int32) (share float64) {
	for _, high := range slices.Sorted(maps.Keys(of)) {
		var given cpu.Milli
		for p, m := range c.given {
			if p < high {
				given += m
			}
		}
		if high > priority {
			share += of[high].Cores() / max(1, given).Cores()
		}
	}
	return share
}
