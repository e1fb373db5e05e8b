package metrics

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/liveness"
	"github.com/mbcas/mbcas/internal/testing/must"
)

// full is a registry in which each metric has a series.
func full() (*prometheus.Registry, *Metrics) {
	reg := prometheus.NewRegistry()
	m := New(reg)
	reg.MustRegister(Leader(nil))
	m.Resizes.WithLabelValues("allocate", "Accepted").Inc()
	m.Waiting.WithLabelValues("urgent").Set(1)
	m.Blocked(reasons.ResizeNotServed)
	m.Paused(true)
	m.Agents(liveness.Outage{Begun: true})
	m.Signals(map[string]int{"MetricRead": 1})
	m.Allocations("node", map[State]float64{{"Applied", ""}: 2})
	return reg, m
}

// TestMetricsPassLint: names, units and types follow the rules of Prometheus.
func TestMetricsPassLint(t *testing.T) {
	reg, _ := full()
	problems, err := testutil.GatherAndLint(reg)
	must.Succeed(t, err)
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	if n, err := testutil.GatherAndCount(reg); err != nil || n < 18 {
		t.Errorf("%d metrics were looked at (%v), want at least 18", n, err)
	}
}

// TestResized: a resize counts by what it changes of each container, up and down.
func TestResized(t *testing.T) {
	reg, m := full()
	m.Resized(actuator.Move{Changes: []actuator.Change{
		{Container: "a", From: 500, To: 1250}, {Container: "b", From: 900, To: 400}, {Container: "c", From: 100, To: 100},
	}})
	m.Resized(actuator.Move{Changes: []actuator.Change{{Container: "a", From: 1250, To: 1000}}})
	want := `
# HELP mbcas_controller_changed_cores_total CPU by which accepted resizes changed the limits of containers, by direction.
# TYPE mbcas_controller_changed_cores_total counter
mbcas_controller_changed_cores_total{direction="decrease"} 0.75
mbcas_controller_changed_cores_total{direction="increase"} 0.75
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "mbcas_controller_changed_cores_total"); err != nil {
		t.Error(err)
	}
}

// TestLeader: the series is there whether this process leads or not, so that its absence means that no
// controller runs.
func TestLeader(t *testing.T) {
	elected := make(chan struct{})
	g := Leader(elected)
	if v := testutil.ToFloat64(g); v != 0 {
		t.Errorf("before the election: %v", v)
	}
	close(elected)
	if v := testutil.ToFloat64(g); v != 1 {
		t.Errorf("after it: %v", v)
	}
}

// TestHarmIsThereFromTheStart: the first harmful decrease shows as an increase.
func TestHarmIsThereFromTheStart(t *testing.T) {
	reg := prometheus.NewRegistry()
	New(reg)
	want := `
# HELP mbcas_controller_harmful_decreases_total Decreases after which the pod was soon not Ready (unready), or a container ended (restart).
# TYPE mbcas_controller_harmful_decreases_total counter
mbcas_controller_harmful_decreases_total{by="restart"} 0
mbcas_controller_harmful_decreases_total{by="unready"} 0
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "mbcas_controller_harmful_decreases_total"); err != nil {
		t.Error(err)
	}
}
