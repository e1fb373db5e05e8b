package sim

import (
	"math/bits"
	"slices"
	"time"
)

// Latencies counts durations in buckets whose width is 1/64 of their size or less.
type Latencies struct {
	Count  uint64
	Max    time.Duration
	bucket []uint32
}

const bucketBits = 6 // bits kept of a duration in microseconds

func bucketOf(d time.Duration) int {
	us := uint64(max(d, 0) / time.Microsecond)
	if us < 1<<bucketBits {
		return int(us)
	}
	octave := bits.Len64(us) - bucketBits - 1
	return octave<<bucketBits + int(us>>octave)
}

// bucketMiddle is the middle of a bucket.
func bucketMiddle(i int) time.Duration {
	if i < 1<<(bucketBits+1) {
		return time.Duration(i)*time.Microsecond + time.Microsecond/2
	}
	octave := i>>bucketBits - 1
	return time.Duration(uint64(i-octave<<bucketBits)<<octave+1<<octave/2) * time.Microsecond
}

// Add counts one duration.
func (l *Latencies) Add(d time.Duration) {
	i := bucketOf(d)
	for len(l.bucket) <= i {
		l.bucket = append(l.bucket, make([]uint32, i+1-len(l.bucket))...)
	}
	l.bucket[i]++
	l.Count++
	l.Max = max(l.Max, d)
}

// Merge counts what other has counted.
func (l *Latencies) Merge(other *Latencies) {
	if len(l.bucket) < len(other.bucket) {
		l.bucket = append(l.bucket, make([]uint32, len(other.bucket)-len(l.bucket))...)
	}
	for i, n := range other.bucket {
		l.bucket[i] += n
	}
	l.Count += other.Count
	l.Max = max(l.Max, other.Max)
}

// Clone is a copy.
func (l *Latencies) Clone() *Latencies {
	c := *l
	c.bucket = slices.Clone(l.bucket)
	return &c
}

// Since is what was counted after before, an earlier clone. Its Max is that of all.
func (l *Latencies) Since(before *Latencies) Latencies {
	d := *l.Clone()
	for i, n := range before.bucket {
		d.bucket[i] -= n
	}
	d.Count -= before.Count
	return d
}

// Quantile is the duration that the fraction q of those counted does not exceed; 0 where none was
// counted.
func (l *Latencies) Quantile(q float64) time.Duration {
	if l.Count == 0 {
		return 0
	}
	want := uint64(q * float64(l.Count))
	var seen uint64
	for i, n := range l.bucket {
		if seen += uint64(n); seen > want {
			return min(bucketMiddle(i), l.Max)
		}
	}
	return l.Max
}

// LatencyPoint is one point of the cumulative distribution.
type LatencyPoint struct {
	At       time.Duration
	Fraction float64 // of those counted that do not exceed At
}

// Distribution is the cumulative distribution, one point per non-empty bucket.
func (l *Latencies) Distribution() []LatencyPoint {
	var points []LatencyPoint
	var seen uint64
	for i, n := range l.bucket {
		if n == 0 {
			continue
		}
		seen += uint64(n)
		points = append(points, LatencyPoint{bucketMiddle(i), float64(seen) / float64(l.Count)})
	}
	return points
}
