package report

import (
	"cmp"
	"slices"
	"strings"

	"github.com/mbcas/mbcas/internal/lab/experiment"
)

// plottedPolicies are the policies that pictures of a scenario show, at most so many: the default,
// the limits as they are declared, no limits, and then those with the least p99. Variants of the
// default are left to the tables.
func plottedPolicies(r experiment.Results, scenario string, most int) []string {
	var first, rest []string
	p99 := map[string]float64{}
	for _, p := range r.Policies {
		outcomes := r.Select(scenario, p.Name)
		if len(outcomes) == 0 {
			continue
		}
		p99[p.Name] = experiment.Aggregate(outcomes, experiment.P99).Mean
		switch {
		case p.Name == experiment.Default:
			first = slices.Insert(first, 0, p.Name)
		case p.Name == experiment.Static || p.Name == experiment.NoLimits:
			first = append(first, p.Name)
		case strings.HasPrefix(p.Name, experiment.Default+"-"):
		default:
			rest = append(rest, p.Name)
		}
	}
	slices.SortStableFunc(rest, func(a, b string) int { return cmp.Compare(p99[a], p99[b]) })
	all := append(first, rest...)
	return all[:min(most, len(all))]
}

// point is where a policy stands between latency and throughput.
type point struct {
	policy string
	number int
	p99    float64 // ms
	batch  float64 // cores
	best   bool    // on the front
}

// front are all policies of a scenario that has both services and batch; those on the front are
// marked.
func front(r experiment.Results, scenario string) []point {
	var points []point
	for i, p := range r.Policies {
		outcomes := r.Select(scenario, p.Name)
		p99, batch := experiment.Aggregate(outcomes, experiment.P99), experiment.Aggregate(outcomes, experiment.BatchCores)
		if p99.Count > 0 && batch.Count > 0 {
			points = append(points, point{policy: p.Name, number: i + 1, p99: p99.Mean, batch: batch.Mean})
		}
	}
	for i := range points {
		points[i].best = !slices.ContainsFunc(points, func(o point) bool {
			p := points[i]
			return o.p99 <= p.p99 && o.batch >= p.batch && (o.p99 < p.p99 || o.batch > p.batch)
		})
	}
	return points
}
