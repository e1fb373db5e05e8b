// Package traffic is an open-loop load generator. Arrivals are drawn before anything is sent, and
// the latency of a request counts from the time at which it was to be sent: a slow service delays
// answers, never questions (no coordinated omission).
//
// Promises:
//   - Arrivals are a Poisson process with the rates asked for: TestArrivalsArePoisson.
//   - The same seed gives the same arrivals: TestSameSeedSameArrivals.
//   - Latency counts from the intended arrival: TestLatencyCountsFromTheIntendedArrival.
//   - Requests beyond the bound are not sent, and counted: TestOverloadIsCounted.
package traffic

import (
	"math/rand/v2"
	"time"
)

// Segment is a time with one mean rate.
type Segment struct {
	For  time.Duration
	Rate float64 // requests per second; 0 or less: none
}

// Arrivals are the times, from the start of the first segment, of a Poisson process with
// the segments' rates.
func Arrivals(seed uint64, segments []Segment) []time.Duration {
	rng := rand.New(rand.NewPCG(seed, 0x6d62636173)) // one stream for each seed
	var at []time.Duration
	var begin time.Duration
	for _, s := range segments {
		// Exponential gaps have no memory, so each segment may begin anew.
		for t := 0.0; s.Rate > 0; {
			t += rng.ExpFloat64() / s.Rate
			if t >= s.For.Seconds() {
				break
			}
			at = append(at, begin+time.Duration(t*float64(time.Second)))
		}
		begin += s.For
	}
	return at
}
