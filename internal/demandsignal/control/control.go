// Package control turns a metric and its target into the percentage that multiplies the demand of a workload's pods. It is pure.
//
// While the metric is above its target the percentage grows, and below it shrinks, by a share of the metric's error for each minute:
// integral control of logarithms, as a HorizontalPodAutoscaler's rule is, slowed down. What keeps it from swinging is its gain,
// which stays below the bound for the delay with which a metric answers (docs/demand-signals.md).
//
// What it promises, each a test of the same name:
//   - Bounded: a percentage lies within its bounds, or there is none.
//   - GrowsWithTheMetric: of two samples the higher one never leads to the lower percentage.
//   - ComesToRest: in a closed loop with delay the percentage stops, with the metric at its target or the percentage at a bound.
//   - MovesSlowly: however far off the metric is, a minute moves the percentage by 15 % at most.
//   - ForgetsAMetricThatIsGone: a minute after the last sample the percentage goes back to 100, and then there is none.
package control

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Config is the gain and the bounds of the control.
type Config struct {
	// Gain is the share of the logarithm of metric over target that is added to that of the percentage in a minute. Larger
	// reaches the target sooner, and swings where metrics answer late.
	Gain float64
	// Tolerance is how far the metric may be from its target, as a share of it, for nothing to be done. Larger is
	// steadier; smaller comes closer.
	Tolerance float64
	// MaxRatio bounds the ratio of metric and target, and of target and metric.
	MaxRatio float64
	// MaxAge is how old a value may be, and how far in the future its time may lie, to be used.
	MaxAge time.Duration
	// RetainFor is how long the percentage stays after the last usable value. Longer rides out gaps; shorter falls
	// back to the kernel's signals sooner.
	RetainFor time.Duration
	// HalfLife is the time in which the percentage then goes half of the way back to 100.
	HalfLife time.Duration
	// MinChange is by how many points the percentage must have changed to be published. Larger is steadier and costs fewer writes.
	MinChange int32
}

// DefaultConfig is what we would run ourselves.
func DefaultConfig() Config {
	return Config{
		Gain: 0.1, Tolerance: 0.1, MaxRatio: 4, MaxAge: 2 * time.Minute, RetainFor: time.Minute, HalfLife: 15 * time.Second, MinChange: 5,
	}
}

// Validate says everything that is wrong.
func (c Config) Validate() error {
	var errs []error
	if !(c.Gain > 0 && c.Gain <= 10) || !(c.Tolerance >= 0 && c.Tolerance < 1) || !(c.MaxRatio > 1) {
		errs = append(errs, fmt.Errorf("signal Gain is %v, Tolerance %v and MaxRatio %v: want more than 0 and at most 10, at least 0 and less than 1, and more than 1", c.Gain, c.Tolerance, c.MaxRatio))
	}
	if c.MaxAge <= 0 || c.RetainFor < 0 || c.HalfLife <= 0 {
		errs = append(errs, fmt.Errorf("signal MaxAge is %v, RetainFor %v and HalfLife %v: want more than 0, 0 or more, and more than 0", c.MaxAge, c.RetainFor, c.HalfLife))
	}
	if c.MinChange < 0 {
		errs = append(errs, fmt.Errorf("signal MinChange is %d: want 0 or more", c.MinChange))
	}
	return errors.Join(errs...)
}

// Bounds are those of the percentage.
type Bounds struct{ Min, Max int32 }

func (b Bounds) clamp(percent int32) int32 { return max(b.Min, min(b.Max, percent)) }

// Sample is a value of the metric and its target.
type Sample struct {
	Value, Target float64
	At            time.Time // of the value
}

// Fault is why a sample cannot be used.
type Fault uint8

const (
	Usable        Fault = iota
	NotANumber          // the value is below zero or no number; 0 is one: a queue is empty for most of its life
	Stale               // it is too old
	FromTheFuture       // its time has not come: the clocks disagree
)

// Check says why the sample cannot be used.
func (c Config) Check(r Sample, now time.Time) Fault {
	switch {
	case !(r.Value >= 0) || math.IsInf(r.Value, 0) || !(r.Target > 0):
		return NotANumber
	case now.Sub(r.At) > c.MaxAge:
		return Stale
	case r.At.Sub(now) > c.MaxAge:
		return FromTheFuture
	}
	return Usable
}

// State is what one sample leaves to the next. The zero value begins.
type State struct {
	// Percent multiplies demand; 0: the signal does not change it.
	Percent int32
	exact   float64   // before it is rounded, at the last sample; 0: there was none
	read    time.Time // the last sample
}

// Resume is the state that a former leader left, which last read the metric at a time, as far as is known.
func Resume(percent int32, read, now time.Time) State {
	if percent == 0 {
		return State{}
	}
	if read.After(now) {
		read = now
	}
	return State{Percent: percent, exact: float64(percent), read: read}
}

// Update is the state after a sample that Check finds no fault with.
func (c Config) Update(s State, b Bounds, r Sample, now time.Time) State {
	exact := 100.0
	if s.exact > 0 {
		exact = c.level(s, now)
		if ratio := r.Value / r.Target; math.Abs(ratio-1) > c.Tolerance {
			elapsed := max(0, min(now.Sub(s.read), c.RetainFor))
			exact *= math.Pow(max(1/c.MaxRatio, min(c.MaxRatio, ratio)), c.Gain*elapsed.Minutes())
		}
	}
	exact = max(float64(b.Min), min(float64(b.Max), exact))
	return State{Percent: c.rounded(s.Percent, exact, b), exact: exact, read: now}
}

// Decay is the state after an attempt that brought no usable sample.
func (c Config) Decay(s State, b Bounds, now time.Time) State {
	level := c.level(s, now)
	if now.Sub(s.read) > c.RetainFor && level < 100+max(1, float64(c.MinChange)) {
		s.Percent = 0
	} else {
		s.Percent = c.rounded(s.Percent, level, b)
	}
	return s
}

// level is the percentage of now.
func (c Config) level(s State, now time.Time) float64 {
	gone := now.Sub(s.read) - c.RetainFor
	if gone <= 0 {
		return s.exact
	}
	return 100 + (s.exact-100)*math.Exp2(-float64(gone)/float64(c.HalfLife))
}

// rounded is the percentage to publish. One that has hardly changed stays as it was, except at the bounds.
func (c Config) rounded(was int32, exact float64, b Bounds) int32 {
	percent := b.clamp(int32(math.Round(exact)))
	moved := max(percent-was, was-percent)
	if was == 0 || moved >= c.MinChange || percent == b.Min || percent == b.Max {
		return percent
	}
	return b.clamp(was)
}
