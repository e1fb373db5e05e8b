// Package demand estimates what each container would use if nothing held it back, and writes
// the bids of pods from that. Kernel truth comes before declared intent.
//
// What it promises, each a test of the same name:
//   - BurstsKeepTheirMean: a container throttled in fewer periods than SaturationFrom wants what it uses.
//   - SaturationDoublesAtMost: a container throttled in every period wants twice what it uses, never more.
//   - HeldBackShowsNoLess: what is throttled in every period never lowers its estimate.
//   - StarvedIsSeen: who waits for others on a full node wants up to twice what it uses, and up to its share.
//   - StalledGainsLittle: who is stalled on memory or IO wants no more than it could use without any limit, from
//     StalledFrom on just what it uses, and never less than that.
//   - GapDropsTheWindow: a gap, reset or restart starts the warm-up again and never makes a spike.
//   - ReadsFastUpSlowDown: estimates rise faster than they fall.
package demand

import (
	"errors"
	"fmt"
	"math"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/sense"
)

// Config is how demand is estimated.
type Config struct {
	// Rise and Fall are how far, per second, the estimate moves towards what is seen, in (0, 1].
	// Larger follows sooner and is less steady.
	Rise, Fall float64
	// WarmUpSamples is how many good samples a new container needs before its limit may be lowered. Fewer decide on
	// start-up noise; more leave a new pod at its declared limit for longer.
	WarmUpSamples int
	// SaturationThreshold is the throttle ratio from which a container is taken to want more than it
	// uses, in [0, 1). Lower sees held-back demand sooner, and takes bursts for need.
	SaturationThreshold float64
	// StarvationThreshold is the share of time spent waiting for a CPU (CPU pressure) from which a container on a full node is taken to
	// want more than it uses, in [0, 1]; 1 switches this off. Lower sees starvation sooner, and takes a queue of a
	// container's own threads for it.
	StarvationThreshold float64
	// StallThreshold is the share of time stalled on memory or IO, in (0, 1], from which a container is taken to want what it uses and
	// nothing more, however much it is throttled or waits for a CPU. Lower leaves more to others, and less to those that would be
	// somewhat faster with more. It counts only where stalls are read.
	StallThreshold float64
	// ThrottleThreshold is the throttle ratio from which a container counts as throttled, in (0, 1): it
	// tells need, and idle CPU that is kept from somebody, but does not shape the estimate. Lower reacts to less;
	// higher leaves short bursts alone.
	ThrottleThreshold float64
}

// DefaultConfig is what we would run ourselves.
func DefaultConfig() Config {
	return Config{Rise: 0.3, Fall: 0.1, WarmUpSamples: 10, SaturationThreshold: 0.5, StarvationThreshold: 0.2, StallThreshold: 0.8, ThrottleThreshold: 0.1}
}

// Validate says everything that is wrong.
func (c Config) Validate() error {
	var errs []error
	for _, f := range []struct {
		name string
		v    float64
	}{{"Rise", c.Rise}, {"Fall", c.Fall}} {
		if !(f.v > 0 && f.v <= 1) {
			errs = append(errs, fmt.Errorf("demand %s is %v: want more than 0 and at most 1", f.name, f.v))
		}
	}
	if c.WarmUpSamples < 1 {
		errs = append(errs, fmt.Errorf("demand WarmUpSamples is %d samples: want at least 1", c.WarmUpSamples))
	}
	if !(c.SaturationThreshold >= 0 && c.SaturationThreshold < 1) {
		errs = append(errs, fmt.Errorf("demand SaturationThreshold is %v: want at least 0 and less than 1", c.SaturationThreshold))
	}
	if !(c.StarvationThreshold >= 0 && c.StarvationThreshold <= 1) {
		errs = append(errs, fmt.Errorf("demand StarvationThreshold is %v: want at least 0 and at most 1", c.StarvationThreshold))
	}
	if !(c.StallThreshold > 0 && c.StallThreshold <= 1) {
		errs = append(errs, fmt.Errorf("demand StallThreshold is %v: want more than 0 and at most 1", c.StallThreshold))
	}
	if !(c.ThrottleThreshold > 0 && c.ThrottleThreshold < 1) {
		errs = append(errs, fmt.Errorf("demand ThrottleThreshold is %v: want more than 0 and less than 1", c.ThrottleThreshold))
	}
	return errors.Join(errs...)
}

// Estimate is what is known of one container's demand.
type Estimate struct {
	Samples       int     // good samples since it started or the last gap
	Mean          float64 // smoothed demand, in cores
	Latest        float64 // demand in the last tick alone, in cores
	ThrottleRatio float64 // smoothed throttle ratio, as far as more CPU would help
}

// Warm says whether the estimate rests on enough samples to lower a limit.
func (e Estimate) Warm(c Config) bool { return e.Samples >= c.WarmUpSamples }

// Demand is the smoothed demand.
func (e Estimate) Demand() cpu.Milli { return cpu.FromCores(e.Mean) }

// LatestDemand is the demand of the last tick alone.
func (e Estimate) LatestDemand() cpu.Milli { return cpu.FromCores(e.Latest) }

// Next folds one tick into the estimate. Where no CPU of the node lay idle, entitled is the container's share of the node by
// budget, and 0 elsewhere: who waits on a full node and uses less than that is starved by others.
func (c Config) Next(e Estimate, r sense.Rate, entitled cpu.Milli) Estimate {
	if r.Validity != sense.Valid {
		// Nothing is lowered before it is warm again, but its use has not gone because it could not be read.
		return Estimate{Mean: e.Mean * (1 - c.Fall)}
	}
	use, gain := r.Usage.Cores(), c.maxGain(r)
	held := min(gain, excess(r.ThrottleRatio, c.SaturationThreshold))
	more := held
	if r.PressureKnown && use > 0 {
		starved := min(use*(1+excess(r.Pressure, c.StarvationThreshold)), entitled.Cores())
		more = max(more, min(gain, starved/use-1))
	}
	now := use * (1 + more)
	seconds, throttle := r.Elapsed.Seconds(), min(gain, r.ThrottleRatio)
	if e.Samples == 0 {
		return Estimate{Samples: 1, Mean: now, Latest: now, ThrottleRatio: throttle}
	}
	return Estimate{
		Samples:       e.Samples + 1,
		Mean:          c.smooth(e.Mean, now, seconds, r, held),
		Latest:        now,
		ThrottleRatio: c.step(e.ThrottleRatio, throttle, seconds),
	}
}

// maxGain is by how much more than it uses, as a share of that, a container may be taken to want; nobody is taken to want more than
// twice. Who is stalled for a part s of the time could use at most 1/s times what it uses if nothing held it back: its
// stalls take as long, however much CPU there is, and the rest cannot take less than no time.
func (c Config) maxGain(r sense.Rate) float64 {
	if r.Stalls == nil {
		return 1
	}
	// A page that is read back from disk counts as both, so the parts do not add up.
	switch s := max(r.Stalls.Memory.Value, r.Stalls.IO.Value); {
	case s >= c.StallThreshold:
		return 0
	case s > 0.5:
		return 1/s - 1
	}
	return 1
}

// excess is 0 up to from and rises to 1 where the share is 1.
func excess(share, from float64) float64 {
	if from >= 1 {
		return 0
	}
	return min(1, max(0, (share-from)/(1-from)))
}

// smooth moves the estimate. What is held at its quota shows what it uses and not what it wants, so the more it is
// held back, the less it lowers the estimate. What uses clearly less than its quota was throttled in bursts only.
func (c Config) smooth(from, to, seconds float64, r sense.Rate, held float64) float64 {
	if to < from && r.QuotaKnown && float64(r.Usage) >= atQuota*float64(r.Quota) {
		seconds *= 1 - held
	}
	return c.step(from, to, seconds)
}

// atQuota is the share of its quota from which a throttled container counts as held there.
const atQuota = 0.85

func (c Config) step(from, to, seconds float64) float64 {
	alpha := c.Fall
	if to > from {
		alpha = c.Rise
	}
	return from + (to-from)*(1-math.Pow(1-alpha, seconds))
}
