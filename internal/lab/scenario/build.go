package scenario

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/mbcas/mbcas/internal/lab/load"
)

// build is the profile of the simulator, from start on, with randomness from rng, for length.
func (p *Profile) build(rng *rand.Rand, start, length time.Duration) load.Profile {
	var l load.Profile
	switch {
	case p.Constant != nil:
		return load.Constant(*p.Constant)
	case p.Step != nil:
		l = load.Step(*p.Step)
	case p.Ramp != nil:
		l = load.Ramp(*p.Ramp)
	case p.Square != nil:
		s := p.Square
		l = load.Burst{Low: s.Low, High: s.High, Start: s.Start, Length: s.On, Period: s.On + s.Off}
	case p.Sine != nil:
		l = load.Sine(*p.Sine)
	case p.Burst != nil:
		b := p.Burst
		l = load.Burst{Low: b.Low, High: b.High, Start: b.Start, Length: b.Length, Period: b.Period, Jitter: b.Jitter, Seed: rng.Uint64()}
	case p.Noise != nil:
		l = load.RandomWalk(rng, p.Noise.Mean, p.Noise.StdDev, p.Noise.Interval, length)
	case p.Trace != nil:
		l = p.Trace.series()
	}
	if start > 0 {
		l = load.Delayed{Profile: l, Delay: start}
	}
	return l
}

// series is the trace from From on, at its speed.
func (t *Trace) series() load.Series {
	skip := int(t.From / t.recorded.step)
	values := t.recorded.values[skip:]
	if t.Loop {
		values = slices.Concat(values, t.recorded.values[:skip])
	}
	return load.Series{Values: values, Step: time.Duration(float64(t.recorded.step) / t.Speed), Scale: t.Scale, Once: !t.Loop}
}

// increases are the times before end at which the value steps up; a burst with jitter has none.
func (p *Profile) increases(start, end time.Duration) []time.Duration {
	var at []time.Duration
	repeat := func(first, every time.Duration) {
		for t := start + first; t < end; t += every {
			at = append(at, t)
			if every == 0 {
				return
			}
		}
	}
	switch {
	case p.Step != nil && p.Step.After > p.Step.Before:
		repeat(p.Step.Time, 0)
	case p.Square != nil && p.Square.High > p.Square.Low:
		repeat(p.Square.Start, p.Square.On+p.Square.Off)
	case p.Burst != nil && p.Burst.High > p.Burst.Low && p.Burst.Jitter == 0:
		repeat(p.Burst.Start, p.Burst.Period)
	}
	return at
}
