package metrics

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/lifecycle"
)

// TestWorkloadsAreBounded: of any number of workloads the 1000 with the highest declared limits have series of their
// own, the others are summed, and without any there is no series.
func TestWorkloadsAreBounded(t *testing.T) {
	m := New(prometheus.NewRegistry())
	m.Allocations("n1", []Pod{pod("shop", 1000, 1000, 1000, 0)})
	if n := testutil.CollectAndCount(&m.workloads); n != 0 {
		t.Errorf("%d series of pods whose owner did not ask", n)
	}
	var pods []Pod
	for i := range 1500 {
		p := pod("shop", cpu.Milli(i+1), 1, 1, 0)
		p.Workload = Workload{Namespace: "shop", Kind: "Deployment", Name: fmt.Sprintf("web-%04d", i)}
		p.Share = allocation.Share{Demand: 3, Deficit: 1, Certain: 2}
		pods = append(pods, p)
	}
	m.Allocations("n1", pods)
	if n := testutil.CollectAndCount(&m.workloads); n != 3*1001 {
		t.Errorf("%d series, want 3003", n)
	}
	named, other := m.workloads.named()
	if want := (allocation.Share{Demand: 1500, Deficit: 500, Certain: 1000}); other.Share != want {
		t.Errorf("the others have %+v, want %+v", other.Share, want)
	}
	if _, ok := named[Workload{"shop", "Deployment", "web-0499"}]; ok {
		t.Error("one of the smallest is named")
	}
	m.Allocations("n1", nil)
	if n := testutil.CollectAndCount(&m.workloads); n != 0 {
		t.Errorf("%d series of pods that are gone", n)
	}
}

// TestCountedForAutoscalers: only what decisions change now, and its agent stands by, counts for an autoscaler.
func TestCountedForAutoscalers(t *testing.T) {
	asks := map[string]string{kube.ShareSignalKey: "true", "pod-template-hash": "abc"}
	for name, c := range map[string]struct {
		change func(*simPod, *lifecycle.Pod)
		counts bool
	}{
		"a pod that asks":           {func(*simPod, *lifecycle.Pod) {}, true},
		"in mode recommend":         {func(_ *simPod, f *lifecycle.Pod) { f.Mode = lifecycle.ModeRecommend }, true},
		"by an annotation":          {func(p *simPod, _ *lifecycle.Pod) { p.pod.Annotations, p.pod.Labels = asks, asks }, true},
		"one that does not":         {func(p *simPod, _ *lifecycle.Pod) { delete(p.pod.Labels, kube.ShareSignalKey) }, false},
		"in mode restore":           {func(_ *simPod, f *lifecycle.Pod) { f.Mode = lifecycle.ModeRestore }, false},
		"that is not managed":       {func(_ *simPod, f *lifecycle.Pod) { f.Excluded.Reason = reasons.OptedOut }, false},
		"that ends":                 {func(_ *simPod, f *lifecycle.Pod) { f.Ended = true }, false},
		"of an unresponsive agent":  {func(_ *simPod, f *lifecycle.Pod) { f.Decision.Age = time.Minute }, false},
		"without a decision":        {func(p *simPod, _ *lifecycle.Pod) { p.pa.Spec.Decision = nil }, false},
		"decided since it was read": {func(_ *simPod, f *lifecycle.Pod) { f.Decision = nil }, false},
	} {
		p := newSimPod("web-1", map[string]string{}, "web-abc", 500, 1000, start)
		for k, v := range asks {
			p.pod.Labels[k] = v
		}
		p.pa.Spec.Decision = &v1alpha1.Decision{
			Demand: 900, Budget: 500, Price: 1, Ceiling: 4000, BoundBy: v1alpha1.BoundByPrice,
		}
		facts := &lifecycle.Pod{Mode: lifecycle.ModeEnforce, Decision: &lifecycle.Decision{}}
		c.change(p, facts)
		got := Count(p.pod, p.pa, facts, lifecycle.Status{}, time.Minute)
		want := Pod{Namespace: "shop", Cores: Cores{Demand: got.Demand}}
		if c.counts {
			want.Workload = Workload{"shop", "Deployment", "web"}
			want.Share = allocation.Share{Demand: 900, Deficit: 400, Certain: 500}
		}
		if got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}
