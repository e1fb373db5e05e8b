// Package traffic is an open-loop load generator. Arrivals are drawn before anything is sent, and
// the latency of a request counts from its intended arrival: a slow service delays answers, never
// requests (no coordinated omission).
//
// Promises:
//   - Arrivals have the rates of the segments, and depend on the seed alone: TestArrivals. That
//     they are a Poisson process is proved where they are drawn, in internal/lab/load.
//   - Latency counts from the intended arrival: TestLatencyCountsFromTheIntendedArrival.
//   - Requests beyond the bound are not sent, and counted: TestUnservedCountsAsTheTimeout.
package traffic

import (
	"math/rand/v2"
	"time"

	"github.com/mbcas/mbcas/internal/lab/load"
)

// Segment is a time with one mean rate.
type Segment struct {
	For  time.Duration
	Rate float64 // requests per second; 0 or less: none
}

// profile is segments as a rate over time.
type profile []Segment

// At implements load.Profile.
func (p profile) At(t time.Duration) (float64, time.Duration) {
	end := time.Duration(0)
	for _, s := range p {
		if end += s.For; t < end {
			return max(0, s.Rate), end
		}
	}
	return 0, load.Forever
}

// Arrivals are the times, from the start of the first segment, of requests with the segments'
// rates.
func Arrivals(seed uint64, segments []Segment) (all []time.Duration) {
	rng := rand.New(rand.NewPCG(seed, 0x6d62636173)) // one stream for each seed
	arrivals := load.Requests{Rate: profile(segments), ServiceTime: time.Millisecond}.Arrivals(rng, 0)
	for {
		at, _ := arrivals.Next()
		if at == load.Forever {
			return all
		}
		all = append(all, at)
	}
}
