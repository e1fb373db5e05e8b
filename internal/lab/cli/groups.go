package cli

import (
	"fmt"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/lab/scenario"
	"github.com/mbcas/mbcas/internal/lab/sim"
	"github.com/mbcas/mbcas/market"
)

// podGroup is a pod, or the pods of one name on all nodes.
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

// podTable has a row for each pod, or, of many nodes, one for all pods of a name: mean usage, all
// requests, all changes of limits, and the lowest and highest limit at the end.
func podTable(sc *scenario.Scenario, nodes []nodeRun) *table {
	t := &table{header: podHeader, left: 2}
	listed := len(nodes) > 1 && len(nodes) <= maxNodesListed
	if listed {
		t.header, t.left = append([]string{"NODE"}, podHeader...), 3
	}
	type key struct {
		node int // 0: all
		pod  string
	}
	var order []key
	groups := map[key]*podGroup{}
	for i, n := range nodes {
		for j := range n.result.Pods {
			p := &n.result.Pods[j]
			of := key{pod: p.Spec.Namespace + "/" + p.Spec.Name}
			if listed {
				of.node = i + 1
			}
			if groups[of] == nil {
				order = append(order, of)
				groups[of] = &podGroup{sum: sim.PodResult{Spec: p.Spec, Counters: sim.Counters{Latency: new(sim.Latencies)}}}
			}
			groups[of].add(p, ran(n.setup, p.Spec))
		}
	}
	for _, of := range order {
		row := groups[of].cells(sc)
		if listed {
			row = append([]string{fmt.Sprint(of.node)}, row...)
		}
		t.add(row...)
	}
	return t
}

func (c *podGroup) add(p *sim.PodResult, ran time.Duration) {
	c.sum.Counters.Merge(p.Counters)
	c.sum.Backlog += p.Backlog
	c.ran += ran
	c.changes += len(p.Changes)
	c.limits.add(lastLimit(p))
}

func (c *podGroup) cells(sc *scenario.Scenario) []string {
	p, limit := &c.sum, formatCPU(c.limits.low)
	if c.limits.high != c.limits.low {
		limit += "-" + formatCPU(c.limits.high)
	}
	role := string(sc.Role(p.Spec.Name))
	if p.Spec.System {
		role = "system"
	}
	backlog := "-"
	if p.Spec.Requests.Rate != nil {
		backlog = formatDuration(p.Backlog)
	}
	return []string{
		p.Spec.Name, role, formatCPU(p.Spec.Request), limit, cpu.FromUsage(p.Usage, c.ran).String(),
		formatThrottled(p.Counters, 1), formatLatency(p.Counters, 0.5), formatLatency(p.Counters, 0.99), formatLatency(p.Counters, 0.999), backlog, fmt.Sprint(c.changes),
	}
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
