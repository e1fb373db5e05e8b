package experiment

import (
	"cmp"
	"slices"

	"github.com/mbcas/mbcas/internal/lab/scenario"
	"github.com/mbcas/mbcas/internal/lab/sim"
)

// Key identifies a run.
type Key struct {
	Scenario, Policy string
	Seed             uint64
}

// Summary is what is kept of one run.
type Summary struct {
	Key
	Values  Values
	Latency *sim.Latencies // of the services
	Useful  []Useful       // of liars and honest pods
	Series  *Series        // of one node; nil where not requested
}

// Useful is the useful usage of a pod.
type Useful struct {
	Node int
	Pod  string
	Role scenario.Role
	Mean float64 // cores, after the warm-up
}

// Summarize measures a run. With series, it keeps the time series of some pods of the first node.
func (r *Run) Summarize(key Key, series bool) Summary {
	o := Summary{Key: key, Values: MeasureRun(r), Latency: r.Latency()}
	for i := range r.Nodes {
		n := &r.Nodes[i]
		for j := range n.pods {
			if p := &n.pods[j]; p.role == scenario.Liar || p.role == scenario.Honest {
				o.Useful = append(o.Useful, Useful{i, p.Spec.Namespace + "/" + p.Spec.Name, p.role, n.usefulMean(p)})
			}
		}
	}
	if series && len(r.Nodes) > 0 {
		o.Series = r.Nodes[0].series()
	}
	return o
}

// CompareWithTruth adds what liars gain and honest pods lose compared with the reference run. Pods
// are paired by node and name.
func (o *Summary) CompareWithTruth(truth Summary) {
	type id struct {
		node int
		pod  string
	}
	before := map[id]float64{}
	for _, u := range truth.Useful {
		before[id{u.Node, u.Pod}] = u.Mean
	}
	var lied, told, loss float64
	liars, honest := false, false
	for _, u := range o.Useful {
		was, ok := before[id{u.Node, u.Pod}]
		if !ok || was == 0 {
			continue
		}
		if u.Role == scenario.Liar {
			liars = true
			lied += u.Mean
			told += was
			continue
		}
		lost := 1 - u.Mean/was
		if !honest || lost > loss {
			loss = lost
		}
		honest = true
	}
	if liars {
		o.Values[LiarGain] = 100 * (lied/told - 1)
	}
	if honest {
		o.Values[HonestLoss] = 100 * loss
	}
}

// Results are those of a comparison.
type Results struct {
	// Scenarios and Policies are in the order of the report.
	Scenarios, Policies []Named
	Summaries           []Summary
	// Missing is how many requested runs are not complete.
	Missing int
}

// Named is a name with a description.
type Named struct{ Name, Description string }

// Sort sorts the summaries by scenario, policy and seed.
func (r *Results) Sort() {
	scenario, policy := places(r.Scenarios), places(r.Policies)
	slices.SortFunc(r.Summaries, func(a, b Summary) int {
		return cmp.Or(
			cmp.Compare(scenario[a.Scenario], scenario[b.Scenario]),
			cmp.Compare(policy[a.Policy], policy[b.Policy]),
			cmp.Compare(a.Seed, b.Seed),
		)
	})
}

func places(names []Named) map[string]int {
	at := make(map[string]int, len(names))
	for i, n := range names {
		at[n.Name] = i
	}
	return at
}

// Select are the summaries of one policy in one scenario, one per seed.
func (r *Results) Select(scenario, policy string) []Summary {
	var found []Summary
	for _, o := range r.Summaries {
		if o.Scenario == scenario && o.Policy == policy {
			found = append(found, o)
		}
	}
	return found
}

// Range is the mean of a measure over seeds, with the lowest and the highest value.
type Range struct {
	Mean, Low, High float64
	Count           int
}

// Aggregate is the range of a measure; Count 0: it applies to none of the runs.
func Aggregate(outcomes []Summary, unit string) Range {
	var s Range
	for _, o := range outcomes {
		v, ok := o.Values[unit]
		if !ok {
			continue
		}
		if s.Count == 0 {
			s.Low, s.High = v, v
		}
		s.Low, s.High = min(s.Low, v), max(s.High, v)
		s.Mean += v
		s.Count++
	}
	if s.Count > 0 {
		s.Mean /= float64(s.Count)
	}
	return s
}
