package load

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

const sec = time.Second

// TestProfilesArePieces: within a piece a profile has one value and one end, pieces follow without
// a gap, and their sum is the integral of the curve.
func TestProfilesArePieces(t *testing.T) {
	walk := RandomWalk(rand.New(rand.NewPCG(1, 2)), 10, 3, sec, 20*sec)
	var walked float64
	for _, v := range walk.Values {
		walked += v
	}
	for name, c := range map[string]struct {
		profile Profile
		want    float64 // integral over 20 s
	}{
		"constant":          {Constant(3), 60},
		"step":              {Step{Before: 1, After: 4, Time: 5*sec + 1}, 5 + 60 - 3e-9},
		"one burst":         {Burst{Low: 1, High: 5, Start: 3 * sec, Length: 2 * sec}, 28},
		"repeated burst":    {Burst{Low: 1, High: 5, Start: 3 * sec, Length: 2 * sec, Period: 7 * sec}, 20 + 3*8},
		"burst with jitter": {Burst{Low: 1, High: 5, Length: 2 * sec, Period: 5 * sec, Jitter: 1, Seed: 7}, 20 + 4*8},
		"ramp":              {Ramp{From: 2, To: 6, Start: 3*sec + 50*time.Millisecond, End: 7*sec + 30*time.Millisecond}, 2*3.05 + 4*3.98 + 6*12.97},
		"sine":              {Sine{Mean: 4, Amplitude: 3, Period: 10 * sec}, 80},
		"sine below 0":      {Sine{Mean: 0, Amplitude: 1, Period: 20 * sec}, 20 / math.Pi},
		"series":            {Series{Values: []float64{1, 2, 3}, Step: 2 * sec, Scale: 2}, 2 * (3*12 + 2)},
		"series once":       {Series{Values: []float64{1, 2, 3}, Step: 2 * sec, Scale: 2, Once: true}, 2 * 12},
		"walk":              {walk, walked},
		"later":             {Delayed{Burst{Low: 1, High: 5, Length: 2 * sec}, 4 * sec}, 5*6 + 14},
		"later, for ever":   {Delayed{Constant(2), 4 * sec}, 40},
		"times":             {Scaled{Step{Before: 1, After: 2, Time: 10 * sec}, 3}, 90},
	} {
		rng := rand.New(rand.NewPCG(3, 4))
		var sum float64
		for at := time.Duration(0); at < 20*sec; {
			v, until := c.profile.At(at)
			if until <= at {
				t.Fatalf("%s: the piece at %v ends at %v", name, at, until)
			}
			end := min(until, 20*sec)
			for _, in := range []time.Duration{at + time.Duration(rng.Int64N(int64(end-at))), end - 1} {
				if v2, until2 := c.profile.At(in); v2 != v || until2 != until {
					t.Fatalf("%s: at %v it is %v until %v, but at %v it is %v until %v", name, at, v, until, in, v2, until2)
				}
			}
			sum += v * (end - at).Seconds()
			at = end
		}
		if math.Abs(sum-c.want) > 0.01*max(1, c.want)/10 {
			t.Errorf("%s: the integral over 20 s is %.4f, want %.4f", name, sum, c.want)
		}
	}
}

// count is the number of requests in each second, and their CPU times.
func count(r Requests, length time.Duration, seed uint64) (perSecond []float64, works []float64) {
	a := r.Arrivals(rand.New(rand.NewPCG(seed, 0)), 0)
	perSecond = make([]float64, length/sec)
	for {
		at, work := a.Next()
		if at >= length {
			return perSecond, works
		}
		perSecond[at/sec]++
		works = append(works, work.Seconds())
	}
}

func moments(values []float64) (mean, variance float64) {
	for _, v := range values {
		mean += v / float64(len(values))
	}
	for _, v := range values {
		variance += (v - mean) * (v - mean) / float64(len(values)-1)
	}
	return mean, variance
}

func near(t *testing.T, what string, got, want, share float64) {
	t.Helper()
	if math.Abs(got-want) > share*want {
		t.Errorf("%s is %v, want %v within %v %%", what, got, want, 100*share)
	}
}

// TestArrivalsFollowTheRate: counts of a Poisson process have a variance as large as their mean,
// and follow a rate that changes inside and between seconds; evenly spaced requests arrive at equal
// intervals.
func TestArrivalsFollowTheRate(t *testing.T) {
	const length = 5000 * sec
	counts, works := count(Requests{Rate: Constant(40), ServiceTime: 10 * time.Millisecond, Distribution: Exponential}, length, 1)
	mean, variance := moments(counts)
	near(t, "the mean per second", mean, 40, 0.01)
	near(t, "the variance per second", variance, 40, 0.06)
	mean, variance = moments(works)
	near(t, "the mean service time", mean, 0.010, 0.02)
	near(t, "the deviation of the service time", math.Sqrt(variance), 0.010, 0.02)

	// 10 per second, and 110 in the first quarter of every second second: each even second has 35
	// on average.
	counts, works = count(Requests{Rate: Burst{Low: 10, High: 110, Length: sec / 4, Period: 2 * sec}, ServiceTime: time.Millisecond}, length, 2)
	var busy, calm []float64
	for i, n := range counts {
		if i%2 == 0 {
			busy = append(busy, n)
		} else {
			calm = append(calm, n)
		}
	}
	mean, variance = moments(busy)
	near(t, "the mean of a second with a burst", mean, 35, 0.02)
	near(t, "its variance", variance, 35, 0.1)
	mean, _ = moments(calm)
	near(t, "the mean of a second without", mean, 10, 0.03)
	if _, variance := moments(works); variance > 1e-12 {
		t.Errorf("fixed service times vary by %v", variance)
	}

	counts, _ = count(Requests{Rate: Constant(40), ServiceTime: sec, EvenlySpaced: true}, 100*sec, 3)
	for i, n := range counts[1:] {
		if math.Abs(n-40) > 1 {
			t.Fatalf("evenly spaced requests: %v in second %d, want 40", n, i+1)
		}
	}
	if at, _ := (Requests{Rate: Step{Before: 0, After: 0, Time: sec}}).Arrivals(rand.New(rand.NewPCG(1, 1)), 0).Next(); at != Forever {
		t.Errorf("a rate of 0 has an arrival at %v", at)
	}
}

// TestWalk: a random walk has its mean and its deviation, and the same seed gives the same walk.
func TestWalk(t *testing.T) {
	draw := func(seed uint64) Series { return RandomWalk(rand.New(rand.NewPCG(seed, 0)), 100, 10, sec, 20000*sec) }
	mean, variance := moments(draw(1).Values)
	near(t, "the mean", mean, 100, 0.02)
	near(t, "the deviation", math.Sqrt(variance), 10, 0.1)
	if a, b, c := draw(1), draw(1), draw(2); a.Values[77] != b.Values[77] || a.Values[77] == c.Values[77] {
		t.Error("a walk depends on its seed alone")
	}
}

// TestJitterSpreads: each burst with jitter is in its own period, anywhere in it, and elsewhere
// with another seed.
func TestJitterSpreads(t *testing.T) {
	starts := func(seed uint64) (late []float64) {
		b := Burst{Low: 0, High: 1, Length: sec, Period: 11 * sec, Jitter: 1, Seed: seed}
		for turn := range 2000 {
			from := time.Duration(turn) * b.Period
			v, until := b.At(from)
			if v == 1 {
				until = from
			} else if v, _ = b.At(until); v != 1 {
				t.Fatalf("period %d has no burst", turn)
			}
			if until-from > 10*sec {
				t.Fatalf("period %d bursts %v late, past its end", turn, until-from)
			}
			late = append(late, (until - from).Seconds())
		}
		return late
	}
	mean, variance := moments(starts(1))
	near(t, "the mean delay", mean, 5, 0.05)
	near(t, "its variance", variance, 100.0/12, 0.1)
	if starts(1)[3] == starts(2)[3] {
		t.Error("two seeds give the same burst")
	}
}
