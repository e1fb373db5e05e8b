// Package demand estimates the CPU that each container would use with no limit, and has what a pod
// brings to the market: bounds, budget and demand. Kernel counters come before declared intent.
//
// What it promises, each a test of the same name:
//   - BurstsKeepTheirMean: the demand of a container that is throttled in fewer periods than
//     SaturationThreshold is its usage.
//   - SaturationDoublesAtMost: the demand of a container that is throttled in every period is twice
//     its usage, never more.
//   - ThrottlingKeepsTheEstimate: usage at the quota, throttled in every period, never lowers the
//     estimate.
//   - ThrottlingShowsMoreDemand: nor does throttling in some periods lower it to the quota.
//   - StarvationIsSeen: the demand of a container that waits for a CPU on a full node is up to
//     twice its usage, and up to its share.
//   - StallsBoundDemand: the demand of a container that is stalled on memory or IO is at most its
//     usage without any limit; from StallThreshold on, it is its usage.
//   - GapDropsTheWindow: a gap, reset or restart starts the warm-up again and never causes a spike.
//   - RisesFastFallsSlowly: estimates rise faster than they fall.
package demand

import (
	"errors"
	"fmt"
	"math"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/sense"
)

// Config is the settings of the estimator.
type Config struct {
	// Rise and Fall are how far, per second, the estimate moves towards the measured demand, in
	// (0, 1]. Larger follows sooner and is less steady.
	Rise, Fall float64
	// WarmUpSamples is how many valid samples a new container needs before its limit may be lowered.
	// Fewer decide on start-up noise; more leave a new pod at its declared limit for longer.
	WarmUpSamples int
	// SaturationThreshold is the throttle ratio from which the demand of a container exceeds its
	// usage, in [0, 1). Lower detects saturation sooner, and takes bursts for it.
	SaturationThreshold float64
	// StarvationThreshold is the CPU pressure (share of time waiting for a CPU) from which the demand
	// of a container on a full node exceeds its usage, in [0, 1]; 1 switches this off. Lower detects
	// starvation sooner, and takes a queue of the container's own threads for it.
	StarvationThreshold float64
	// StallThreshold is the share of time stalled on memory or IO, in (0, 1], from which the demand
	// of a container is its usage, however much it is throttled or waits for a CPU. Lower leaves more
	// to other pods, and less to those that more CPU would still speed up a little. It counts only
	// where stalls are read.
	StallThreshold float64
	// ThrottleThreshold is the throttle ratio from which a container counts as throttled, in (0, 1).
	// It shows need, and idle CPU that a limit withholds, but does not change the estimate. Lower
	// reacts to less; higher ignores short bursts.
	ThrottleThreshold float64
}

// DefaultConfig is the recommended config.
func DefaultConfig() Config {
	return Config{
		Rise: 0.3, Fall: 0.1, WarmUpSamples: 10,
		SaturationThreshold: 0.5, StarvationThreshold: 0.2, StallThreshold: 0.8, ThrottleThreshold: 0.1,
	}
}

// Validate returns every fault, joined.
func (c Config) Validate() error {
	var errs []error
	for _, f := range []struct {
		name  string
		v     float64
		valid bool
		want  string
	}{
		{"Rise", c.Rise, c.Rise > 0 && c.Rise <= 1, "more than 0 and at most 1"},
		{"Fall", c.Fall, c.Fall > 0 && c.Fall <= 1, "more than 0 and at most 1"},
		{"WarmUpSamples", float64(c.WarmUpSamples), c.WarmUpSamples >= 1, "at least 1"},
		{"SaturationThreshold", c.SaturationThreshold, c.SaturationThreshold >= 0 && c.SaturationThreshold < 1,
			"at least 0 and less than 1"},
		{"StarvationThreshold", c.StarvationThreshold, c.StarvationThreshold >= 0 && c.StarvationThreshold <= 1,
			"at least 0 and at most 1"},
		{"StallThreshold", c.StallThreshold, c.StallThreshold > 0 && c.StallThreshold <= 1, "more than 0 and at most 1"},
		{"ThrottleThreshold", c.ThrottleThreshold, c.ThrottleThreshold > 0 && c.ThrottleThreshold < 1,
			"more than 0 and less than 1"},
	} {
		if !f.valid {
			errs = append(errs, fmt.Errorf("demand %s is %v: want %s", f.name, f.v, f.want))
		}
	}
	return errors.Join(errs...)
}

// Estimate is the estimated demand of one container.
type Estimate struct {
	Samples       int     // valid ones since its start or the last gap
	Mean          float64 // smoothed demand, in cores
	Latest        float64 // demand of the last tick alone, in cores
	ThrottleRatio float64 // smoothed, as far as more CPU would help
	// Pressure is that for a CPU as last read, which need not be in each tick. It is shown only.
	Pressure sense.Ratio
}

// Warm says whether the estimate has enough samples to lower a limit.
func (e Estimate) Warm(c Config) bool { return e.Samples >= c.WarmUpSamples }

// Demand is the smoothed demand.
func (e Estimate) Demand() cpu.Milli { return cpu.FromCores(e.Mean) }

// LatestDemand is the demand of the last tick alone.
func (e Estimate) LatestDemand() cpu.Milli { return cpu.FromCores(e.Latest) }

// Next folds one tick into the estimate. share is the container's share of the node by its budget
// while no CPU of the node is idle, and 0 otherwise: a container that waits for a CPU on a full
// node and uses less than its share is starved.
func (c Config) Next(e Estimate, r sense.Rate, share cpu.Milli) Estimate {
	if r.Validity != sense.Valid {
		// No limit is lowered until the estimate is warm again, but unreadable usage has not ended.
		return Estimate{Mean: e.Mean * (1 - c.Fall)}
	}
	usage, maxGain := r.Usage.Cores(), c.maxGain(r)
	saturation := min(maxGain, aboveThreshold(r.ThrottleRatio, c.SaturationThreshold))
	gain := saturation
	if r.Pressure.Known && usage > 0 {
		starved := min(usage*(1+aboveThreshold(r.Pressure.Value, c.StarvationThreshold)), share.Cores())
		gain = max(gain, min(maxGain, starved/usage-1))
	}
	latest := usage * (1 + gain)
	seconds, throttleRatio, pressure := r.Elapsed.Seconds(), min(maxGain, r.ThrottleRatio), r.Pressure
	if r.PressureUnread {
		pressure = e.Pressure
	}
	if e.Samples == 0 {
		return Estimate{Samples: 1, Mean: latest, Latest: latest, ThrottleRatio: throttleRatio, Pressure: pressure}
	}
	weight, target := seconds, latest
	if latest < e.Mean && r.QuotaKnown && float64(r.Usage) >= quotaThreshold*float64(r.Quota) {
		// At its quota a container shows its usage and not its demand, so the more it is throttled,
		// the less it lowers the estimate. Usage clearly below the quota was throttled in bursts only.
		weight *= 1 - saturation
		if throttleRatio >= c.ThrottleThreshold {
			target = max(latest, min(e.Mean, withheldGain*(r.Quota+cpu.Quantum).Cores()))
		}
	}
	return Estimate{
		Samples:       e.Samples + 1,
		Mean:          c.smooth(e.Mean, target, weight),
		Latest:        latest,
		ThrottleRatio: c.smooth(e.ThrottleRatio, throttleRatio, seconds),
		Pressure:      pressure,
	}
}

// quotaThreshold is the share of its quota from which the usage of a container is at the quota.
const quotaThreshold = 0.85

// withheldGain is the multiple of its quota below which the estimate of a container does not fall while it
// is throttled at that quota: it demands more than the quota. An estimate that came down to the quota
// would uncap the pod, its usage would cap it again, and so on for as long as its demand stays. It is
// above the bands within which a quota may stay below the limit that was decided.
const withheldGain = 1.15

// maxGain is by how much demand can exceed usage, as a share of usage: at most 1. A container that
// is stalled for a part s of the time could use at most 1/s times its usage with no limit: its
// stalls take as long with any amount of CPU, and the rest of its work cannot take less than no
// time.
func (c Config) maxGain(r sense.Rate) float64 {
	if r.Stalls == nil {
		return 1
	}
	// Reading back a page from disk counts as both, so the two are not added.
	switch s := max(r.Stalls.Memory.Value, r.Stalls.IO.Value); {
	case s >= c.StallThreshold:
		return 0
	case s > 0.5:
		return 1/s - 1
	}
	return 1
}

// aboveThreshold is 0 up to the threshold and rises to 1 at a ratio of 1.
func aboveThreshold(ratio, threshold float64) float64 {
	if threshold >= 1 {
		return 0
	}
	return min(1, max(0, (ratio-threshold)/(1-threshold)))
}

// smooth moves a value towards another for a time in seconds: exponential smoothing.
func (c Config) smooth(from, to, seconds float64) float64 {
	alpha := c.Fall
	if to > from {
		alpha = c.Rise
	}
	return from + float64((to-from)*(1-math.Pow(1-alpha, seconds)))
}
