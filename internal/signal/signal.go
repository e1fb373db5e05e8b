// Package signal makes of a metric and its target what the demand of a workload's pods is to be taken for. It is pure.
//
// While the metric is above its target the percentage grows, and below it shrinks, by a share of the metric's error for each minute:
// integral control of logarithms, as a HorizontalPodAutoscaler's rule is, slowed down. What keeps it from swinging is its gain,
// which stays below the bound for the delay with which a metric answers (docs/demand-signals.md).
//
// What it promises, each a test of the same name:
//   - Bounded: a percentage lies within its bounds, or there is none.
//   - GrowsWithTheMetric: of two readings the higher one never leads to the lower percentage.
//   - ComesToRest: in a closed loop with delay the percentage stops, with the metric at its target or the percentage at a bound.
//   - MovesSlowly: however far off the metric is, a minute moves the percentage by 15 % at most.
//   - ForgetsAMetricThatIsGone: a minute after the last reading the percentage goes back to 100, and then there is none.
package signal

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Config is how a metric is followed.
type Config struct {
	// Gain is the share of the logarithm of metric over target that is added to that of the percentage in a minute. Larger
	// reaches the target sooner, and swings where metrics answer late.
	Gain float64
	// Tolerance is how far the metric may be from its target, as a share of it, for nothing to be done. Larger is
	// steadier; smaller comes closer.
	Tolerance float64
	// Most is the ratio of metric and target, and of target and metric, beyond which an error counts as no larger.
	Most float64
	// FreshFor is how old a value may be, and how far ahead its time may lie, to be used.
	FreshFor time.Duration
	// HoldFor is how long the percentage stays after the last value that could be used. Longer rides out gaps; shorter falls
	// back to the kernel's signals sooner.
	HoldFor time.Duration
	// HalfLife is the time in which the percentage then goes half of the way back to 100.
	HalfLife time.Duration
	// Worth is how many points the percentage must have moved for it to be told. Larger is steadier and costs fewer writes.
	Worth int32
}

// DefaultConfig is what we would run ourselves.
func DefaultConfig() Config {
	return Config{
		Gain: 0.1, Tolerance: 0.1, Most: 4, FreshFor: 2 * time.Minute, HoldFor: time.Minute, HalfLife: 15 * time.Second, Worth: 5,
	}
}

// Validate says everything that is wrong.
func (c Config) Validate() error {
	var errs []error
	if !(c.Gain > 0 && c.Gain <= 10) || !(c.Tolerance >= 0 && c.Tolerance < 1) || !(c.Most > 1) {
		errs = append(errs, fmt.Errorf("signal Gain is %v, Tolerance %v and Most %v: want more than 0 and at most 10, at least 0 and less than 1, and more than 1", c.Gain, c.Tolerance, c.Most))
	}
	if c.FreshFor <= 0 || c.HoldFor < 0 || c.HalfLife <= 0 {
		errs = append(errs, fmt.Errorf("signal FreshFor is %v, HoldFor %v and HalfLife %v: want more than 0, 0 or more, and more than 0", c.FreshFor, c.HoldFor, c.HalfLife))
	}
	if c.Worth < 0 {
		errs = append(errs, fmt.Errorf("signal Worth is %d: want 0 or more", c.Worth))
	}
	return errors.Join(errs...)
}

// Bounds are the least and the most that a signal may ask for, in percent.
type Bounds struct{ Min, Max int32 }

func (b Bounds) clamp(percent int32) int32 { return max(b.Min, min(b.Max, percent)) }

// Reading is a metric as it was read.
type Reading struct {
	Value, Target float64
	At            time.Time // of the value
}

// Fault is why a reading cannot be used.
type Fault uint8

const (
	None     Fault = iota
	NoFigure       // the value is below zero or no number; 0 is one: a queue is empty for most of its life
	Stale          // it is too old
	Ahead          // its time has not come: the clocks disagree
)

// Check says why the reading cannot be used.
func (c Config) Check(r Reading, now time.Time) Fault {
	switch {
	case !(r.Value >= 0) || math.IsInf(r.Value, 0) || !(r.Target > 0):
		return NoFigure
	case now.Sub(r.At) > c.FreshFor:
		return Stale
	case r.At.Sub(now) > c.FreshFor:
		return Ahead
	}
	return None
}

// State is what one look at a metric leaves to the next. The zero value begins.
type State struct {
	// Percent is what demand is to be taken for; 0: the signal has no say.
	Percent int32
	exact   float64   // before it is rounded, at the last reading; 0: there was none
	read    time.Time // the last reading
}

// Resume is the state that somebody else left behind, who last read the metric at a time, as far as is known.
func Resume(percent int32, read, now time.Time) State {
	if percent == 0 {
		return State{}
	}
	if read.After(now) {
		read = now
	}
	return State{Percent: percent, exact: float64(percent), read: read}
}

// Read is the state after a reading that Check finds no fault with.
func (c Config) Read(s State, b Bounds, r Reading, now time.Time) State {
	exact := 100.0
	if s.exact > 0 {
		exact = c.level(s, now)
		if ratio := r.Value / r.Target; math.Abs(ratio-1) > c.Tolerance {
			elapsed := max(0, min(now.Sub(s.read), c.HoldFor))
			exact *= math.Pow(max(1/c.Most, min(c.Most, ratio)), c.Gain*elapsed.Minutes())
		}
	}
	exact = max(float64(b.Min), min(float64(b.Max), exact))
	return State{Percent: c.tell(s.Percent, exact, b), exact: exact, read: now}
}

// Miss is the state after a look that brought nothing that can be used.
func (c Config) Miss(s State, b Bounds, now time.Time) State {
	level := c.level(s, now)
	if now.Sub(s.read) > c.HoldFor && level < 100+max(1, float64(c.Worth)) {
		s.Percent = 0
	} else {
		s.Percent = c.tell(s.Percent, level, b)
	}
	return s
}

// level is the percentage of now.
func (c Config) level(s State, now time.Time) float64 {
	gone := now.Sub(s.read) - c.HoldFor
	if gone <= 0 {
		return s.exact
	}
	return 100 + (s.exact-100)*math.Exp2(-float64(gone)/float64(c.HalfLife))
}

// tell rounds the percentage. One that has hardly moved stays as it was, but at the bounds.
func (c Config) tell(was int32, exact float64, b Bounds) int32 {
	percent := b.clamp(int32(math.Round(exact)))
	moved := max(percent-was, was-percent)
	if was == 0 || moved >= c.Worth || percent == b.Min || percent == b.Max {
		return percent
	}
	return b.clamp(was)
}
