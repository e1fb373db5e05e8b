package round

import (
	"errors"
	"fmt"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/disagreement"
)

// Config is the settings of a node's market.
type Config struct {
	Demand demand.Config
	// LongestGap is the longest time between two samples that still yields rates.
	LongestGap time.Duration
	// LookInterval is the time between two looks, which raise limits between two rounds; 0: there are none. Shorter
	// raises sooner; longer costs less.
	LookInterval time.Duration
	// Reserve is the share of allocatable CPU that the market does not sell, in [0, 1). Larger means less waiting for
	// uncapped pods; smaller means more throughput.
	Reserve float64
	// PriceBand is the relative change of the price that changes no limit. Larger is steadier.
	PriceBand float64
	// FallDelay is how long a lower price must have sufficed before the price falls. Longer is steadier and protects
	// from bursts that repeat; shorter leaves less CPU unused.
	FallDelay time.Duration
	// Onset is how long no CPU must have been idle until a container that waits below its share counts as starved,
	// and no raise is revoked any more. Shorter caps a saturating pod sooner; longer tolerates bursts. Onset and
	// Release are rounded to whole rounds, at least one.
	Onset time.Duration
	// Release is how long ReleaseIdle of the supply must be idle while a pod is throttled, or half as long where
	// twice as much is, for the price to be cleared from the last tick alone. Shorter gives idle CPU back sooner;
	// longer tolerates lulls of pods that get what they demand.
	Release time.Duration
	// ReleaseIdle is the share of the supply that counts as idle for Release. Smaller gives idle CPU back sooner;
	// larger tolerates noise.
	ReleaseIdle float64
	// EarlyFall is how soon after a fall of the price a rise shows that it fell too early. The next fall waits 4 times as
	// long, and 16 times after another, until one proves right or they are forgotten: load that comes in bursts moves no
	// limit. Longer is steadier and follows slow bursts less; shorter leaves less CPU unused between bursts; 0: never.
	EarlyFall time.Duration
	// ReleaseBand is how far, as a share of the supply, demand must fall below the supply before the price returns to
	// zero. Larger is steadier; smaller gives idle CPU back sooner.
	ReleaseBand float64
	// CapBand is how far, as a share, the demand of an uncapped pod must exceed its budget line for the pod to be
	// capped, and what a pod keeps must be below its limit for one that demands no more to be lowered. Larger is
	// steadier; smaller leaves less of other shares to pods just above their own.
	CapBand float64
	// Disagreement is what pods keep at any price of what declared limits give them; its zero value: nothing, and no
	// limit is revocable.
	Disagreement disagreement.Config
	// BoundRaises has limits raised to what the demands of the other pods leave, while CPU has no price or the pod
	// saturates or seems to. Off, they are raised to the ceiling: a first burst is throttled less, and a pod that begins
	// to saturate takes more from the others until it is capped.
	BoundRaises bool
	// PublishBand is the relative change of a limit that is published.
	PublishBand float64
	// PublishInterval is the least time between two published decisions of a pod. A raise need not wait for it, nor
	// more CPU to a throttled container, nor a decrease of a pod whose raise was revoked. Longer costs less; shorter
	// gives the controller fresher targets.
	PublishInterval time.Duration
	// QuotaInterval and FiguresInterval are the least times after which a decision is published again although no
	// limit has changed: the first for the demand of a pod that shares a short quota, the second for what binds the
	// limit of any pod and, while CPU has a price, for its demand. Longer costs less; shorter gives the division of
	// the quota and the coordinator fresher figures.
	QuotaInterval, FiguresInterval time.Duration
	// DemandBand is the change of demand, besides a quarter of it and one percent of the node's allocatable CPU, that
	// does not count for this. Larger writes less for small pods that vary; smaller gives fresher figures.
	DemandBand cpu.Milli
}

// DefaultConfig is the recommended config.
func DefaultConfig() Config {
	return Config{
		Demand:          demand.DefaultConfig(),
		LongestGap:      3 * time.Second,
		LookInterval:    200 * time.Millisecond,
		Reserve:         0.10,
		PriceBand:       0.15,
		FallDelay:       10 * time.Second,
		Onset:           2 * time.Second,
		Release:         2 * time.Second,
		ReleaseIdle:     0.15,
		EarlyFall:       20 * time.Second,
		ReleaseBand:     0.05,
		Disagreement:    disagreement.DefaultConfig(),
		CapBand:         0.30,
		BoundRaises:     true,
		PublishBand:     0.10,
		PublishInterval: 5 * time.Second,
		QuotaInterval:   30 * time.Second,
		FiguresInterval: 20 * time.Minute,
		DemandBand:      20,
	}
}

// Validate returns every fault, joined.
func (c Config) Validate() error {
	errs := []error{c.Demand.Validate(), c.Disagreement.Validate()}
	share := func(v float64) bool { return v >= 0 && v < 1 }
	const shares, positive, notNegative = "at least 0 and less than 1", "more than 0", "0 or more"
	for _, f := range []struct {
		name  string
		v     any
		valid bool
		want  string
	}{
		{"LongestGap", c.LongestGap, c.LongestGap > 0, positive},
		{"LookInterval", c.LookInterval, c.LookInterval == 0 || c.LookInterval >= leastLook && c.LookInterval < longestLook,
			"0, or at least 100ms and less than 1s"},
		{"Reserve", c.Reserve, share(c.Reserve), shares},
		{"PriceBand", c.PriceBand, share(c.PriceBand), shares},
		{"FallDelay", c.FallDelay, c.FallDelay >= 0, notNegative},
		{"Onset", c.Onset, c.Onset > 0, positive},
		{"Release", c.Release, c.Release > 0, positive},
		{"ReleaseIdle", c.ReleaseIdle, share(c.ReleaseIdle), shares},
		{"EarlyFall", c.EarlyFall, c.EarlyFall >= 0, notNegative},
		{"ReleaseBand", c.ReleaseBand, share(c.ReleaseBand), shares},
		{"CapBand", c.CapBand, share(c.CapBand), shares},
		{"PublishBand", c.PublishBand, share(c.PublishBand), shares},
		{"PublishInterval", c.PublishInterval, c.PublishInterval >= 0, notNegative},
		{"QuotaInterval", c.QuotaInterval, c.QuotaInterval >= 0, notNegative},
		{"FiguresInterval", c.FiguresInterval, c.FiguresInterval >= 0, notNegative},
		{"DemandBand", c.DemandBand, c.DemandBand >= 0, notNegative},
	} {
		if !f.valid {
			errs = append(errs, fmt.Errorf("round %s is %v: want %s", f.name, f.v, f.want))
		}
	}
	return errors.Join(errs...)
}
