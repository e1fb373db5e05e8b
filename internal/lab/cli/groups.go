package cli

import (
	"fmt"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/lab/scenario"
	"github.com/mbcas/mbcas/internal/lab/sim"
	"github.com/mbcas/mbcas/market"
)

// podGroup is the pods of one name on all nodes.
type podGroup struct {
	sum     sim.PodResult // sums of their counters
	ran     time.Duration
	changes int
	limits  valueRange[cpu.Milli] // at the end
}

// valueRange is a minimum and a maximum.
type valueRange[N cpu.Milli | float64 | market.Price] struct {
	low, high N
	known     bool
}

func (s *valueRange[N]) add(v N) {
	if !s.known {
		*s = valueRange[N]{v, v, true}
	}
	s.low, s.high = min(s.low, v), max(s.high, v)
}

// groupTable has one row for all pods of a name: mean usage, all requests, all changes of limits,
// and the lowest and highest limit at the end.
func groupTable(sc *scenario.Scenario, nodes []nodeRun) *table {
	var names []string
	crowds := map[string]*podGroup{}
	for _, n := range nodes {
		for i := range n.result.Pods {
			p := &n.result.Pods[i]
			c := crowds[p.Spec.Name]
			if c == nil {
				names = append(names, p.Spec.Name)
				c = &podGroup{sum: sim.PodResult{Spec: p.Spec}}
				c.sum.Latency = new(sim.Latencies)
				crowds[p.Spec.Name] = c
			}
			c.add(p, ran(n.setup, p.Spec))
		}
	}
	t := &table{header: podHeader, left: 2}
	for _, name := range names {
		t.add(crowds[name].cells(sc)...)
	}
	return t
}

func (c *podGroup) add(p *sim.PodResult, ran time.Duration) {
	c.sum.Usage += p.Usage
	c.sum.Periods += p.Periods
	c.sum.Throttled += p.Throttled
	c.sum.Backlog += p.Backlog
	c.sum.Latency.Merge(p.Latency)
	c.ran += ran
	c.changes += len(p.Changes)
	c.limits.add(lastLimit(p))
}

func (c *podGroup) cells(sc *scenario.Scenario) []string {
	limit := formatCPU(c.limits.low)
	if c.limits.high != c.limits.low {
		limit += "-" + formatCPU(c.limits.high)
	}
	return podCells(sc, &c.sum, limit, c.ran, c.changes)
}

// groupLine is the utilisation of the nodes, and their last prices.
func groupLine(nodes []nodeRun) string {
	var used valueRange[float64]
	var prices valueRange[market.Price]
	sum, changes := 0.0, 0
	for _, n := range nodes {
		u := n.used()
		used.add(u)
		sum += u
		changes += n.changes()
		if last := len(n.result.Price); last > 0 {
			prices.add(n.result.Price[last-1])
		}
	}
	first := nodes[0].setup
	line := fmt.Sprintf("%d nodes of %d cores: %.1f%% used (%.1f%% to %.1f%%) over %v after %v of warm-up; %d changes of limits",
		len(nodes), first.Machine.Cores, 100*sum/float64(len(nodes)), 100*used.low, 100*used.high, first.Length-first.WarmUp, first.WarmUp, changes)
	if prices.known {
		line += fmt.Sprintf("; prices %v to %v at the end", prices.low, prices.high)
	}
	return line + ".\n"
}
