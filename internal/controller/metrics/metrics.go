// Package metrics is what the controller tells Prometheus. Labels never name a pod, so that the number
// of series stays small.
package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/lifecycle"
	"github.com/mbcas/mbcas/internal/liveness"
)

// Metrics is how the controller is.
type Metrics struct {
	// Resizes are attempts by purpose and outcome.
	Resizes *prometheus.CounterVec
	// Changed is CPU by which resizes changed limits, by direction.
	Changed *prometheus.CounterVec
	// Harmful are decreases that were found harmful, by what showed it.
	Harmful *prometheus.CounterVec
	// Done is the time from a decision until the kubelet reports the limits, Age how old a decision is
	// when it is acted on.
	Done, Age prometheus.Histogram
	// Errors keep one pod from being dealt with, and so do Panics.
	Errors, Panics prometheus.Counter
	// DroppedEvents are Kubernetes Events beyond their budget.
	DroppedEvents prometheus.Counter
	// Waiting are the resizes that wait for their turn, by priority.
	Waiting *prometheus.GaugeVec
	// ShardNodes is the number of nodes that this replica deals with.
	ShardNodes prometheus.Gauge

	closed, signals, allocations *prometheus.GaugeVec
	unresponsive, outage         prometheus.Gauge

	mu    sync.Mutex
	nodes map[string]map[State]float64
	// reason is why no pod can be resized, without regard to a pause; "" if pods can be.
	reason reasons.Reason
}

// State is the phase of a PodAllocation and its reason.
type State struct{ Phase, Reason string }

// New registers the metrics.
func New(reg prometheus.Registerer) *Metrics {
	auto := promauto.With(reg)
	return &Metrics{
		Resizes: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "mbcas_controller_resizes_total",
			Help: "Attempts to resize a pod, by outcome and purpose: allocate (a decision), restore (declared limits), revert (the " +
				"kubelet could not carry a resize out), rollback (a harmful decrease), startup (a start-up boost), repair (the quota of " +
				"the pod's cgroup), stepback (a container cannot start).",
		}, []string{"purpose", "outcome"}),
		Changed: counters(auto, "mbcas_controller_changed_cores_total",
			"CPU by which accepted resizes changed the limits of containers, by direction.", "direction", Increase, Decrease),
		Harmful: counters(auto, "mbcas_controller_harmful_decreases_total",
			"Decreases after which the pod was soon not Ready (unready), or a container ended (restart).", "by",
			string(lifecycle.HarmUnready), string(lifecycle.HarmRestart)),
		Done: auto.NewHistogram(prometheus.HistogramOpts{
			Name:    "mbcas_controller_resize_duration_seconds",
			Help:    "Time from the controller's decision to resize until the kubelet reports the limits in force.",
			Buckets: []float64{.05, .1, .2, .5, 1, 2, 5, 10, 30, 60, 90},
		}),
		Age: auto.NewHistogram(prometheus.HistogramOpts{
			Name:    "mbcas_controller_decision_age_seconds",
			Help:    "Age of the agent's decision when the controller acts on it, by the clocks of both machines.",
			Buckets: []float64{.05, .1, .2, .5, 1, 2, 5, 10, 30, 60, 300},
		}),
		closed: auto.NewGaugeVec(prometheus.GaugeOpts{
			Name: "mbcas_controller_blocked",
			Help: "1 while nothing may be resized anywhere, by reason.",
		}, []string{"reason"}),
		Errors: counter(auto, "mbcas_controller_pod_errors_total",
			"Errors of the API server that kept one pod from being dealt with; the log names the pod."),
		Panics: counter(auto, "mbcas_controller_panics_total",
			"Panics about one pod, which is left alone for a while; the log has the stack."),
		DroppedEvents: counter(auto, "mbcas_controller_events_dropped_total",
			"Kubernetes Events that were not written because too many were; the status of each pod says the same."),
		Waiting: auto.NewGaugeVec(prometheus.GaugeOpts{
			Name: "mbcas_controller_resizes_waiting",
			Help: "Resizes that wait for their turn, by priority (urgent, needed, decrease, idle).",
		}, []string{"priority"}),
		ShardNodes: auto.NewGauge(prometheus.GaugeOpts{
			Name: "mbcas_controller_shard_nodes",
			Help: "Nodes that this replica deals with; the sum over all replicas is the number of nodes.",
		}),
		signals: auto.NewGaugeVec(prometheus.GaugeOpts{
			Name: "mbcas_controller_demand_signals",
			Help: "DemandSignals by the reason of their condition Available; MetricRead is the good one.",
		}, []string{"reason"}),
		unresponsive: auto.NewGauge(prometheus.GaugeOpts{
			Name: "mbcas_controller_agents_unresponsive",
			Help: "Agents of Ready nodes that have not renewed their Leases for two minutes.",
		}),
		outage: auto.NewGauge(prometheus.GaugeOpts{
			Name: "mbcas_controller_restores_stopped",
			Help: "1 while so many agents are unresponsive that no node is restored because of its agent.",
		}),
		allocations: auto.NewGaugeVec(prometheus.GaugeOpts{
			Name: "mbcas_controller_allocations",
			Help: "PodAllocations by phase and reason.",
		}, []string{"phase", "reason"}),
		nodes: map[string]map[State]float64{},
	}
}

// Leader tells whether this process leads, from when elected is closed. A leader that loses its Lease ends.
func Leader(elected <-chan struct{}) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "mbcas_controller_leader",
		Help: "1 while this process holds the Lease mbcas-controller and does what one replica does for all; 0 otherwise.",
	}, func() float64 {
		select {
		case <-elected:
			return 1
		default:
			return 0
		}
	})
}

// The directions of a change.
const (
	Increase = "increase"
	Decrease = "decrease"
)

func counter(auto promauto.Factory, name, help string) prometheus.Counter {
	return auto.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

// counters is a counter of which every series is there from the start: one that begins with its first event
// shows no increase by that event.
func counters(auto promauto.Factory, name, help, label string, values ...string) *prometheus.CounterVec {
	vec := auto.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	for _, v := range values {
		vec.WithLabelValues(v)
	}
	return vec
}

// Resized counts the changes of a resize that was accepted.
func (m *Metrics) Resized(move actuator.Move) {
	for _, c := range move.Changes {
		direction := Increase
		if c.To < c.From {
			direction = Decrease
		}
		m.Changed.WithLabelValues(direction).Add(max(c.To-c.From, c.From-c.To).Cores())
	}
}

// Allocations notes how many PodAllocations of a node are in each state.
func (m *Metrics) Allocations(node string, states map[State]float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change := map[State]float64{}
	for s, n := range m.nodes[node] {
		change[s] -= n
	}
	for s, n := range states {
		change[s] += n
	}
	for s, n := range change {
		m.allocations.WithLabelValues(s.Phase, s.Reason).Add(n)
	}
	if m.nodes[node] = states; len(states) == 0 {
		delete(m.nodes, node)
	}
}

// Blocked notes why no pod can be resized; "" if pods can be.
func (m *Metrics) Blocked(reason reasons.Reason) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed.DeleteLabelValues(string(m.reason))
	if m.reason = reason; reason != "" {
		m.closed.WithLabelValues(string(reason)).Set(1)
	}
}

// Paused notes that the installation is paused, or no longer is.
func (m *Metrics) Paused(yes bool) {
	if yes {
		m.closed.WithLabelValues(string(reasons.Paused)).Set(1)
	} else {
		m.closed.DeleteLabelValues(string(reasons.Paused))
	}
}

// Agents notes how many agents are unresponsive.
func (m *Metrics) Agents(o liveness.Outage) {
	m.unresponsive.Set(float64(o.Unresponsive))
	m.outage.Set(0)
	if o.Begun {
		m.outage.Set(1)
	}
}

// Signals notes how many DemandSignals there are, by the reason of their condition.
func (m *Metrics) Signals(byReason map[string]int) {
	m.signals.Reset()
	for reason, n := range byReason {
		m.signals.WithLabelValues(reason).Set(float64(n))
	}
}
