package autoscaler

import (
	"math"
	"time"
)

// histogram counts uses in buckets that grow exponentially, and forgets the older ones by half in
// each half-life (pkg/recommender/util: exponential histogram options, decaying histogram).
type histogram struct {
	first    float64 // cores of the first bucket
	growth   float64 // of a bucket over the one before, 1.05: 5 %
	most     float64 // cores; the last bucket begins here or below
	least    float64 // weight below which a bucket is empty
	halfLife time.Duration

	weights []float64 // by bucket, as of ref
	total   float64
	ref     time.Duration
	begun   bool
}

// begin is the lower end of a bucket, in cores.
func (h *histogram) begin(n int) float64 {
	return h.first * (math.Pow(h.growth, float64(n)) - 1) / (h.growth - 1)
}

// bucket is where a use is counted.
func (h *histogram) bucket(cores float64) int {
	if cores < h.first {
		return 0
	}
	return int(math.Log(min(cores, h.most)*(h.growth-1)/h.first+1) / math.Log(h.growth))
}

// maxExponent is how many half-lives the reference time may lag before all weights are brought up
// to date.
const maxExponent = 100

func (h *histogram) add(cores, weight float64, at time.Duration) {
	if !h.begun {
		h.begun, h.ref = true, at
	}
	if behind := at - h.ref; behind > maxExponent*h.halfLife {
		half := math.Exp2(-float64(behind / h.halfLife))
		for i := range h.weights {
			h.weights[i] *= half
		}
		h.total *= half
		h.ref += behind / h.halfLife * h.halfLife
	}
	b := h.bucket(cores)
	for len(h.weights) <= b {
		h.weights = append(h.weights, 0)
	}
	w := weight * math.Exp2(float64(at-h.ref)/float64(h.halfLife))
	h.weights[b] += w
	h.total += w
}

// steady adds n samples of one use, each weighing as much, at equal distances; the last one comes
// one distance before until.
func (h *histogram) steady(cores, weight float64, n int, every, until time.Duration) {
	q := math.Exp2(-float64(every) / float64(h.halfLife))
	h.add(cores, weight*q*(1-math.Pow(q, float64(n)))/(1-q), until)
}

// percentile is the upper end of the bucket below whose end a share of the weight lies; 0 when
// nothing was counted.
func (h *histogram) percentile(share float64) float64 {
	last := len(h.weights) - 1
	for last >= 0 && h.weights[last] < h.least {
		last--
	}
	if last < 0 {
		return 0
	}
	sum := 0.0
	for b := range last {
		w := h.weights[b]
		if sum += w; w >= h.least && sum >= share*h.total {
			return h.begin(b + 1)
		}
	}
	return h.begin(last + 1)
}
