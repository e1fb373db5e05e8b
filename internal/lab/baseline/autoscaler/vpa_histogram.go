package autoscaler

import (
	"math"
	"time"
)

// histogram counts uses in buckets that grow exponentially, and forgets the older ones by half in
// each half-life (pkg/recommender/util: exponential histogram options, decaying histogram).
type histogram struct {
	weights []float64 // by bucket, as of ref
	total   float64
	ref     time.Duration
	begun   bool
}

const (
	firstBucket  = 0.01 // cores
	bucketGrowth = 1.05 // of a bucket over the one before
	lastBucket   = 1000 // cores; the last bucket begins here or below
	emptyWeight  = 1e-4 // below which a bucket is empty
	halfLife     = 24 * time.Hour
)

// bucketBegin is the lower end of a bucket, in cores.
func bucketBegin(n int) float64 {
	growth := float64(bucketGrowth)
	return firstBucket * (math.Pow(growth, float64(n)) - 1) / (growth - 1)
}

// bucketOf is where a use is counted.
func bucketOf(cores float64) int {
	if cores < firstBucket {
		return 0
	}
	growth := float64(bucketGrowth)
	return int(math.Log(min(cores, lastBucket)*(growth-1)/firstBucket+1) / math.Log(growth))
}

// maxExponent is how many half-lives the reference time may lag before all weights are brought up
// to date.
const maxExponent = 100

func (h *histogram) add(cores, weight float64, at time.Duration) {
	if !h.begun {
		h.begun, h.ref = true, at
	}
	if behind := at - h.ref; behind > maxExponent*halfLife {
		half := math.Exp2(-float64(behind / halfLife))
		for i := range h.weights {
			h.weights[i] *= half
		}
		h.total *= half
		h.ref += behind / halfLife * halfLife
	}
	b := bucketOf(cores)
	for len(h.weights) <= b {
		h.weights = append(h.weights, 0)
	}
	w := weight * math.Exp2(float64(at-h.ref)/float64(halfLife))
	h.weights[b] += w
	h.total += w
}

// steady adds n samples of one use, each weighing as much, at equal distances; the last one comes
// one distance before until.
func (h *histogram) steady(cores, weight float64, n int, every, until time.Duration) {
	q := math.Exp2(-float64(every) / float64(halfLife))
	h.add(cores, weight*q*(1-math.Pow(q, float64(n)))/(1-q), until)
}

// percentile is the upper end of the bucket below whose end a share of the weight lies; 0 when
// nothing was counted.
func (h *histogram) percentile(share float64) float64 {
	last := len(h.weights) - 1
	for last >= 0 && h.weights[last] < emptyWeight {
		last--
	}
	if last < 0 {
		return 0
	}
	sum := 0.0
	for b := range last {
		w := h.weights[b]
		if sum += w; w >= emptyWeight && sum >= share*h.total {
			return bucketBegin(b + 1)
		}
	}
	return bucketBegin(last + 1)
}
