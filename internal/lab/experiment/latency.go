package experiment

import (
	"math"

	"github.com/mbcas/mbcas/internal/lab/scenario"
	"github.com/mbcas/mbcas/internal/lab/sim"
)

// Latency is the latency of all services of a run, together.
func (r *Run) Latency() *sim.Latencies {
	all := new(sim.Latencies)
	for _, p := range r.each() {
		if p.role == scenario.Service && p.Latency != nil {
			all.Merge(p.Latency)
		}
	}
	return all
}

func quantile(q float64) func(*Run) float64 {
	return func(r *Run) float64 {
		l := r.Latency()
		return l.Quantile(q).Seconds() * 1000 / float64(min(l.Count, 1))
	}
}

func backlog(r *Run) float64 {
	var waited, arrived float64
	for n, p := range r.each() {
		if p.role != scenario.Service {
			continue
		}
		for k := range n.intervals(p) {
			waited += p.backlogAt(k)
			arrived += p.Points[k].Offered.Cores()
		}
	}
	return waited / arrived
}

func throttled(r *Run) float64 {
	return periods(r, func(p *pod) bool { return p.role == scenario.Service }, func(p *pod) uint64 { return p.Throttled })
}

func throttledIdle(r *Run) float64 {
	return periods(r, func(*pod) bool { return true }, func(p *pod) uint64 { return p.ThrottledIdle })
}

// periods is the share of some pods' periods, in percent. Pods without limits have none, and are
// not throttled.
func periods(r *Run, counts func(*pod) bool, of func(*pod) uint64) float64 {
	var on, all uint64
	any := false
	for _, p := range r.each() {
		if counts(p) {
			on += of(p)
			all += p.Periods
			any = true
		}
	}
	if !any {
		return math.NaN()
	}
	return 100 * float64(on) / float64(max(1, all))
}

func starved(r *Run) float64 {
	var on, all float64
	for i := range r.Nodes {
		n := &r.Nodes[i]
		from, to := n.measured()
		for k := from; k < to; k++ {
			shares := n.shares(k)
			for j := range n.pods {
				p := &n.pods[j]
				if !p.runs(k) {
					continue
				}
				all++
				if p.starved(k, shares[j], n.every().Seconds()) {
					on++
				}
			}
		}
	}
	return 100 * (on / all)
}

// starved says whether work waited throughout an interval while the pod used less than half of its
// due.
func (p *pod) starved(k int, share, seconds float64) bool {
	waits := p.need(k)
	if p.servesRequests() {
		if p.backlogAt(k-1) == 0 || p.backlogAt(k) == 0 {
			return false
		}
		waits += p.backlogAt(k-1) / seconds
	}
	return p.useful(k) < min(waits, share)/2
}
