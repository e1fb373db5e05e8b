// Package experiment measures policies: it runs scenarios under the policies that are compared,
// measures the results, and writes them in the benchmark format and as CSV. Measures are pure
// functions of the simulator's results.
//
// What it promises, each a test of the same name:
//   - EveryMeasureIsWorkedByHand: each measure of a small artificial run is the figure worked out
//     by hand.
//   - AbsentIsNotZero: a measure that does not apply to a run is left out, never written as 0.
//   - LinesAreBenchmarkFormat: results.txt is what benchstat reads, with each unit declared once.
//   - OneOrder: summaries are written in one order, whatever order they were added in.
package experiment

import (
	"cmp"
	"iter"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/lab/load"
	"github.com/mbcas/mbcas/internal/lab/scenario"
	"github.com/mbcas/mbcas/internal/lab/sim"
)

// Run is a completed run of a scenario: all that a measure sees.
type Run struct {
	Nodes []Node
	// Role is the role of a pod in the scenario.
	Role func(pod string) scenario.Role
	// Steps are the times at which the load of a pod steps up, or of any for "".
	Steps func(pod string) []time.Duration
}

// Node is one node of a run.
type Node struct {
	Setup  sim.Setup
	Result sim.Result
	pods   []pod
}

// pod is one pod with what several measures need.
type pod struct {
	*sim.PodResult
	role   scenario.Role
	budget float64
	// needs is the demand of busy threads in each interval, in cores.
	needs []float64
}

// prepare computes what several measures need.
func (r *Run) prepare() {
	for i := range r.Nodes {
		n := &r.Nodes[i]
		n.pods = nil
		for j := range n.Result.Pods {
			p := &n.Result.Pods[j]
			if p.Spec.System {
				continue
			}
			known := pod{PodResult: p, role: r.Role(p.Spec.Name), budget: float64(demand.Budget(p.Spec.Request, p.Spec.Priority))}
			if p.Spec.Spin != nil {
				for k := range p.Points {
					known.needs = append(known.needs, min(n.cores(), meanOf(p.Spec.Spin, n.at(k-1), n.at(k))))
				}
			}
			n.pods = append(n.pods, known)
		}
	}
}

// each yields every pod with its node.
func (r *Run) each() iter.Seq2[*Node, *pod] {
	return func(yield func(*Node, *pod) bool) {
		for i := range r.Nodes {
			for j := range r.Nodes[i].pods {
				if !yield(&r.Nodes[i], &r.Nodes[i].pods[j]) {
					return
				}
			}
		}
	}
}

// intervals yields those after the warm-up in which a pod runs.
func (n *Node) intervals(p *pod) iter.Seq[int] {
	return func(yield func(int) bool) {
		for k, to := n.measured(); k < to; k++ {
			if p.runs(k) && !yield(k) {
				return
			}
		}
	}
}

// usefulMean is the useful usage of a pod after the warm-up, in cores.
func (n *Node) usefulMean(p *pod) float64 {
	from, to := n.measured()
	sum := 0.0
	for k := range n.intervals(p) {
		sum += p.useful(k) / float64(to-from)
	}
	return sum
}

func (n *Node) every() time.Duration {
	return cmp.Or(n.Setup.Interval, time.Second)
}

// at is the end of an interval.
func (n *Node) at(interval int) time.Duration { return time.Duration(interval+1) * n.every() }

// first is the first interval that starts at or after a time.
func (n *Node) first(after time.Duration) int {
	return int((after + n.every() - 1) / n.every())
}

// measured are the intervals after the warm-up.
func (n *Node) measured() (from, to int) { return n.first(n.Setup.WarmUp), len(n.Result.Idle) }

func (n *Node) length() time.Duration { return n.Setup.Length - n.Setup.WarmUp }

func (n *Node) cores() float64 { return float64(n.Setup.Machine.Cores) }

func (n *Node) allocatable() cpu.Milli {
	return cmp.Or(n.Setup.Machine.Allocatable, cpu.Milli(n.Setup.Machine.Cores)*cpu.Core)
}

// limit is a limit in cores; none is the whole node.
func (n *Node) limit(l cpu.Milli) float64 {
	if l == 0 {
		return n.cores()
	}
	return min(n.cores(), l.Cores())
}

// servesRequests says whether the pod has requests. Busy threads of such a pod are not useful.
func (p *pod) servesRequests() bool { return p.Spec.Requests.Rate != nil }

// runs says whether the pod runs in an interval.
func (p *pod) runs(k int) bool { return k < len(p.Points) && !p.Points[k].Absent }

// useful is the useful usage in an interval, in cores: that of requests, or of busy threads where
// it has no requests.
func (p *pod) useful(k int) float64 {
	if p.servesRequests() {
		return p.Points[k].Useful.Cores()
	}
	return p.Points[k].Usage.Cores()
}

// need is the useful usage that the pod would have alone on the node, in cores.
func (p *pod) need(k int) float64 {
	switch {
	case p.servesRequests():
		return p.Points[k].Offered.Cores()
	case p.needs != nil:
		return p.needs[k]
	}
	return 0
}

// backlogAt is the unfinished work at the end of an interval, in core seconds.
func (p *pod) backlogAt(k int) float64 {
	if k < 0 {
		return 0
	}
	return p.Points[k].Backlog.Seconds()
}

// mean is that of a figure over the intervals in which the pod runs; NaN where it never does.
func (p *pod) mean(from, to int, of func(k int) float64) float64 {
	sum, n := 0.0, 0
	for k := max(0, from); k < to; k++ {
		if p.runs(k) {
			sum += of(k)
			n++
		}
	}
	return sum / float64(n)
}

// shares are the pods' in an interval: allocatable CPU in proportion to the budgets of the pods
// that run.
func (n *Node) shares(k int) []float64 {
	total := 0.0
	for i := range n.pods {
		if n.pods[i].runs(k) {
			total += n.pods[i].budget
		}
	}
	shares := make([]float64, len(n.pods))
	for i := range n.pods {
		if n.pods[i].runs(k) {
			shares[i] = n.pods[i].budget / total * n.allocatable().Cores()
		}
	}
	return shares
}

// meanOf is the mean of a profile.
func meanOf(p load.Profile, from, to time.Duration) float64 {
	sum := 0.0
	for at := from; at < to; {
		v, until := p.At(at)
		until = min(until, to)
		sum += v * float64(until-at)
		at = until
	}
	return sum / float64(to-from)
}
