// Package load is the synthetic load of pods: rates over time, and the CPU time of requests.
//
// What it promises, each a test of the same name:
//   - ProfilesArePieces: a profile is piecewise constant, so integrals are exact.
//   - ArrivalsFollowTheRate: Poisson arrivals have the mean and the variance of their rate.
package load

import (
	"math"
	"math/rand/v2"
	"time"
)

// Forever is later than any time of a simulation.
const Forever = time.Duration(math.MaxInt64)

// Profile is a piecewise constant value over time: requests per second, or threads.
type Profile interface {
	// At is the value from t on, and the time until which it is constant, which is after t.
	At(t time.Duration) (value float64, until time.Duration)
}

// Constant never changes.
type Constant float64

// At implements Profile.
func (c Constant) At(time.Duration) (float64, time.Duration) { return float64(c), Forever }

// Step is Before until At, and After from then on.
type Step struct {
	Before, After float64
	Time          time.Duration
}

// At implements Profile.
func (s Step) At(t time.Duration) (float64, time.Duration) {
	if t < s.Time {
		return s.Before, s.Time
	}
	return s.After, Forever
}

// Burst is High from Start for Length, again after each Period (0: once), and Low otherwise.
type Burst struct {
	Low, High             float64
	Start, Length, Period time.Duration
	// Jitter delays each burst at random, by up to this share of Period - Length: at 1 it is
	// anywhere in its period. The delay depends on Seed alone.
	Jitter float64
	Seed   uint64
}

// At implements Profile.
func (b Burst) At(t time.Duration) (float64, time.Duration) {
	if t < b.Start {
		return b.Low, b.Start
	}
	in, first := t-b.Start, b.Start
	if b.Period > 0 {
		first += in / b.Period * b.Period
		in %= b.Period
		late := b.delay(first)
		if in < late {
			return b.Low, first + late
		}
		first, in = first+late, in-late
	}
	switch {
	case in < b.Length:
		return b.High, first + b.Length
	case b.Period > 0:
		return b.Low, (t-b.Start)/b.Period*b.Period + b.Start + b.Period
	}
	return b.Low, Forever
}

// delay is that of the burst of the period that starts at first.
func (b Burst) delay(first time.Duration) time.Duration {
	if b.Jitter == 0 {
		return 0
	}
	share := rand.New(rand.NewPCG(b.Seed, uint64(first))).Float64()
	return time.Duration(b.Jitter * share * float64(b.Period-b.Length))
}

// pieceLength is that of the pieces that approximate curves.
const pieceLength = 100 * time.Millisecond

func pieceEnd(t, end time.Duration) time.Duration { return min(t-t%pieceLength+pieceLength, end) }

// Ramp goes from From at Start to To at End in a straight line, in pieces of 100 ms with their
// means.
type Ramp struct {
	From, To   float64
	Start, End time.Duration
}

// At implements Profile.
func (r Ramp) At(t time.Duration) (float64, time.Duration) {
	switch {
	case t < r.Start:
		return r.From, r.Start
	case t >= r.End:
		return r.To, Forever
	}
	until := pieceEnd(t, r.End)
	middle := (max(r.Start, t-t%pieceLength) + until) / 2
	share := float64(middle-r.Start) / float64(r.End-r.Start)
	return r.From + (r.To-r.From)*share, until
}

// Sine oscillates around Mean by Amplitude with Period, in pieces of 100 ms. It is never below 0.
type Sine struct {
	Mean, Amplitude float64
	Period          time.Duration
	Phase           float64 // share of a period at which it starts
}

// At implements Profile.
func (s Sine) At(t time.Duration) (float64, time.Duration) {
	turn := float64(t-t%pieceLength)/float64(s.Period) + s.Phase
	return max(0, s.Mean+s.Amplitude*math.Sin(2*math.Pi*turn)), pieceEnd(t, Forever)
}

// Series is recorded: Values[i] times Scale from i times Step on. After the end it repeats, or is 0
// with Once.
type Series struct {
	Values []float64
	Step   time.Duration
	Scale  float64
	Once   bool
}

// At implements Profile.
func (s Series) At(t time.Duration) (float64, time.Duration) {
	i := int64(t / s.Step)
	if s.Once && i >= int64(len(s.Values)) {
		return 0, Forever
	}
	return s.Values[i%int64(len(s.Values))] * s.Scale, time.Duration(i+1) * s.Step
}

// RandomWalk reverts to mean by a tenth of its distance in each step; its standard deviation is
// swing. It is never below 0. The same rng gives the same walk.
func RandomWalk(rng *rand.Rand, mean, swing float64, step, length time.Duration) Series {
	const keep = 0.9
	s := Series{Step: step, Scale: 1}
	away := swing * rng.NormFloat64()
	for t := time.Duration(0); t < max(length, step); t += step {
		s.Values = append(s.Values, max(0, mean+away))
		away = keep*away + swing*math.Sqrt(1-keep*keep)*rng.NormFloat64()
	}
	return s
}

// Delayed is a profile that starts at Delay; before, it has its first value.
type Delayed struct {
	Profile
	Delay time.Duration
}

// At implements Profile.
func (l Delayed) At(t time.Duration) (float64, time.Duration) {
	v, until := l.Profile.At(max(0, t-l.Delay))
	if until > Forever-l.Delay {
		return v, Forever
	}
	return v, until + l.Delay
}

// Scaled is a profile multiplied by Factor.
type Scaled struct {
	Profile
	Factor float64
}

// At implements Profile.
func (x Scaled) At(t time.Duration) (float64, time.Duration) {
	v, until := x.Profile.At(t)
	return v * x.Factor, until
}

// Requests is an open-loop stream: clients do not wait for answers before they send the next
// request.
type Requests struct {
	Rate        Profile       // per second
	ServiceTime time.Duration // mean CPU time of a request
	// Distribution is the distribution of the CPU time of a request.
	Distribution Distribution
	// EvenlySpaced requests arrive at equal intervals; otherwise they are a Poisson process.
	EvenlySpaced bool
}

// Distribution is a distribution of service times; empty: Fixed.
type Distribution string

const (
	Fixed       Distribution = "fixed"       // every request takes the mean
	Exponential Distribution = "exponential" // coefficient of variation 1
)

// Arrivals draws the requests of one stream.
type Arrivals struct {
	r   Requests
	rng *rand.Rand
	at  time.Duration
}

// Arrivals starts the stream at from.
func (r Requests) Arrivals(rng *rand.Rand, from time.Duration) *Arrivals {
	return &Arrivals{r: r, rng: rng, at: from}
}

// Next is when the next request arrives, and its CPU time; Forever where none arrives any more.
func (a *Arrivals) Next() (at, work time.Duration) {
	// The number of arrivals expected since the last one has the distribution of the gap at rate 1.
	left := 1.0
	if !a.r.EvenlySpaced {
		left = a.rng.ExpFloat64()
	}
	for a.at < Forever {
		rate, until := a.r.Rate.At(a.at)
		if rate > 0 {
			gap := left / rate * float64(time.Second)
			if gap < float64(until-a.at) {
				a.at += max(1, time.Duration(gap))
				return a.at, a.work()
			}
			left -= rate * (until - a.at).Seconds()
		}
		a.at = until
	}
	return Forever, 0
}

func (a *Arrivals) work() time.Duration {
	if a.r.Distribution == Exponential {
		return max(time.Microsecond, time.Duration(a.rng.ExpFloat64()*float64(a.r.ServiceTime)))
	}
	return a.r.ServiceTime
}
