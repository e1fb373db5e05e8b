// Package load is what pods of a simulation are asked to do: rates over time, and the work of a request.
//
// What it promises, each a test of the same name:
//   - ProfilesArePieces: a profile is constant until the time that it names, so an integral over it is exact.
//   - ArrivalsFollowTheRate: Poisson arrivals have the mean and the variance of the rate asked for.
package load

import (
	"math"
	"math/rand/v2"
	"time"
)

// Forever is later than any time of a simulation.
const Forever = time.Duration(math.MaxInt64)

// Profile is a figure over time, in pieces: requests per second, threads, or a share of them.
type Profile interface {
	// At is the value from t on, and until when it stays so. Until lies after t.
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

// Burst is High from Start for Length, again after each Every (0: once), and Low otherwise.
type Burst struct {
	Low, High             float64
	Start, Length, Period time.Duration
	// Jitter is how far, as a share of Every - Length, each repetition may come later than it would: at 1 it lies
	// anywhere in its Every. Where it lies depends on Seed alone.
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

// delay is by how much the repetition that would begin at first comes later.
func (b Burst) delay(first time.Duration) time.Duration {
	if b.Jitter == 0 {
		return 0
	}
	share := rand.New(rand.NewPCG(b.Seed, uint64(first))).Float64()
	return time.Duration(b.Jitter * share * float64(b.Period-b.Length))
}

// pieceLength is the piece in which curves are followed.
const pieceLength = 100 * time.Millisecond

func pieceEnd(t, end time.Duration) time.Duration { return min(t-t%pieceLength+pieceLength, end) }

// Ramp goes from From at Start to To at End in a straight line, followed in pieces of 100 ms with their means.
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

// Sine swings around Mean by Swing, once in each Every, followed in pieces of 100 ms. It is never below 0.
type Sine struct {
	Mean, Amplitude float64
	Period          time.Duration
	Phase           float64 // share of a turn at which it begins
}

// At implements Profile.
func (s Sine) At(t time.Duration) (float64, time.Duration) {
	turn := float64(t-t%pieceLength)/float64(s.Period) + s.Phase
	return max(0, s.Mean+s.Amplitude*math.Sin(2*math.Pi*turn)), pieceEnd(t, Forever)
}

// Series is a recorded figure: Values[i] from i times Step on, times Scale; after the end it begins again, or is 0 where
// it is to be played Once.
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

// RandomWalk is a random walk that is drawn back to mean: from step to step it forgets a tenth of its distance, and in the long run
// its standard deviation is swing. It is never below 0. The same rng gives the same walk of the given length.
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

// Delayed is a profile that begins at By; before, it has the value with which it begins.
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

// Requests is an open-loop stream: clients do not wait for answers before they send the next request.
type Requests struct {
	Rate        Profile       // per second
	ServiceTime time.Duration // mean CPU time of a request
	// Distribution is the distribution of the CPU time of a request.
	Distribution Distribution
	// EvenlySpaced requests come at equal distances; otherwise they are a Poisson process.
	EvenlySpaced bool
}

// Distribution is a distribution of service times.
type Distribution uint8

const (
	Fixed       Distribution = iota // every request costs the mean
	Exponential                     // many are cheap, few are dear: coefficient of variation 1
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

// Next is when the next request comes and what it costs; Forever when none comes any more.
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
