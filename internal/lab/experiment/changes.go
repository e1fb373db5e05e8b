package experiment

import (
	"math"
	"slices"
	"time"

	"github.com/mbcas/mbcas/internal/lab/load"
	"github.com/mbcas/mbcas/internal/lab/sim"
)

func changes(r *Run) float64 {
	sum := 0.0
	for n, p := range r.each() {
		sum += float64(len(p.ChangesBetween(n.Setup.WarmUp, n.Setup.Length)))
	}
	return sum
}

// changesPer is per so many seconds of a managed pod's life.
func changesPer(seconds float64) func(*Run) float64 {
	return func(r *Run) float64 {
		var sum, life float64
		for n, p := range r.each() {
			if !p.Spec.Managed() {
				continue
			}
			sum += float64(len(p.ChangesBetween(n.Setup.WarmUp, n.Setup.Length)))
			for range n.intervals(p) {
				life += n.every().Seconds()
			}
		}
		return sum * seconds / life
	}
}

// steady says whether all load of the node is constant for a time.
func (n *Node) steady(from, to time.Duration) bool {
	return !slices.ContainsFunc(n.Setup.Pods, func(s sim.PodSpec) bool {
		if s.Start > from && s.Start < to || s.End > from && s.End < to {
			return true
		}
		for _, p := range []load.Profile{s.Requests.Rate, s.Spin} {
			if p == nil {
				continue
			}
			if _, until := p.At(from); until < to {
				return true
			}
		}
		return false
	})
}

// foldLateChanges sums a function of the changes of each managed pod in the last half of runs whose
// load is constant then.
func foldLateChanges(of func(n *Node, p *pod, changes []sim.Change) float64) func(*Run) (sum, pods float64) {
	return func(r *Run) (sum, pods float64) {
		for n, p := range r.each() {
			if half := n.Setup.Length / 2; p.Spec.Managed() && n.steady(half, n.Setup.Length) {
				sum += of(n, p, p.ChangesBetween(half, n.Setup.Length))
				pods++
			}
		}
		return sum, pods
	}
}

func lateChanges(r *Run) float64 {
	sum, pods := foldLateChanges(func(_ *Node, _ *pod, c []sim.Change) float64 { return float64(len(c)) })(r)
	return sum / pods
}

// minReversals is how often a limit must reverse direction in half a run to count as a cycle.
const minReversals = 4

func cycling(r *Run) float64 {
	sum, pods := foldLateChanges(func(n *Node, _ *pod, changes []sim.Change) float64 {
		turned, up := 0, 0
		for _, c := range changes {
			was := up
			if up = 1; n.limit(c.To) < n.limit(c.From) {
				up = -1
			}
			if was == -up {
				turned++
			}
		}
		if turned >= minReversals {
			return 1
		}
		return 0
	})(r)
	if pods == 0 {
		return math.NaN()
	}
	return sum
}
