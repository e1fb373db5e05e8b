// Package script is what happens in the demo and when. Every run plays the same script with the same
// arrivals, so that runs differ in their limits alone.
//
// Promises:
//   - The same seed gives every service the same arrivals: TestArrivalsDependOnSeedAlone.
//   - Every phase that is judged is there, in both lengths: TestPhases.
package script

import (
	"fmt"
	"hash/fnv"
	"time"

	"github.com/mbcas/mbcas/test/internal/traffic"
)

// The loaded services and the hogs, by the names of their Deployments. "told" ones have requests that
// tell how important they are.
const (
	Checkout     = "checkout"
	Search       = "search"
	CheckoutTold = "checkout-told"
	Hog          = "hog"
	HogTold      = "hog-told"
)

// Services are those that get requests.
var Services = []string{Checkout, Search, CheckoutTold}

// Phase names.
const (
	Base     = "base"
	StepUp   = "step up"
	StepDown = "step down"
	WithHog  = "big hog" // requests more than the service
	Pause    = "pause"
	WithTold = "small hog" // requests less than the service: the requests tell importance
	Recover  = "recover"
)

// Phase is a time in which nothing about the load changes.
type Phase struct {
	Name  string
	For   time.Duration
	Rates map[string]float64 // requests per second by service
	Hogs  []string           // that spin
}

// Timed is a phase with its place.
type Timed struct {
	Phase
	From, To time.Duration // from the start of the script
}

// Script is the phases in order.
type Script []Phase

// Rates in requests per second. Each request is RequestWork of CPU time.
const (
	quiet       = 12
	busy        = 56 // nine tenths of the declared limit of 500m
	contended   = 48 // what there is room for beside a hog that holds its request
	searching   = 8
	RequestWork = 8 * time.Millisecond
)

// HogThreads is how many threads a hog spins: more than the node has cores.
const HogThreads = 4

// New is the script that each run plays. quick is for trying things out: its phases
// are too short for the tail of a latency distribution.
func New(quick bool) Script {
	length := func(full, short int) time.Duration {
		if quick {
			full = short
		}
		return time.Duration(full) * time.Second
	}
	calm := map[string]float64{Checkout: quiet, Search: searching}
	return Script{
		{Base, length(15, 6), calm, nil},
		{StepUp, length(40, 15), map[string]float64{Checkout: busy, Search: searching}, nil},
		{StepDown, length(15, 6), calm, nil},
		{WithHog, length(45, 20), map[string]float64{Checkout: contended, Search: searching}, []string{Hog}},
		{Pause, length(15, 6), calm, nil},
		{WithTold, length(40, 15), map[string]float64{CheckoutTold: contended, Search: searching}, []string{HogTold}},
		{Recover, length(10, 6), calm, nil},
	}
}

// Steady is one phase of contention that does not change, after time to settle.
func Steady(settle, length time.Duration) Script {
	rates := map[string]float64{Checkout: contended, Search: searching}
	return Script{{"settle", settle, rates, []string{Hog}}, {"steady", length, rates, []string{Hog}}}
}

// Length is how long the script takes.
func (s Script) Length() (sum time.Duration) {
	for _, p := range s {
		sum += p.For
	}
	return sum
}

// Timed gives each phase its place.
func (s Script) Timed() []Timed {
	var at time.Duration
	timed := make([]Timed, len(s))
	for i, p := range s {
		timed[i] = Timed{p, at, at + p.For}
		at += p.For
	}
	return timed
}

// Phase is the first phase of that name.
func (s Script) Phase(name string) (Timed, error) {
	for _, t := range s.Timed() {
		if t.Name == name {
			return t, nil
		}
	}
	return Timed{}, fmt.Errorf("the script has no phase %q", name)
}

// At is the phase at a time from the start; the last one does not end.
func (s Script) At(at time.Duration) Timed {
	timed := s.Timed()
	for _, t := range timed {
		if at < t.To {
			return t
		}
	}
	return timed[len(timed)-1]
}

// Arrivals are the requests to one service.
func (s Script) Arrivals(seed uint64, service string) []time.Duration {
	segments := make([]traffic.Segment, len(s))
	for i, p := range s {
		segments[i] = traffic.Segment{For: p.For, Rate: p.Rates[service]}
	}
	h := fnv.New64a()
	h.Write([]byte(service)) // services do not share arrivals
	return traffic.Arrivals(seed^h.Sum64(), segments)
}

// Spans are the times at which a hog spins, phases that follow one another joined.
func (s Script) Spans(hog string) (spans [][2]time.Duration) {
	for _, t := range s.Timed() {
		for _, name := range t.Hogs {
			if name != hog {
				continue
			}
			if n := len(spans); n > 0 && spans[n-1][1] == t.From {
				spans[n-1][1] = t.To
			} else {
				spans = append(spans, [2]time.Duration{t.From, t.To})
			}
		}
	}
	return spans
}
