package experiment

import (
	"time"

	"github.com/mbcas/mbcas/internal/lab/baseline"
	"github.com/mbcas/mbcas/internal/lab/scenario"
	"github.com/mbcas/mbcas/internal/lab/sim"
)

// RunScenario runs a scenario under a policy, one node after the other, and measures it. A length
// other than 0 ends it earlier.
func RunScenario(s *scenario.Scenario, p baseline.Policy, seed uint64, length time.Duration, series bool) Summary {
	r := Run{Role: s.Role, Steps: s.Steps}
	for node := range max(1, s.Nodes) {
		setup := s.Setup(node, seed)
		if length > 0 {
			setup.Length = min(setup.Length, max(length, 2*setup.WarmUp))
		}
		r.Nodes = append(r.Nodes, Node{Setup: setup, Result: sim.Run(setup, p.New())})
	}
	return r.Summarize(Key{s.Name, p.Name, seed}, series)
}
