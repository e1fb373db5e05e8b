package round

import (
	"time"

	"github.com/mbcas/mbcas/internal/sense"
)

// Gauge measures what a node can sell, as Run does, for policies that divide the same supply by another rule. The zero
// value starts.
type Gauge struct {
	system  float64 // smoothed CPU usage outside of pods, in cores
	fullFor time.Duration
}

// Measure is the node's supply at these rates, and whether the node has been full for Onset.
func (g *Gauge) Measure(cfg Config, n Node, r sense.NodeRates) (d NodeDecision, full bool) {
	d, g.system = supply(cfg, n, r, g.system)
	g.fullFor = updateFullFor(n, r, g.fullFor)
	return d, lasted(g.fullFor, r.Elapsed, cfg.Onset)
}
