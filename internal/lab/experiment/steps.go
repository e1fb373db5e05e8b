package experiment

import (
	"math"
	"slices"
	"time"

	"github.com/mbcas/mbcas/internal/lab/scenario"
	"github.com/mbcas/mbcas/internal/lab/sim"
)

const (
	// stepRise is how much a load must grow to be a step for a pod.
	stepRise = 1.1
	// stepWindow is the time after a step whose loads say whether CPU is scarce.
	stepWindow = 5 * time.Second
	// Where CPU is scarce, a limit need only reach this part of the pod's usage at the optimum:
	// reserves and dead bands are intended.
	stepDue = 0.8
	// settledBand is how near to its last value a limit has settled.
	settledBand = 0.2
)

// reaction is a quantile of the times in which limits follow steps, in seconds.
func reaction(q float64) func(*Run) float64 {
	return func(r *Run) float64 {
		var times []float64
		for i := range r.Nodes {
			n := &r.Nodes[i]
			for j := range n.pods {
				p := &n.pods[j]
				if p.role != scenario.Service || !p.Spec.Managed() || !p.servesRequests() {
					continue
				}
				steps := r.Steps(p.Spec.Name)
				for s, at := range steps {
					next := n.Setup.Length
					if s+1 < len(steps) {
						next = min(next, steps[s+1])
					}
					if at < next {
						times = n.reaction(j, at, next, times)
					}
				}
			}
		}
		if len(times) == 0 {
			return math.NaN()
		}
		slices.Sort(times)
		return times[min(len(times)-1, int(q*float64(len(times))))]
	}
}

// reaction adds that of one pod to one step, if the pod's load steps up.
func (n *Node) reaction(pod int, at, next time.Duration, times []float64) []float64 {
	p := &n.pods[pod]
	before, due := n.offered(p, at-1), n.offered(p, at)
	if due <= stepRise*before {
		return times
	}
	first := n.first(at)
	last := min(n.first(min(next, at+stepWindow)), len(n.Result.Idle))
	if first < last {
		wanted, best := p.mean(first, last, p.need), n.best(first, last)[pod]
		if best < wanted/stepRise {
			due = min(due, stepDue*best)
		}
	}
	return append(times, (n.reached(p, due, at, next) - at).Seconds())
}

// offered is the load of a pod by its set-up at a time, in cores.
func (n *Node) offered(p *pod, at time.Duration) float64 {
	spec := p.Spec
	if i := slices.IndexFunc(n.Setup.Pods, func(s sim.PodSpec) bool { return s.Namespace == spec.Namespace && s.Name == spec.Name }); i >= 0 {
		spec = n.Setup.Pods[i]
	}
	if at < spec.Start {
		return 0
	}
	rate, _ := spec.Requests.Rate.At(at)
	return rate * spec.Requests.ServiceTime.Seconds()
}

// reached is when the limit of a pod is at least due; to, if it never is.
func (n *Node) reached(p *pod, due float64, from, to time.Duration) time.Duration {
	if n.limit(p.LimitAt(from)) >= due {
		return from
	}
	for _, c := range p.ChangesBetween(from, to) {
		if n.limit(c.To) >= due {
			return c.At
		}
	}
	return to
}

// settling is the longest time from a step until limits settle, in seconds.
func settling(r *Run) float64 {
	longest := math.NaN()
	steps := r.Steps("")
	for s, from := range steps {
		for n, p := range r.each() {
			to := n.Setup.Length
			if s+1 < len(steps) {
				to = min(to, steps[s+1])
			}
			if from >= to || !p.Spec.Managed() || !n.steady(from, to) {
				continue
			}
			took := (n.settled(p, from, to) - from).Seconds()
			if math.IsNaN(longest) || took > longest {
				longest = took
			}
		}
	}
	return longest
}

// settled is when the limit came near its last value and stayed there.
func (n *Node) settled(p *pod, from, to time.Duration) time.Duration {
	end := n.limit(p.LimitAt(to))
	at := from
	for _, c := range p.ChangesBetween(from, to) {
		if math.Abs(n.limit(c.From)-end) > settledBand*end {
			at = c.At // it had not settled before
		}
	}
	return at
}
