// Package pacing has limits change less often, in two ways.
//
// A burst that exceeds the share of its pod may end by itself. So each pod has an allowance, which it spends
// with what it demands beyond its share, and saves while it demands less, at any price. The price caps it
// once that is spent.
//
// A pod saturates if it would use any amount of CPU: it is throttled at its limit, or waits for a CPU of a
// full node, nearly all the time. More CPU gives it throughput, and some seconds later is as good. So an
// increase that had to be taken back makes its next one wait. Otherwise its limit would follow each lull
// of the other pods, and be in their way when that ends.
//
// What it promises, each a test of the same name:
//   - AllowancesAreSpentAndSaved: a pod may burst until it has demanded twice its share for BurstAllowance.
//   - SaturatesNearlyAllTheTime: a pod saturates if it wants more CPU for more than three quarters of the
//     time, and two minutes later it does not any more.
//   - RegretDelaysIncreases: an increase that is taken back doubles the wait for the next, up to
//     LongestDelay; the first waits for nothing, and calm ends the wait.
//   - IncreasesWaitBoundedly: a pod that waits is raised to the mean of what it is left, within its delay.
package pacing

import (
	"errors"
	"fmt"
	"time"

	"github.com/mbcas/mbcas/cpu"
)

// Config is the settings. The zero value of all but SaturatedAfter is off.
type Config struct {
	// BurstAllowance is for how long a pod may demand twice its share before the price caps it; 0: at once.
	// Longer caps fewer bursts; shorter caps saturating pods sooner.
	BurstAllowance time.Duration
	// SaturatedAfter is for how long a pod wants more CPU until it counts as one that saturates. Shorter
	// knows such pods sooner; longer takes fewer bursts for one.
	SaturatedAfter time.Duration
	// LeastDelay and LongestDelay bound the wait for an increase of a pod that saturates, after one that had
	// to be taken back; 0: there is none. Longer moves fewer limits; shorter leaves less CPU idle.
	LeastDelay, LongestDelay time.Duration
}

// Off is the config without allowances and waits.
func Off() Config { return Config{SaturatedAfter: 30 * time.Second} }

// Enabled says whether pods have paces.
func (c Config) Enabled() bool { return c.BurstAllowance > 0 || c.LongestDelay > 0 }

// Validate returns every fault, joined.
func (c Config) Validate() error {
	var errs []error
	if c.BurstAllowance < 0 {
		errs = append(errs, fmt.Errorf("pacing BurstAllowance is %v: want 0 or more", c.BurstAllowance))
	}
	if c.SaturatedAfter <= 0 {
		errs = append(errs, fmt.Errorf("pacing SaturatedAfter is %v: want more than 0", c.SaturatedAfter))
	}
	if c.LeastDelay < 0 || c.LongestDelay < c.LeastDelay || c.LeastDelay == 0 && c.LongestDelay > 0 {
		errs = append(errs, fmt.Errorf("pacing LeastDelay is %v and LongestDelay %v: want 0 for both, or the first above 0 and at "+
			"most the second", c.LeastDelay, c.LongestDelay))
	}
	return errors.Join(errs...)
}

// Pace is what is remembered of a pod. The zero value starts.
type Pace struct {
	spent      float64       // of its allowance, in seconds of its share
	busy, calm time.Duration // for which it has wanted more CPU, less what interrupted it; since it did
	saturates  bool
	delay      time.Duration // of its next increase
	above      time.Duration // for which the market has left it more than its limit
	mean       float64       // of what the market has left it in that time, in cores
	raisedAt   time.Time     // zero: that increase has been judged
	judgedAt   time.Time     // when the delay changed last
}

const (
	// busyFactor is how much faster a time without want counts than one with it: a pod saturates if it wants
	// more CPU for more than three quarters of the time.
	busyFactor = 3
	// saturatesFor is for how long a pod counts as one that saturates after it has wanted more CPU.
	saturatesFor = 2 * time.Minute
	// Band is the relative increase up to which the limit of a pod stays that waits for its increases.
	Band = 0.2
	// maxFactor is the largest factor of an increase that waited.
	maxFactor = 4
	// regretDelays is the number of delays within which an increase proves wrong.
	regretDelays = 3
	// regretBand is the relative decrease from which an increase is taken back.
	regretBand = 0.1
	// calmTime is the time without a wrong increase after which the delay halves.
	calmTime = 5 * time.Minute
)

// Note takes in whether the pod wanted more CPU, and what it demanded as a multiple of its share.
func (p Pace) Note(c Config, wants bool, ofShare float64, elapsed time.Duration) Pace {
	p.spent = min(max(0, p.spent+(ofShare-1)*elapsed.Seconds()), c.BurstAllowance.Seconds())
	if wants {
		p.busy, p.calm = min(p.busy+elapsed, c.SaturatedAfter), 0
	} else {
		p.busy, p.calm = max(0, p.busy-busyFactor*elapsed), p.calm+elapsed
	}
	p.saturates = p.busy >= c.SaturatedAfter || p.saturates && p.calm < saturatesFor
	return p
}

// Waits says whether increases of the pod may wait.
func (p Pace) Waits(c Config) bool { return p.saturates && c.LongestDelay > 0 }

// MayBurst says whether the pod may demand more than its share. One that saturates may not.
func (p Pace) MayBurst(c Config) bool { return p.spent < c.BurstAllowance.Seconds() && !p.saturates }

// Follow moves on by a tick in which the market leaves the pod a target. most is the highest limit that it
// may have now; 0: any.
func (p Pace) Follow(
	c Config, limit, target cpu.Milli, now time.Time, elapsed time.Duration,
) (after Pace, most cpu.Milli) {
	p = p.judge(c, limit, target, now)
	raises := target.Cores() > (1+Band)*limit.Cores()
	switch {
	case !p.saturates || p.delay == 0:
		if p.above, p.mean = 0, 0; raises {
			p.raisedAt = now
		}
		return p, 0
	case !raises:
		p.above, p.mean = 0, 0
		return p, limit
	}
	if elapsed <= 0 {
		return p, limit
	}
	left := min(target.Cores(), maxFactor*limit.Cores())
	p.above += elapsed
	p.mean += (left - p.mean) * min(1, elapsed.Seconds()/p.above.Seconds())
	if p.above+elapsed/2 < p.delay { // ticks jitter
		return p, limit
	}
	most = max(limit, cpu.FromCores(p.mean))
	p.above, p.mean, p.raisedAt = 0, 0, now
	return p, most
}

// judge doubles the delay where an increase has to be taken back soon, and halves it after calm.
func (p Pace) judge(c Config, limit, target cpu.Milli, now time.Time) Pace {
	switch {
	case p.raisedAt.IsZero():
		if p.delay > 0 && now.Sub(p.judgedAt) >= calmTime {
			if p.judgedAt, p.delay = now, p.delay/2; p.delay < c.LeastDelay {
				p.delay = 0
			}
		}
	case now.Sub(p.raisedAt) > regretDelays*max(p.delay, c.LeastDelay):
		p.raisedAt = time.Time{}
	case target.Cores() < (1-regretBand)*limit.Cores():
		p.delay = min(max(2*p.delay, c.LeastDelay), c.LongestDelay)
		p.raisedAt, p.judgedAt = time.Time{}, now
	}
	return p
}
