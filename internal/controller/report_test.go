package controller

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/controller/metrics"
	"github.com/mbcas/mbcas/internal/lifecycle"
)

// TestCounted: a pod counts with its declared limit, the limit that it has now, and demand and usage of its decision. One
// without a PodAllocation does not count, and one without a decision has no demand.
func TestCounted(t *testing.T) {
	declared := lifecycle.Limits{{Container: "app", CPU: 500}, {Container: "proxy", CPU: 100}}
	counts := func(name string, d *v1alpha1.Decision) *task {
		p := &podState{pod: running(name, 500, false), pa: &v1alpha1.PodAllocation{}}
		p.pod.Namespace = "shop"
		p.pa.Spec.Decision = d
		p.facts.Declared = declared
		p.facts.Containers = []lifecycle.Container{{Name: "app", Limit: 900}, {Name: "proxy", Limit: 100}, {Name: "free", Limit: 50}}
		t := &task{podState: p}
		t.Status.Declared, t.Status.Phase, t.Status.Reason = declared, lifecycle.PhaseApplied, "Settled"
		return t
	}
	none := counts("none", nil)
	none.pa = nil
	got := counted([]*task{
		counts("busy", &v1alpha1.Decision{Demand: 1200, Usage: 850}), counts("quiet", &v1alpha1.Decision{Demand: 90, Usage: 80}),
		counts("new", nil), none,
	}, time.Minute)
	pod := func(demand, beyond cpu.Milli) metrics.Pod {
		p := metrics.Pod{Namespace: "shop", State: metrics.State{Phase: "Applied", Reason: "Settled"}}
		p.Declared, p.Limit = 600, 1000
		p.Demand, p.Beyond = demand, beyond
		return p
	}
	if d := cmp.Diff([]metrics.Pod{pod(1200, 250), pod(90, 0), pod(0, 0)}, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}
