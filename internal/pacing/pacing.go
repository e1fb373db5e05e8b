// Package pacing bounds how often the limit of a saturating pod is raised.
//
// A pod saturates if it would use any amount of CPU: it is throttled at its limit, or waits for a CPU of a
// full node, nearly all the time. More CPU gives it throughput, and a minute later is as good. Without a
// bound its limit follows each lull of the other pods, and is in their way when that ends. So each pod has a
// token bucket, and an increase of a pod that saturates takes a token. While the bucket is empty the limit
// stays; the next token raises it to the mean of what the market has left it since.
//
// It bounds what rounds decide. The first SaturatedAfter, a raised floor, and the raises of a look that
// sees another pod stop take no token.
//
// What it promises, each a test of the same name:
//   - SaturatesNearlyAllTheTime: a pod saturates if it wants more CPU for more than three quarters of the
//     time, until two minutes after it last did so for SaturatedAfter. Wanting more now and then keeps no
//     pod among those that saturate.
//   - IncreasesAreBounded: in any time a pod that saturates is raised at most Burst times, and once more
//     for each IncreaseInterval.
//   - TokensArePublications: an increase takes its token once it is published. One that is decided and not
//     published takes none, and stays the same however often it is decided again.
//   - IncreasesWaitBoundedly: a pod without tokens that is left more than Band all the time is raised within
//     IncreaseInterval, to the mean of what it is left.
//   - OffIsOff: without an interval no token is spent.
package pacing

import (
	"errors"
	"fmt"
	"time"

	"github.com/mbcas/mbcas/cpu"
)

// Config is the settings.
type Config struct {
	// SaturatedAfter is for how long a pod wants more CPU until it counts as one that saturates. Shorter
	// knows such pods sooner; longer takes fewer bursts for one.
	SaturatedAfter time.Duration
	// IncreaseInterval is the time in which a pod gains a token; 0: increases need none. Longer changes fewer
	// limits and leaves other pods more CPU in bursts; shorter leaves less CPU idle.
	IncreaseInterval time.Duration
	// Burst is how many tokens a pod has at first, and at most.
	Burst int
}

// DefaultConfig is the recommended config: no bound, and where IncreaseInterval sets one, eight increases at once.
func DefaultConfig() Config { return Config{SaturatedAfter: 30 * time.Second, Burst: 8} }

// Enabled says whether increases need tokens.
func (c Config) Enabled() bool { return c.IncreaseInterval > 0 }

// Validate returns every fault, joined.
func (c Config) Validate() error {
	var errs []error
	if c.SaturatedAfter <= 0 {
		errs = append(errs, fmt.Errorf("pacing SaturatedAfter is %v: want more than 0", c.SaturatedAfter))
	}
	if c.IncreaseInterval < 0 {
		errs = append(errs, fmt.Errorf("pacing IncreaseInterval is %v: want 0 or more", c.IncreaseInterval))
	}
	if c.Enabled() && c.Burst < 1 {
		errs = append(errs, fmt.Errorf("pacing Burst is %d: want at least 1", c.Burst))
	}
	return errors.Join(errs...)
}

// Pace is what is remembered of a pod. The zero value starts.
type Pace struct {
	busy, calm time.Duration // for which it has wanted more CPU, less what interrupted it; since busy was full
	saturates  bool
	spent      float64       // tokens that its bucket lacks
	from, to   cpu.Milli     // the increase that is decided and not published yet; from is 0 where there is none
	above      time.Duration // for which the market has left it more than its limit
	mean       float64       // of what the market has left it in that time, in cores
}

const (
	// busyFactor is how much faster a time without want counts than one with it: a pod saturates if it wants
	// more CPU for more than three quarters of the time.
	busyFactor = 3
	// saturatesFor is for how long a pod counts as one that saturates after it was seen to, for SaturatedAfter.
	saturatesFor = 2 * time.Minute
	// Band is the relative increase up to which the limit of a pod that saturates stays: it is worth no token.
	Band = 0.2
	// maxFactor is the largest factor of an increase.
	maxFactor = 4
)

// Note takes in a tick: how long it was, and whether the pod wanted more CPU.
func (p Pace) Note(c Config, wants bool, elapsed time.Duration) Pace {
	if p.calm += elapsed; wants {
		p.busy = min(p.busy+elapsed, c.SaturatedAfter)
	} else {
		p.busy = max(0, p.busy-busyFactor*elapsed)
	}
	if p.busy >= c.SaturatedAfter {
		p.saturates, p.calm = true, 0
	}
	p.saturates = p.saturates && p.calm < saturatesFor
	if p.spent -= elapsed.Seconds() / c.IncreaseInterval.Seconds(); p.spent < 0 || !c.Enabled() {
		p.spent = 0
	}
	return p
}

// Saturates says whether increases of the pod take tokens.
func (p Pace) Saturates() bool { return p.saturates }

// Next is the highest limit that the pod may have after a tick in which the market leaves it target; 0: any. An
// increase takes its token when limit shows it.
func (p Pace) Next(c Config, limit, target cpu.Milli, elapsed time.Duration) (after Pace, most cpu.Milli) {
	if p.from > 0 && limit > p.from {
		p.above, p.mean, p.from, p.spent = 0, 0, 0, p.spent+1
	}
	if !p.saturates || target.Cores() <= (1+Band)*limit.Cores() {
		p.above, p.mean = 0, 0
		if p.saturates {
			return p, limit
		}
		p.from = 0
		return p, 0
	}
	if elapsed <= 0 {
		return p, limit
	}
	p.above += elapsed
	bounded := min(target.Cores(), maxFactor*limit.Cores())
	p.mean += (bounded - p.mean) * elapsed.Seconds() / p.above.Seconds()
	if p.spent > float64(c.Burst-1) {
		return p, limit
	}
	if p.from != limit { // one that is decided again stays as it is: a publication may be on its way
		p.from, p.to = limit, max(limit, cpu.FromCores(p.mean))
	}
	return p, p.to
}

// Raised takes in that the pod was raised by what takes no token.
func (p Pace) Raised() Pace {
	p.above, p.mean, p.from = 0, 0, 0
	return p
}
