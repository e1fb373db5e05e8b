// Package fleet is what each controller tells Prometheus of all nodes: their markets, as the agents tell them
// with each renewal of their Leases. So a cluster of any size shows in the controllers' series, whose number
// does not grow with it.
//
// What it promises, each a test of the same name:
//   - CountsNodes: a node counts once, by what its agent said last; one whose agent says nothing is unknown, and
//     one whose agent does not renew its Lease is silent.
//   - SameNumberOfSeries: a cluster of a thousand nodes has as many series as an empty one.
package fleet

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/nodestate"
)

// Collector collects the metrics of all nodes from the Leases of their agents.
type Collector struct {
	// Leases is the cache.
	Leases client.Reader
	// Namespace is that of the Leases.
	Namespace string
	// Age is the time since the agent of a node was last seen to renew its Lease.
	Age func(node string) time.Duration
	// SilentAfter is the age from which an agent counts as silent. Shorter counts agents that renew a little
	// late; longer shows an agent that has stopped later.
	SilentAfter time.Duration
}

// readTimeout bounds a read of the cache, which waits until it is filled.
const readTimeout = time.Second

// percentiles of the price are told.
var percentiles = []struct {
	of    float64
	label string
}{{.5, "50"}, {.9, "90"}, {1, "100"}}

var (
	nodesDesc = prometheus.NewDesc("mbcas_cluster_nodes",
		"Nodes by what their agents said last in their Leases: free (CPU has no price), scarce (it has one), full (the floors "+
			"exceed the supply), unknown (the Lease has no market), silent (the agent has not renewed its Lease). Each controller "+
			"says the same of the whole cluster.", []string{"state"}, nil)
	priceDesc = prometheus.NewDesc("mbcas_cluster_price",
		"Percentiles of the price of CPU over the nodes whose agents tell it; 0 where there is none.",
		[]string{"percentile"}, nil)
	coresDesc = prometheus.NewDesc("mbcas_cluster_cores",
		"Sums over the nodes whose agents tell them: CPU that their markets sell (supply), that pods would use without "+
			"limits (demand), and that they used (usage).", []string{"of"}, nil)
)

// Describe implements prometheus.Collector.
func (*Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{nodesDesc, priceDesc, coresDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. While the Leases cannot be read it collects nothing.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	var leases coordinationv1.LeaseList
	if err := c.Leases.List(ctx, &leases, client.InNamespace(c.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return
	}
	gauge := func(d *prometheus.Desc, v float64, label string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, label)
	}
	s := c.sum(leases.Items)
	for _, state := range nodestate.All {
		gauge(nodesDesc, float64(s.nodes[state]), string(state))
	}
	slices.Sort(s.prices)
	for _, p := range percentiles {
		gauge(priceDesc, percentile(s.prices, p.of), p.label)
	}
	gauge(coresDesc, s.supply, "supply")
	gauge(coresDesc, s.demand, "demand")
	gauge(coresDesc, s.usage, "usage")
}

// sums are over all nodes.
type sums struct {
	nodes                 map[nodestate.State]int
	prices                []float64
	supply, demand, usage float64 // in cores
}

func (c *Collector) sum(leases []coordinationv1.Lease) sums {
	s := sums{nodes: map[nodestate.State]int{}}
	for i := range leases {
		node, ok := kube.AgentLeaseNode(&leases[i])
		if !ok {
			continue
		}
		m, err := allocation.ParseNodeMarket(leases[i].Annotations[kube.MarketKey])
		switch {
		case c.Age(node) >= c.SilentAfter:
			s.nodes[nodestate.Silent]++
			continue
		case err != nil || m.Round == 0:
			s.nodes[nodestate.Unknown]++
			continue
		}
		s.nodes[nodestate.Of(m.Full, m.Price)]++
		s.prices = append(s.prices, float64(m.Price))
		s.supply += m.Supply.Cores()
		s.demand += m.Demand.Cores()
		s.usage += m.Usage.Cores()
	}
	return s
}

// percentile is the least of sorted values that this share of them does not exceed; 0 of none.
func percentile(sorted []float64, share float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(math.Ceil(share*float64(len(sorted))))-1]
}
