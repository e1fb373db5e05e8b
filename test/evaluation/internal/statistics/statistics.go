// Package statistics summarises repeats of a measurement.
//
// Promises:
//   - The interval of known values is the known one, and the same each time: TestInterval.
//   - The median does not depend on the order: TestMedian.
//   - The interval covers the median of the population about as often as it says: TestCoverage.
//   - Drift that hits both sides of a pair alike does not change their ratio, and its interval covers the ratio about
//     as often as it says: TestPaired, TestPairedCoverage.
package statistics

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Summary is what repeats of one figure say. Worst is the highest, or for figures of which more is better the lowest.
type Summary struct {
	N      int     `json:"n"`
	Median float64 `json:"median"`
	Worst  float64 `json:"worst"`
	// Low and High are the ends of a 95 % confidence interval of the median: the percentile bootstrap. With one
	// value they are that value, which says nothing about the spread.
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

const (
	resamples  = 2000
	confidence = 0.95
)

// Summarise summarises values; ok is false where there are none. more says that more is better. The bootstrap
// has a fixed seed.
func Summarise(values []float64, more bool) (s Summary, ok bool) {
	if len(values) == 0 {
		return s, false
	}
	s = Summary{N: len(values), Median: Median(values), Worst: slices.Max(values)}
	if more {
		s.Worst = slices.Min(values)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	medians, sample := make([]float64, resamples), make([]float64, len(values))
	for i := range medians {
		for j := range sample {
			sample[j] = values[rng.IntN(len(values))]
		}
		medians[i] = Median(sample)
	}
	slices.Sort(medians)
	tail := int((1 - confidence) / 2 * resamples)
	s.Low, s.High = medians[tail], medians[resamples-1-tail]
	return s, true
}

// Median is the middle value, or the mean of the two middle ones. It panics without values.
func Median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	if n%2 == 1 {
		return sorted[n/2]
	}
	return (sorted[n/2-1] + sorted[n/2]) / 2
}

// Ratio is what pairs of values say: the geometric mean of a over b, and its 95 % confidence interval, by Student's t
// on the logarithms.
type Ratio struct {
	N    int     `json:"n"`
	Mean float64 `json:"geometric_mean"`
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// students are the 97.5 % quantiles of Student's t distribution for 1, 2, ... degrees of freedom.
var students = []float64{
	12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
	2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
}

// Paired is the ratio of a over b, whose values with the same index belong together. ok is false unless there are two
// pairs of positive values; beyond the table the interval is that of its last entry, a little too wide.
func Paired(a, b []float64) (r Ratio, ok bool) {
	var logs []float64
	for i := range min(len(a), len(b)) {
		if a[i] <= 0 || b[i] <= 0 {
			return r, false
		}
		logs = append(logs, math.Log(a[i]/b[i]))
	}
	n := len(logs)
	if n < 2 {
		return r, false
	}
	mean, squares := 0.0, 0.0
	for _, v := range logs {
		mean += v / float64(n)
	}
	for _, v := range logs {
		squares += (v - mean) * (v - mean)
	}
	half := students[min(n-1, len(students))-1] * math.Sqrt(squares/float64(n-1)/float64(n))
	return Ratio{n, math.Exp(mean), math.Exp(mean - half), math.Exp(mean + half)}, true
}
