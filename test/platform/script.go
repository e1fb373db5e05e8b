//go:build linux

package main

import (
	"math/rand/v2"
	"time"

	"github.com/mbcas/mbcas/test/internal/traffic"
)

// requestWork is the CPU time of one request.
const requestWork = 8 * time.Millisecond

// Phase is a time with one rate of requests to the service under the HPA.
type phase struct {
	name   string
	length time.Duration
	rate   float64 // requests per second
}

// Names of phases.
const (
	base     = "base"
	scaleOut = "scale-out"
	busy     = "busy"
	calm     = "calm"
)

// phases is what the service gets, in both runs. The rate goes up at the begin of scale-out, which is as long as an HPA as it ships may
// need: metrics of 15 s, a look every 15 s, twice, and the start of pods. It goes down at the begin of calm.
func phases(short bool) []phase {
	length := func(full, brief int) time.Duration {
		if short {
			full = brief
		}
		return time.Duration(full) * time.Second
	}
	return []phase{
		{base, length(60, 20), 5},
		{scaleOut, length(90, 60), 46},
		{busy, length(150, 60), 46},
		{calm, length(240, 120), 20},
	}
}

func total(list []phase) (sum time.Duration) {
	for _, p := range list {
		sum += p.length
	}
	return sum
}

// span is where a phase lies.
func span(list []phase, name string) (from, to time.Duration) {
	for _, p := range list {
		if p.name == name {
			return from, from + p.length
		}
		from += p.length
	}
	return 0, 0
}

func segments(list []phase) []traffic.Segment {
	var s []traffic.Segment
	for _, p := range list {
		s = append(s, traffic.Segment{For: p.length, Rate: p.rate})
	}
	return s
}

// Turns of the load in the quota's namespace: in each, other pods are busy.
const (
	turnFor   = 30 * time.Second
	busyPods  = 4
	idleRate  = 1.0 // requests per second
	newEvery  = time.Minute
	newStays  = 30 * time.Second
	newFirst  = 30 * time.Second
	quotaFull = 10 * time.Minute
	quotaTry  = 2 * time.Minute
	// grace is for how long after their start pods are not lowered, and a little more. The load comes after it.
	grace = 65 * time.Second
)

// busyRates are what busy pods get: up to a little more than twice their declared limit.
var busyRates = []float64{12, 20, 28}

// turns are the rates of every pod in every turn.
func turns(seed uint64, length time.Duration) (rates [][]float64) {
	rng := rand.New(rand.NewPCG(seed, 0x71756f7461))
	for range int(length / turnFor) {
		turn := make([]float64, quotaPods)
		for i := range turn {
			turn[i] = idleRate
		}
		for _, i := range rng.Perm(quotaPods)[:busyPods] {
			turn[i] = busyRates[rng.IntN(len(busyRates))]
		}
		rates = append(rates, turn)
	}
	return rates
}

// arrivalsOf are the requests to one pod.
func arrivalsOf(seed uint64, rates [][]float64, pod int) []time.Duration {
	var s []traffic.Segment
	for _, turn := range rates {
		s = append(s, traffic.Segment{For: turnFor, Rate: turn[pod]})
	}
	return traffic.Arrivals(seed+uint64(pod)<<32, s)
}
