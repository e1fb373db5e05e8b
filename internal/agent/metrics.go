package agent

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/mbcas/mbcas/market"
)

// metrics are of the node and the agent, never of one pod: a cluster has many pods. Those of the
// last round are read from it at each scrape, see nodeCollector.
type metrics struct {
	registry   *prometheus.Registry
	rounds     struct{ completed, skipped, panicked prometheus.Counter }
	looks      struct{ completed, raised, panicked prometheus.Counter }
	heartbeats struct{ renewed, skipped, failed, standby prometheus.Counter }
	publishes  [publishResults]prometheus.Counter // by result
	late       prometheus.Counter
	podPanics  prometheus.Counter
	duration   prometheus.Histogram
	delay      prometheus.Histogram
}

func newMetrics() *metrics {
	m := &metrics{registry: prometheus.NewRegistry()}
	counters := func(name, help string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"result"})
		m.registry.MustRegister(c)
		return c
	}
	rounds := counters("mbcas_agent_rounds_total", "Ticks of the round loop, by result.")
	m.rounds.completed = rounds.WithLabelValues("completed")
	m.rounds.skipped = rounds.WithLabelValues("skipped")
	m.rounds.panicked = rounds.WithLabelValues("panicked")
	looks := counters("mbcas_agent_looks_total", "Looks between two rounds, by result; raised means completed, and that it raised a limit.")
	m.looks.completed = looks.WithLabelValues("completed")
	m.looks.raised = looks.WithLabelValues("raised")
	m.looks.panicked = looks.WithLabelValues("panicked")
	heartbeats := counters("mbcas_agent_lease_renewals_total",
		"Renewals of the node's Lease, by result; skipped means that no rounds complete, standby that another agent "+
			"holds it.")
	m.heartbeats.renewed = heartbeats.WithLabelValues("renewed")
	m.heartbeats.skipped = heartbeats.WithLabelValues("skipped")
	m.heartbeats.failed = heartbeats.WithLabelValues("failed")
	m.heartbeats.standby = heartbeats.WithLabelValues("standby")
	publishes := counters("mbcas_agent_publishes_total", "Decisions to publish, by result.")
	for r := range publishResults {
		m.publishes[r] = publishes.WithLabelValues(r.String())
	}
	m.late = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "mbcas_agent_missed_ticks_total", Help: "Ticks skipped because a round took too long.",
	})
	m.podPanics = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "mbcas_agent_pod_panics_total", Help: "Pods set aside because the decision about them panicked; the log names them.",
	})
	m.duration = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "mbcas_agent_round_duration_seconds", Help: "Time to read all counters and run the round.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, 1},
	})
	m.delay = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "mbcas_agent_publish_delay_seconds",
		Help:    "Time from the start of a round to the API server's answer to its decision.",
		Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5},
	})
	m.registry.MustRegister(m.late, m.podPanics, m.duration, m.delay, collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// leaseGauge tells whether this agent holds the node's Lease, and so publishes.
func leaseGauge(holds func(time.Time) bool) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "mbcas_agent_holds_lease", Help: "1 while this agent holds the node's Lease; otherwise it publishes nothing.",
	}, func() float64 {
		if holds(time.Now()) {
			return 1
		}
		return 0
	})
}

// nodeCollector collects the metrics of the last round.
type nodeCollector struct{ last *atomic.Pointer[roundResult] }

var (
	priceDesc = describe("mbcas_node_price",
		"Price of CPU at which limits are set, in budget per thousandth of a core; 0 means that CPU is not scarce.")
	clearedDesc  = describe("mbcas_node_cleared_price", "Price as cleared in the last round, before bands and trim.")
	supplyDesc   = describe("mbcas_node_supply_cores", "CPU that the market of the node sells.")
	demandDesc   = describe("mbcas_node_demand_cores", "CPU that all pods of the node would use without limits.")
	usageDesc    = describe("mbcas_node_usage_cores", "CPU that the pods of the node used in the last interval.")
	systemDesc   = describe("mbcas_node_system_cores", "CPU used outside of pods, smoothed.")
	pressureDesc = describe("mbcas_node_pressure_ratio", "Share of time in which some task of the node waited for a CPU.")
	floorsDesc   = describe(
		"mbcas_node_floors_exceed_supply",
		"1 while usage within the floors of the pods exceeds the supply.",
	)
	podsDesc = describe("mbcas_node_pods", "Pods of the node by their part in the last round: bidding, unmanaged, "+
		"warming (too few samples), stale, unenforced (the kernel has no quota for the limit).", "part")
	boundDesc   = describe("mbcas_node_bound_pods", "Bidding pods by what bounds their limit.", "by")
	filesDesc   = describe("mbcas_agent_open_files", "Open files of cgroups.")
	blockedDesc = describe("mbcas_agent_blocked_pods", "Pods for which nothing is decided because the kernel does not "+
		"answer a read of their cgroups; the log names them.")
	mismatchDesc = describe("mbcas_agent_quota_mismatch_pods", "Managed pods whose quota in the kernel has not been their limit "+
		"for a minute; the log names them.")
)

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// Describe implements prometheus.Collector.
func (c nodeCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		priceDesc, clearedDesc, supplyDesc, demandDesc, usageDesc, systemDesc, pressureDesc, floorsDesc,
		podsDesc, boundDesc, filesDesc, blockedDesc, mismatchDesc,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. Before the first round it collects nothing.
func (c nodeCollector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	r := c.last.Load()
	if r == nil {
		return
	}
	gauge(filesDesc, float64(r.Files))
	gauge(blockedDesc, float64(r.Blocked))
	gauge(mismatchDesc, float64(r.QuotaMismatches))
	n := r.Output.Node
	gauge(priceDesc, float64(n.Price))
	gauge(clearedDesc, float64(n.Cleared))
	gauge(supplyDesc, n.Supply.Cores())
	gauge(demandDesc, n.Demand.Cores())
	if n.UsageKnown {
		gauge(usageDesc, n.Usage.Cores())
	}
	if n.SystemKnown {
		gauge(systemDesc, n.System.Cores())
	}
	if n.Pressure.Known {
		gauge(pressureDesc, n.Pressure.Value)
	}
	floors := 0.0
	if n.FloorsExceedSupply {
		floors = 1
	}
	gauge(floorsDesc, floors)
	skipped, bidding := r.Output.Skipped, len(r.Output.Decisions)
	gauge(podsDesc, float64(bidding), "bidding")
	gauge(podsDesc, float64(skipped.WarmingUp), "warming")
	gauge(podsDesc, float64(skipped.Stale), "stale")
	gauge(podsDesc, float64(skipped.Unenforced), "unenforced")
	unmanaged := len(r.Snapshot.Pods) - bidding - skipped.WarmingUp - skipped.Stale - skipped.Unenforced
	gauge(podsDesc, float64(unmanaged), "unmanaged")
	var by [market.ByCeiling + 1]int
	for _, d := range r.Output.Decisions {
		by[d.Bound]++
	}
	for b, count := range by {
		gauge(boundDesc, float64(count), market.Bound(b).String())
	}
}
