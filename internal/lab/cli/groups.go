package cli

import (
	"fmt"
	"math"
	"slices"
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
	limits  []cpu.Milli // at the end
}

// podTable has a row for each pod, or, of many nodes, one for all pods of a name: mean usage, all
// requests, all changes of limits, and the lowest and highest limit at the end.
func podTable(sc *scenario.Scenario, nodes []nodeRun) *table {
	t := &table{header: podHeader}
	listed := len(nodes) > 1 && len(nodes) <= maxNodesListed
	if listed {
		t.header = append([]string{"NODE"}, podHeader...)
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
	c.limits = append(c.limits, p.LimitAt(math.MaxInt64))
}

func (c *podGroup) cells(sc *scenario.Scenario) []string {
	p, limit := &c.sum, formatCPU(slices.Min(c.limits))
	if most := formatCPU(slices.Max(c.limits)); most != limit {
		limit += "-" + most
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
	var used []float64
	var prices []market.Price
	sum, changes := 0.0, 0
	for _, n := range nodes {
		used = append(used, n.used())
		sum += n.used()
		changes += n.changes()
		if last := len(n.result.Price); last > 0 {
			prices = append(prices, n.result.Price[last-1])
		}
	}
	first := nodes[0].setup
	line := fmt.Sprintf("%d nodes of %d cores: %.1f%% used (%.1f%% to %.1f%%) over %v after %v of warm-up; %d changes of limits",
		len(nodes), first.Machine.Cores, 100*sum/float64(len(nodes)), 100*slices.Min(used), 100*slices.Max(used), first.Length-first.WarmUp, first.WarmUp, changes)
	if len(prices) > 0 {
		line += fmt.Sprintf("; prices %v to %v at the end", slices.Min(prices), slices.Max(prices))
	}
	return line + ".\n"
}
