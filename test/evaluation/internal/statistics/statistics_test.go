package statistics

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestMedian(t *testing.T) {
	for _, tt := range []struct {
		values []float64
		want   float64
	}{{[]float64{3}, 3}, {[]float64{9, 1, 5}, 5}, {[]float64{4, 1, 3, 2}, 2.5}} {
		if got := Median(tt.values); got != tt.want {
			t.Errorf("median of %v is %v, want %v", tt.values, got, tt.want)
		}
	}
}

func TestInterval(t *testing.T) {
	if _, ok := Summarise(nil, false); ok {
		t.Error("nothing has a summary")
	}
	one, _ := Summarise([]float64{7}, false)
	if want := (Summary{N: 1, Median: 7, Worst: 7, Low: 7, High: 7}); one != want {
		t.Errorf("%+v, want %+v", one, want)
	}
	// The median of a resample of five is the lowest value in 5.8 % of the cases, and the second lowest or
	// less in 31.7 %: the 2.5 % quantile is the lowest.
	five, _ := Summarise([]float64{10, 50, 30, 20, 40}, false)
	if want := (Summary{N: 5, Median: 30, Worst: 50, Low: 10, High: 50}); five != want {
		t.Errorf("%+v, want %+v", five, want)
	}
	again, _ := Summarise([]float64{10, 50, 30, 20, 40}, false)
	if again != five {
		t.Errorf("%+v, then %+v", five, again)
	}
	if more, _ := Summarise([]float64{10, 50, 30}, true); more.Worst != 10 {
		t.Errorf("the worst of a figure of which more is better is %v, want 10", more.Worst)
	}
}

// TestCoverage: for five values the interval is from the lowest to the highest one, which misses the median of the
// population when all are on one side: 2 x 0.5^5 = 6.25 % of the time.
func TestCoverage(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	const trials = 400
	covered := 0
	for range trials {
		values := make([]float64, 5)
		for i := range values {
			values[i] = rng.ExpFloat64()
		}
		s, _ := Summarise(values, false)
		const median = 0.6931471805599453 // of the exponential distribution
		if s.Low <= median && median <= s.High {
			covered++
		}
	}
	if share := float64(covered) / trials; share < 0.89 || share > 0.98 {
		t.Errorf("covers %v of the time, want about 0.9375", share)
	}
}

func TestPaired(t *testing.T) {
	// Both double from one pair to the next: the ratio stays two, without any doubt.
	r, ok := Paired([]float64{2, 4, 8}, []float64{1, 2, 4})
	if !ok || r.N != 3 || math.Abs(r.Mean-2) > 1e-9 || math.Abs(r.Low-2) > 1e-9 || math.Abs(r.High-2) > 1e-9 {
		t.Errorf("%+v, %v; want 2 [2, 2]", r, ok)
	}
	// Logarithms 0 and 2: the mean is 1, the standard error 1, and t with one degree of freedom 12.706.
	r, ok = Paired([]float64{1, math.E * math.E}, []float64{1, 1})
	want := []float64{math.E, math.Exp(1 - 12.706), math.Exp(1 + 12.706)}
	for i, got := range []float64{r.Mean, r.Low, r.High} {
		if !ok || math.Abs(got/want[i]-1) > 1e-9 {
			t.Errorf("%+v, %v; want %v", r, ok, want)
		}
	}
	for _, values := range [][]float64{nil, {3}, {3, 0}} {
		if _, ok := Paired(values, []float64{1, 1}); ok {
			t.Errorf("%v has a ratio", values)
		}
	}
}

// TestPairedCoverage: pairs whose ratio is three in the mean of the logarithms, with a common drift.
func TestPairedCoverage(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	const trials = 2000
	covered := 0
	for range trials {
		a, b := make([]float64, 5), make([]float64, 5)
		for i := range a {
			b[i] = math.Exp(3 * rng.NormFloat64())
			a[i] = 3 * b[i] * math.Exp(0.2*rng.NormFloat64())
		}
		if r, ok := Paired(a, b); ok && r.Low <= 3 && 3 <= r.High {
			covered++
		}
	}
	if share := float64(covered) / trials; share < 0.93 || share > 0.97 {
		t.Errorf("covers %v of the time, want about 0.95", share)
	}
}
