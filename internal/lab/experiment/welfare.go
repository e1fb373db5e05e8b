package experiment

import (
	"math"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/market"
)

// A pod is contended in an interval when it is throttled in more than contendedThrottle of its
// periods, when its backlog exceeds the work of contendedWait seconds, or when its busy threads get
// less than contendedSpin of their demand.
const (
	contendedThrottle = 0.1
	contendedWait     = 0.5
	contendedSpin     = 0.95
	// contendedTime is the share of the run in which several pods must be contended for a fairness
	// index.
	contendedTime = 0.1
)

func (p *pod) contended(k int, load float64) bool {
	switch {
	case p.Points[k].Throttle > contendedThrottle:
		return true
	case p.servesRequests():
		return load > 0 && p.backlogAt(k) >= contendedWait*load
	}
	return p.useful(k) < contendedSpin*p.need(k)
}

func jain(r *Run) float64 {
	return overNodes(r, func(n *Node) float64 {
		from, to := n.measured()
		loads := make([]float64, len(n.pods))
		for i := range n.pods {
			loads[i] = n.pods[i].mean(from, to, n.pods[i].need)
		}
		indices, seconds := 0.0, 0
		for k := from; k < to; k++ {
			var sum, squares, count float64
			for i := range n.pods {
				if p := &n.pods[i]; p.runs(k) && p.contended(k, loads[i]) {
					x := p.useful(k) / p.budget
					sum += x
					squares += x * x
					count++
				}
			}
			if count < 2 {
				continue
			}
			seconds++
			if squares > 0 {
				indices += sum * sum / (count * squares)
			} else { // all have the same: nothing
				indices++
			}
		}
		if float64(seconds) < contendedTime*float64(to-from) {
			return math.NaN()
		}
		return indices / float64(seconds)
	})
}

// minEntitlement is the lowest entitlement, in cores, for which shares are compared.
const minEntitlement = 0.005

func worstShare(r *Run) float64 {
	worst := math.NaN()
	for i := range r.Nodes {
		n := &r.Nodes[i]
		from, to := n.measured()
		got, due := make([]float64, len(n.pods)), make([]float64, len(n.pods))
		for k := from; k < to; k++ {
			for j, share := range n.shares(k) {
				if p := &n.pods[j]; p.runs(k) {
					got[j] += p.useful(k)
					due[j] += min(p.need(k), share)
				}
			}
		}
		for j := range got {
			if due[j] < minEntitlement*float64(to-from) {
				continue
			}
			if x := got[j] / due[j]; math.IsNaN(worst) || x < worst {
				worst = x
			}
		}
	}
	return worst
}

// best is the usage of each pod, in cores, at the market's optimum for the mean loads of some
// intervals.
func (n *Node) best(from, to int) []float64 {
	p := market.Problem{Supply: n.allocatable()}
	for i := range n.pods {
		pod := &n.pods[i]
		load := 0.0
		for k := max(0, from); k < to; k++ {
			if pod.runs(k) {
				load += pod.need(k) / float64(to-max(0, from))
			}
		}
		p.Bids = append(p.Bids, market.Bid{
			Budget: market.Budget(pod.budget), Demand: cpu.FromCores(load), Ceiling: n.allocatable(),
		})
	}
	price := market.Clear(p).Price
	best := make([]float64, len(p.Bids))
	for i, b := range p.Bids {
		best[i] = b.Usage(price).Cores()
	}
	return best
}

// minUsage stands for no usage in a logarithm, in cores.
const minUsage = 0.001

func nash(r *Run) float64 {
	return overNodes(r, func(n *Node) float64 {
		from, to := n.measured()
		sum, weight := 0.0, 0.0
		for i, best := range n.best(from, to) {
			if best < minEntitlement {
				continue
			}
			p := &n.pods[i]
			sum += p.budget * math.Log(max(n.usefulMean(p), minUsage)/best)
			weight += p.budget
		}
		return math.Exp(sum / weight)
	})
}

// overNodes is the mean over the nodes to which the measure applies.
func overNodes(r *Run, of func(*Node) float64) float64 {
	sum, count := 0.0, 0.0
	for i := range r.Nodes {
		if x := of(&r.Nodes[i]); !math.IsNaN(x) {
			sum += x
			count++
		}
	}
	return sum / count
}
