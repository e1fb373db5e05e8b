package agent

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/mbcas/mbcas/market"
)

// metrics are of the node and the agent, never of one pod: a cluster has many pods. Those of the last
// round are read from it when somebody asks.
type metrics struct {
	registry *prometheus.Registry
	rounds   struct{ played, skipped, panicked prometheus.Counter }
	beats    struct{ renewed, skipped, failed prometheus.Counter }
	late     prometheus.Counter
	duration prometheus.Histogram
	delay    prometheus.Histogram
	// publishes counts by outcome.
	publishes [outcomes]prometheus.Counter
}

func newMetrics() *metrics {
	m := &metrics{registry: prometheus.NewRegistry()}
	rounds := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "mbcas_agent_rounds_total", Help: "Ticks of the round loop by what came of them."}, []string{"result"})
	m.rounds.played = rounds.WithLabelValues("played")
	m.rounds.skipped = rounds.WithLabelValues("skipped")
	m.rounds.panicked = rounds.WithLabelValues("panicked")
	beats := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "mbcas_agent_lease_renewals_total", Help: "Renewals of the node's Lease by what came of them; skipped means that no rounds are played."}, []string{"result"})
	m.beats.renewed = beats.WithLabelValues("renewed")
	m.beats.skipped = beats.WithLabelValues("skipped")
	m.beats.failed = beats.WithLabelValues("failed")
	publishes := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "mbcas_agent_publishes_total", Help: "Decisions to publish by what came of them."}, []string{"outcome"})
	for o := range outcomes {
		m.publishes[o] = publishes.WithLabelValues(o.String())
	}
	m.late = prometheus.NewCounter(prometheus.CounterOpts{Name: "mbcas_agent_missed_ticks_total", Help: "Ticks passed over because a round took too long."})
	m.duration = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "mbcas_agent_round_duration_seconds", Help: "Time to read all counters and play the round.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, 1},
	})
	m.delay = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "mbcas_agent_publish_delay_seconds", Help: "Time from the tick of a round to the API server's answer to its decision.",
		Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5},
	})
	m.registry.MustRegister(rounds, beats, publishes, m.late, m.duration, m.delay,
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// board shows the last round.
type board struct{ last *atomic.Pointer[played] }

var (
	priceDesc    = describe("mbcas_node_price", "Price of CPU at which limits are set, in budget per thousandth of a core; 0 means that CPU is not scarce.")
	clearedDesc  = describe("mbcas_node_cleared_price", "Price as cleared in the last round, before bands and trim.")
	supplyDesc   = describe("mbcas_node_supply_cores", "CPU that the market of the node sells.")
	demandDesc   = describe("mbcas_node_demand_cores", "CPU that all pods of the node would use if nothing held them back.")
	usageDesc    = describe("mbcas_node_usage_cores", "CPU that the pods of the node used in the last interval.")
	systemDesc   = describe("mbcas_node_system_cores", "CPU that everything but pods uses, smoothed.")
	pressureDesc = describe("mbcas_node_pressure_ratio", "Share of time in which some task of the node waited for a CPU.")
	floorsDesc   = describe("mbcas_node_floors_exceed_supply", "1 while even the floors of the pods want more than there is.")
	podsDesc     = describe("mbcas_node_pods", "Pods of the node by their part in the last round: bidding, shadow (outside the market), warming, stale, unenforced (the kernel has no quota for the limit).", "part")
	boundDesc    = describe("mbcas_node_bound_pods", "Bidding pods by what holds their limit.", "by")
	filesDesc    = describe("mbcas_agent_open_files", "Files of cgroups that are held open.")
)

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// Describe implements prometheus.Collector.
func (b board) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		priceDesc, clearedDesc, supplyDesc, demandDesc, usageDesc, systemDesc, pressureDesc, floorsDesc, podsDesc, boundDesc, filesDesc,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. Before the first round there is nothing to show.
func (b board) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	r := b.last.Load()
	if r == nil {
		return
	}
	gauge(filesDesc, float64(r.Files))
	n := r.Out.Node
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
	if n.PressureKnown {
		gauge(pressureDesc, n.Pressure)
	}
	floors := 0.0
	if n.FloorsExceedSupply {
		floors = 1
	}
	gauge(floorsDesc, floors)
	held := r.Out.Skipped
	bidding := len(r.Out.Decisions)
	gauge(podsDesc, float64(bidding), "bidding")
	gauge(podsDesc, float64(held.WarmingUp), "warming")
	gauge(podsDesc, float64(held.Stale), "stale")
	gauge(podsDesc, float64(held.Unenforced), "unenforced")
	gauge(podsDesc, float64(len(r.View.Pods)-bidding-held.WarmingUp-held.Stale-held.Unenforced), "shadow")
	var by [market.ByCeiling + 1]int
	for _, d := range r.Out.Decisions {
		by[d.Bound]++
	}
	for b, count := range by {
		gauge(boundDesc, float64(count), market.Bound(b).String())
	}
}
