package coordinator

import (
	"math"
	"slices"
	"strings"
)

// Rebalance is the factor of each replica for the time until the next turn, in the order of the input. It is a pure function:
// factors in force are part of the input, and nothing else is remembered.
func (c Config) Rebalance(replicas []Replica) []Factor {
	next := make([]Factor, len(replicas))
	order := make([]int, len(replicas))
	for i := range replicas {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		r, s := &replicas[a], &replicas[b]
		if d := strings.Compare(r.Namespace, s.Namespace); d != 0 {
			return d
		}
		if d := strings.Compare(r.Workload, s.Workload); d != 0 {
			return d
		}
		return a - b
	})
	var workloads []*workload // of one namespace
	for begin := 0; begin < len(order); {
		first, end := &replicas[order[begin]], begin+1
		for end < len(order) && first.sibling(&replicas[order[end]]) {
			end++
		}
		workloads = append(workloads, c.workload(replicas, order[begin:end]))
		if end == len(order) || replicas[order[end]].Namespace != first.Namespace {
			c.workloadBudgets(workloads, next)
			workloads = workloads[:0]
		}
		begin = end
	}
	return next
}

// sibling says whether two are replicas of the same workload.
func (r *Replica) sibling(s *Replica) bool {
	return r.Workload != "" && r.Workload == s.Workload && r.Namespace == s.Namespace
}

// workloadBudgets is the turn of the workloads of one.
func (c Config) workloadBudgets(workloads []*workload, next []Factor) {
	kappa, own, apart := priceExponent(c.NamespaceRho), 0.0, false
	for _, w := range workloads {
		own += w.base
		apart = apart || w.spansNodes || w.node != workloads[0].node
	}
	if kappa == 0 || !apart {
		for _, w := range workloads {
			c.replicaFactors(w, w.base, w.base, next)
		}
		return
	}
	items := make([]claim, len(workloads))
	for k, w := range workloads {
		items[k] = w.item(kappa)
	}
	targets := divide(items, own)
	for k, w := range workloads {
		items[k].rate, items[k].useful = c.damped(w.inForce/w.base, targets[k]), math.Inf(1)
	}
	allowed := divide(items, own)
	for k, w := range workloads {
		c.replicaFactors(w, w.base*targets[k], w.base*allowed[k], next)
	}
}

// replicaFactors gives the replicas of a workload their factors: want is the budget that all of them should have in the end, allowed the
// one that they have on the way.
func (c Config) replicaFactors(w *workload, want, allowed float64, next []Factor) {
	items := make([]claim, len(w.members))
	for k := range w.members {
		items[k] = w.members[k].claim
		if !w.movable() {
			items[k].useful = math.Inf(1) // all alike, whoever needs it
		}
	}
	targets := divide(items, want-w.fixed)
	for k := range items {
		items[k].rate, items[k].useful, items[k].gain = c.damped(w.members[k].factor(), targets[k]), math.Inf(1), 1
	}
	moved := divide(items, allowed-w.fixed)
	for k := range w.members {
		m := &w.members[k]
		next[m.index] = m.percent
		if math.Abs(targets[k]-m.factor()) > c.Band*m.factor() {
			next[m.index] = Factor(math.Round(moved[k] * float64(One)))
		}
	}
	for _, m := range w.unknown {
		next[m.index] = m.percent
	}
}

// damped moves a factor towards where it should be: the geometric mean of the two, weighted by Gain.
func (c Config) damped(from, to float64) float64 {
	return math.Pow(from, 1-c.Gain) * math.Pow(to, c.Gain)
}
