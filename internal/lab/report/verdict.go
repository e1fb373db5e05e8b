package report

import (
	"fmt"

	"github.com/mbcas/mbcas/internal/lab/experiment"
)

// verdict is how the default policy stands in one scenario.
type verdict struct {
	Scenario      string
	Latency, Work standing
	OK            bool
	// BeatenBy are those that are better by more than 5 % in one measure, and not worse by more
	// than that in the other.
	BeatenBy []string
}

// standing is how it stands in one measure among those that respect entitlements.
type standing struct{ Own, Best, By, Text string }

// minShare is the worst share from which a policy counts as respecting entitlements.
const minShare = 0.9

// judge compares the default policy with the best of its peers that respect entitlements.
func judge(r experiment.Results, scenario string) (verdict, bool) {
	own := r.Select(scenario, experiment.Default)
	if len(own) == 0 {
		return verdict{}, false
	}
	fair := experiment.Aggregate(own, experiment.WorstShare)
	v := verdict{Scenario: scenario, OK: fair.Count == 0 || fair.Mean >= minShare}
	worse, ahead := map[string]bool{}, map[string]bool{}
	for _, m := range experiment.Measures() {
		var to *standing
		switch m.Unit {
		case experiment.P99:
			to = &v.Latency
		case experiment.BatchCores:
			to = &v.Work
		default:
			continue
		}
		mine := experiment.Aggregate(own, m.Unit)
		if mine.Count == 0 {
			to.Own, to.Text = "–", "nothing to compare"
			continue
		}
		best, by := mine.Mean, experiment.Default
		for _, p := range r.Policies {
			if !experiment.IsPeer(p.Name) {
				continue
			}
			outcomes := r.Select(scenario, p.Name)
			share, s := experiment.Aggregate(outcomes, experiment.WorstShare), experiment.Aggregate(outcomes, m.Unit)
			if s.Count == 0 || share.Count > 0 && share.Mean < minShare {
				worse[p.Name] = true
				continue
			}
			worse[p.Name] = worse[p.Name] || better(m, mine.Mean, s.Mean) && mark(m, mine.Mean, s.Mean) == ""
			ahead[p.Name] = ahead[p.Name] || better(m, s.Mean, mine.Mean) && mark(m, mine.Mean, s.Mean) == ""
			if better(m, s.Mean, best) {
				best, by = s.Mean, p.Name
			}
		}
		*to = standing{Own: short(mine.Mean), Best: short(best), By: by}
		switch mark(m, mine.Mean, best) {
		case "best":
			to.Text = "first"
		case "near":
			to.Text = "within 5 %"
		default:
			to.Text = "behind " + by
			if best > 0 {
				to.Text = fmt.Sprintf("%+.0f %% against %s", 100*(mine.Mean/best-1), by)
			}
			v.OK = false
		}
	}
	for _, p := range r.Policies {
		if ahead[p.Name] && !worse[p.Name] {
			v.BeatenBy = append(v.BeatenBy, p.Name)
		}
	}
	return v, true
}
