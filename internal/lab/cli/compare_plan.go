package cli

import (
	"context"
	"time"

	"github.com/mbcas/mbcas/internal/lab/baseline"
	"github.com/mbcas/mbcas/internal/lab/experiment"
	"github.com/mbcas/mbcas/internal/lab/scenario"
)

// plan is the runs of a comparison.
type plan struct {
	scenarios []*scenario.Scenario
	policies  []baseline.Policy
	seeds     int
	length    time.Duration // 0: as long as the scenario is
}

// job is one run and its estimated cost.
type job struct {
	scenario *scenario.Scenario
	policy   baseline.Policy
	seed     uint64
	cost     float64
}

// jobs are all runs, seed by seed: a comparison that is stopped early has all policies with fewer
// seeds.
func (p plan) jobs() []job {
	var jobs []job
	for seed := range p.seeds {
		for _, s := range p.scenarios {
			pods := 0
			for _, pod := range s.Pods {
				pods += max(1, pod.Replicas)
			}
			length := s.Length
			if p.length > 0 {
				length = min(length, max(p.length, 2*s.WarmUp))
			}
			for _, policy := range p.policies {
				jobs = append(jobs, job{s, policy, uint64(seed + 1), length.Seconds() * float64(max(1, s.Nodes)*(s.Node.Cores+pods))})
			}
		}
	}
	return jobs
}

// run runs all jobs on all CPUs, until the context ends. Order and figures of the results do not
// depend on the number of CPUs.
func (p plan) run(ctx context.Context, progress *progress) experiment.Results {
	jobs := p.jobs()
	outcomes := make([]*experiment.Summary, len(jobs))
	cost := 0.0
	for _, j := range jobs {
		cost += j.cost
	}
	progress.begin(len(jobs), cost)
	parallel(ctx, len(jobs), func(i int) {
		j := jobs[i]
		o := experiment.RunScenario(j.scenario, j.policy, j.seed, p.length, j.seed == 1)
		outcomes[i] = &o
		progress.done(j.cost, j.scenario.Name+" under "+j.policy.Name)
	})
	progress.end()

	r := experiment.Results{Scenarios: scenarioNames(p.scenarios), Policies: policyNames(p.policies)}
	for _, o := range outcomes {
		if o == nil {
			r.Missing++
			continue
		}
		r.Summaries = append(r.Summaries, *o)
	}
	p.compareReferences(r.Summaries)
	r.Sort()
	return r
}

// compareReferences adds what liars gained, where both runs are complete.
func (p plan) compareReferences(outcomes []experiment.Summary) {
	at := make(map[experiment.Key]int, len(outcomes))
	for i, o := range outcomes {
		at[o.Key] = i
	}
	for _, s := range p.scenarios {
		if s.Reference == "" {
			continue
		}
		for i := range outcomes {
			if o := &outcomes[i]; o.Scenario == s.Name {
				if truth, ok := at[experiment.Key{Scenario: s.Reference, Policy: o.Policy, Seed: o.Seed}]; ok {
					o.CompareWithTruth(outcomes[truth])
				}
			}
		}
	}
}
