// Package record is what one run of the demo's script left behind, and the figures drawn from it.
//
// Promises:
//   - A request belongs to the phase in which it was to be sent: TestRequestsBelongToTheirIntendedPhase.
//   - Throttling after a step is counted from the fifth second: TestThrottledAfterTheStep.
package record

import (
	"time"

	"github.com/mbcas/mbcas/test/demo/internal/ledger"
	"github.com/mbcas/mbcas/test/demo/internal/script"
	"github.com/mbcas/mbcas/test/internal/traffic"
)

// Run is one play of a script.
type Run struct {
	Name     string
	Script   script.Script
	Samples  []Sample
	Requests map[string][]traffic.Result // by service, in the order in which they ended
	Changes  []ledger.Change
	Node     []NodeSample
}

// NodeSample is the whole machine in one second, in thousandths of a core.
type NodeSample struct {
	At         time.Duration
	Busy, Idle int64
}

// Idle is the machine's mean idle CPU in a phase, from Settle after its start.
func (r Run) Idle(phase string) (mean float64, ok bool) {
	p, err := r.Script.Phase(phase)
	if err != nil {
		return 0, false
	}
	n := 0
	for _, s := range r.Node {
		if s.At >= p.From+Settle+time.Second && s.At <= p.To {
			mean += float64(s.Idle)
			n++
		}
	}
	return mean / float64(max(n, 1)), n > 0
}

// Sample is one pod in one second.
type Sample struct {
	At    time.Duration // from the start of the run
	Phase string
	App   string
	// CPU in thousandths of a core; 0: none.
	Request, Limit, Quota, Use int64
	Throttled                  float64 // milliseconds of throttled time per second, summed over CPUs
	Ratio                      float64 // share of periods that were throttled
	Demand                     int64   // as MBCAS sees it
	Price                      string
	// Latency of the requests that ended in the last Window, in milliseconds; 0: none ended.
	P50, P99 float64
}

// Window is how far back the latency of a sample looks.
const Window = 5 * time.Second

// Settle is how long after a step throttling may still be seen.
const Settle = 5 * time.Second

// Latency is a quantile over the requests to a service that were to be sent in a phase, in
// milliseconds.
func (r Run) Latency(service, phase string, q float64) (ms float64, ok bool) {
	var all []time.Duration
	for _, x := range r.in(service, phase) {
		all = append(all, x.Latency)
	}
	d, ok := traffic.Quantile(all, q)
	return Milliseconds(d), ok
}

// Unserved counts the requests of a phase by how they failed.
func (r Run) Unserved(service, phase string) (unserved, all int) {
	for _, x := range r.in(service, phase) {
		all++
		if x.Status != traffic.Served {
			unserved++
		}
	}
	return unserved, all
}

func (r Run) in(service, phase string) (in []traffic.Result) {
	p, err := r.Script.Phase(phase)
	if err != nil {
		return nil
	}
	for _, x := range r.Requests[service] {
		if x.At >= p.From && x.At < p.To {
			in = append(in, x)
		}
	}
	return in
}

// Throttled is the mean throttled time of an app, in milliseconds per second, from Settle after the
// phase's start to its end; ok is false where nothing was sampled.
func (r Run) Throttled(app, phase string) (mean float64, ok bool) {
	p, err := r.Script.Phase(phase)
	if err != nil {
		return 0, false
	}
	n := 0
	for _, s := range r.Samples {
		// A sample covers the second before it.
		if s.App == app && s.At >= p.From+Settle+time.Second && s.At <= p.To {
			mean += s.Throttled
			n++
		}
	}
	return mean / float64(max(n, 1)), n > 0
}

// Late is a quantile of the generator's own delay over all requests, in milliseconds: how far the
// measurement itself can be trusted.
func (r Run) Late(q float64) float64 {
	var all []time.Duration
	for _, requests := range r.Requests {
		for _, x := range requests {
			all = append(all, x.Late)
		}
	}
	d, _ := traffic.Quantile(all, q)
	return Milliseconds(d)
}

// Milliseconds is d in milliseconds.
func Milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
