package coordinator

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// Rebalance returns the factor of each replica until the next step, in the order of the input. It
// is a pure function: the factors in force are part of the input, and there is no other state.
func (c Config) Rebalance(replicas []Replica) []Factor {
	factors := make([]Factor, len(replicas))
	order := make([]int, len(replicas))
	for i := range replicas {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		r, s := &replicas[a], &replicas[b]
		return cmp.Or(strings.Compare(r.Namespace, s.Namespace), strings.Compare(r.Workload, s.Workload), a-b)
	})
	var workloads []*workload // of one namespace
	for begin := 0; begin < len(order); {
		first, end := &replicas[order[begin]], begin+1
		for end < len(order) && first.sameWorkload(&replicas[order[end]]) {
			end++
		}
		workloads = append(workloads, c.workload(replicas, order[begin:end]))
		if end == len(order) || replicas[order[end]].Namespace != first.Namespace {
			c.rebalanceNamespace(workloads, factors)
			workloads = workloads[:0]
		}
		begin = end
	}
	return factors
}

// sameWorkload says whether two are replicas of the same workload.
func (r *Replica) sameWorkload(s *Replica) bool {
	return r.Workload != "" && r.Workload == s.Workload && r.Namespace == s.Namespace
}

// rebalanceNamespace moves budget between the workloads of a namespace, then within each.
func (c Config) rebalanceNamespace(workloads []*workload, factors []Factor) {
	kappa, total, spansNodes := priceExponent(c.NamespaceRho), 0.0, false
	for _, w := range workloads {
		total += w.base
		spansNodes = spansNodes || w.spansNodes || w.node != workloads[0].node
	}
	if kappa == 0 || !spansNodes {
		for _, w := range workloads {
			c.rebalanceWorkload(w, w.base, w.base, factors)
		}
		return
	}
	claims := make([]claim, len(workloads))
	for k, w := range workloads {
		claims[k] = w.claim(kappa)
	}
	targets := divide(claims, total)
	for k, w := range workloads {
		claims[k].rate, claims[k].useful = c.damped(w.inForce/w.base, targets[k]), math.Inf(1)
	}
	next := divide(claims, total)
	for k, w := range workloads {
		c.rebalanceWorkload(w, w.base*targets[k], w.base*next[k], factors)
	}
}

// rebalanceWorkload sets the factors of the replicas of a workload: target is the budget of all of
// them in the end, next the one of this step.
func (c Config) rebalanceWorkload(w *workload, target, next float64, factors []Factor) {
	claims := make([]claim, len(w.members))
	for k := range w.members {
		claims[k] = w.members[k].claim
		if !w.movable() {
			claims[k].useful = math.Inf(1) // the same factor for all, whatever their needs are
		}
	}
	targets := divide(claims, target-w.fixed)
	for k := range claims {
		claims[k].rate, claims[k].useful, claims[k].gain = c.damped(w.members[k].factor(), targets[k]), math.Inf(1), 1
	}
	moved := divide(claims, next-w.fixed)
	for k := range w.members {
		m := &w.members[k]
		factors[m.index] = m.percent
		if math.Abs(targets[k]-m.factor()) > c.Band*m.factor() {
			factors[m.index] = Factor(math.Round(moved[k] * float64(Neutral)))
		}
	}
	for _, m := range w.outdated {
		factors[m.index] = m.percent
	}
}

// damped moves a factor towards its target: the geometric mean of the two, weighted by Gain.
func (c Config) damped(from, to float64) float64 {
	return math.Pow(from, 1-c.Gain) * math.Pow(to, c.Gain)
}
