package agent

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/mbcas/mbcas/internal/agent/nodemetrics"
	"github.com/mbcas/mbcas/internal/buildinfo"
)

// metrics are of the node and the agent, never of one pod: a cluster has many pods.
type metrics struct {
	registry   *prometheus.Registry
	node       nodemetrics.Collector
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
	looks := counters("mbcas_agent_looks_total", "Looks between two rounds, by result; raised means completed, and that it raised a limit or revoked a raise.")
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
	publishes := counters("mbcas_agent_publishes_total", "Decisions to publish in PodAllocations, by result; expired means that it was too old when its turn came.")
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
		Buckets: []float64{.001, .005, .01, .025, .05, .1, .25, 1},
	})
	m.delay = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "mbcas_agent_publish_delay_seconds",
		Help:    "Time from the start of a round to the API server's answer to its decision.",
		Buckets: []float64{.01, .025, .05, .1, .25, .5, 2.5},
	})
	m.registry.MustRegister(&m.node, m.late, m.podPanics, m.duration, m.delay,
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// buildGauge tells which version of the agent runs.
func buildGauge(version string) prometheus.Collector {
	return buildinfo.Gauge("mbcas_agent_build_info", "1, with the version of the agent and of Go.", version)
}

// Metrics has the metrics of an agent that has not begun, for their reference.
func Metrics() *prometheus.Registry {
	m := newMetrics()
	m.registry.MustRegister(leaseGauge(func(time.Time) bool { return false }), buildGauge(""))
	return m.registry
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
