package controller

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
)

// Metrics is how the controller is. Labels never name a pod, so that the number of series stays small.
type Metrics struct {
	resizes *prometheus.CounterVec
	done    prometheus.Histogram
	age     prometheus.Histogram
	closed  *prometheus.GaugeVec
	errors  prometheus.Counter
	asking  *prometheus.GaugeVec

	mu    sync.Mutex
	nodes map[string]map[state]int // how the pods of each node stand
	// reason is why no pod can be resized, without regard to a pause; "" if pods can be.
	reason string
}

type state struct{ phase, reason string }

var allocations = prometheus.NewDesc("mbcas_controller_allocations",
	"PodAllocations by phase and reason.", []string{"phase", "reason"}, nil)

// NewMetrics registers the metrics.
func NewMetrics(reg prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		resizes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mbcas_controller_resizes_total",
			Help: "Attempts to resize a pod, by purpose (allocate, restore, revert, rollback) and outcome.",
		}, []string{"purpose", "outcome"}),
		done: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "mbcas_controller_resize_duration_seconds",
			Help:    "Time from the controller's decision to resize until the kubelet reports the limits in force.",
			Buckets: []float64{.05, .1, .2, .5, 1, 2, 5, 10, 30, 60, 90},
		}),
		age: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "mbcas_controller_decision_age_seconds",
			Help:    "Age of the agent's decision when the controller acts on it, by the clocks of both machines.",
			Buckets: []float64{.05, .1, .2, .5, 1, 2, 5, 10, 30, 60, 300},
		}),
		closed: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "mbcas_controller_blocked",
			Help: "1 while nothing may be resized anywhere, by reason.",
		}, []string{"reason"}),
		errors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "mbcas_controller_pod_errors_total",
			Help: "Errors of the API server that kept one pod from being dealt with; the log names the pod.",
		}),
		asking: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "mbcas_controller_demand_signals",
			Help: "DemandSignals by the reason of their condition Available; MetricRead is the good one.",
		}, []string{"reason"}),
		nodes: map[string]map[state]int{},
	}
	for _, c := range []prometheus.Collector{m.resizes, m.done, m.age, m.closed, m.errors, m.asking, m} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// node notes how the pods of a node stand.
func (m *Metrics) node(name string, tasks []*task) {
	stands := map[state]int{}
	for _, t := range tasks {
		if t.pa != nil {
			stands[state{string(t.Status.Phase), string(t.Status.Reason)}]++
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(stands) == 0 {
		delete(m.nodes, name)
		return
	}
	m.nodes[name] = stands
}

// blocked notes why no pod can be resized; "" if pods can be.
func (m *Metrics) blocked(reason string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed.DeleteLabelValues(m.reason)
	if m.reason = reason; reason != "" {
		m.closed.WithLabelValues(reason).Set(1)
	}
}

// paused notes that the installation is paused, or no longer is.
func (m *Metrics) paused(yes bool) {
	if yes {
		m.closed.WithLabelValues(string(reasons.Paused)).Set(1)
	} else {
		m.closed.DeleteLabelValues(string(reasons.Paused))
	}
}

// signals notes how many DemandSignals there are, by the reason of their condition.
func (m *Metrics) signals(reasons map[string]int) {
	m.asking.Reset()
	for reason, n := range reasons {
		m.asking.WithLabelValues(reason).Set(float64(n))
	}
}

// Describe makes Metrics a prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) { ch <- allocations }

// Collect sums how the pods of all nodes stand.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	m.mu.Lock()
	sum := map[state]int{}
	for _, stands := range m.nodes {
		for s, n := range stands {
			sum[s] += n
		}
	}
	m.mu.Unlock()
	for s, n := range sum {
		ch <- prometheus.MustNewConstMetric(allocations, prometheus.GaugeValue, float64(n), s.phase, s.reason)
	}
}
