package recorder

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/test/internal/cgroup"
	"github.com/mbcas/mbcas/test/internal/traffic"
	"github.com/mbcas/mbcas/test/measure/internal/script"
)

var now = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func newRecorder() *Recorder {
	return New(&script.Script{Workloads: []script.Workload{{Name: "web", Request: 100, Limit: 500}}}, cgroup.Node{})
}

// pod is a running pod of a workload.
func pod(app, limit string) *corev1.Pod {
	p := &corev1.Pod{}
	p.Name, p.UID, p.Generation, p.Labels = app+"-x", types.UID(app), 1, map[string]string{App: app}
	p.Spec.NodeName = "n"
	p.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")},
		Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(limit)},
	}}}
	return p
}

func resized(p *corev1.Pod, limit string) *corev1.Pod {
	p = p.DeepCopy()
	p.Spec.Containers[0].Resources.Limits[corev1.ResourceCPU] = resource.MustParse(limit)
	p.Generation++
	return p
}

func TestLimitChangesAreRecorded(t *testing.T) {
	r := newRecorder()
	p := pod("web", "500m")
	r.see(now, p)
	r.see(now.Add(time.Second), p.DeepCopy()) // nothing new
	r.see(now.Add(2*time.Second), resized(p, "1600m"))
	want := []Change{{now.Add(2 * time.Second), "web", 500, 1600}}
	if diff := cmp.Diff(want, r.Changes(now, now.Add(time.Hour))); diff != "" {
		t.Error(diff)
	}
	if got, err := r.Pod("web"); err != nil || got.Limit != 1600 || got.Request != 100 {
		t.Errorf("pod is %+v, %v", got, err)
	}
	if wrong := r.NotRestored(); len(wrong) != 1 || !strings.Contains(wrong[0], "limit 1600m, declared 500m") {
		t.Errorf("not restored: %q", wrong)
	}
	r.deleted(p)
	if len(r.Pods("")) != 0 || len(r.Changes(now, now.Add(time.Hour))) != 1 {
		t.Error("a deleted pod stays, or its changes do not")
	}
}

func TestReadyPodsComeFirst(t *testing.T) {
	r := newRecorder()
	for i, ready := range []corev1.ConditionStatus{corev1.ConditionFalse, corev1.ConditionTrue} {
		p := pod("web", "500m")
		p.Name, p.UID = p.Name+string(rune('0'+i)), types.UID(rune('0'+i))
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
		r.see(now, p)
	}
	if all := r.Pods("web"); len(all) != 2 || all[0].Name != "web-x1" {
		t.Errorf("%+v", all)
	}
}

func TestFailuresAreCountedOnce(t *testing.T) {
	r := newRecorder()
	pa := &v1alpha1.PodAllocation{}
	pa.Spec.PodRef.UID = "u"
	applied, failed := v1alpha1.PhaseApplied, v1alpha1.PhaseFailed
	for _, phase := range []v1alpha1.Phase{applied, failed, failed, applied, failed} {
		pa.Status.Phase = phase
		r.see(now, pa)
	}
	if r.Failures() != 2 {
		t.Errorf("%d failures, want 2", r.Failures())
	}
}

func TestRates(t *testing.T) {
	a := cgroup.Sample{At: now, Usage: time.Second, Throttled: time.Second, Periods: 100, Throttles: 10}
	b := cgroup.Sample{
		At: now.Add(2 * time.Second), Usage: 1600 * time.Millisecond, Throttled: 1500 * time.Millisecond,
		Periods: 120, Throttles: 15, Quota: 500,
	}
	want := Sample{Quota: 500, Usage: 300, Throttled: 250, ThrottleRatio: 0.25}
	if diff := cmp.Diff(want, rates(a, b), cmpopts.EquateApprox(0, 1e-9)); diff != "" {
		t.Error(diff)
	}
	b.Periods = a.Periods // idle, or without a quota
	if r := rates(a, b).ThrottleRatio; r != 0 {
		t.Errorf("ratio %v without periods", r)
	}
}

func TestWindowDropsOldRequests(t *testing.T) {
	ms := time.Millisecond
	recent := Latencies{"x": {{1 * time.Second, 900 * ms}, {6 * time.Second, 10 * ms}, {7 * time.Second, 30 * ms}}}
	if p50, p99 := recent.Window("x", 7*time.Second); p50 != 10 || p99 != 30 {
		t.Errorf("p50 %v, p99 %v; want 10 and 30: the first request ended too long ago", p50, p99)
	}
	if p50, p99 := recent.Window("x", time.Minute); p50 != 0 || p99 != 0 {
		t.Errorf("p50 %v, p99 %v of nothing", p50, p99)
	}
}

var plan = script.Plan{
	{Phase: script.Phase{Name: "a"}, To: 10 * time.Second},
	{Phase: script.Phase{Name: "b"}, From: 10 * time.Second, To: 30 * time.Second},
}

// A request due in phase a that was answered in phase b is a's.
func TestRequestsBelongToTheirIntendedPhase(t *testing.T) {
	r := Run{Plan: plan, Requests: map[string][]traffic.Result{"x": {
		{At: 12 * time.Second, Latency: 20 * time.Millisecond},
		{At: 9 * time.Second, Latency: 15 * time.Second, Status: traffic.TimedOut},
		{At: time.Second, Latency: 10 * time.Millisecond},
	}}}
	for phase, want := range map[string]float64{"a": 15000, "b": 20} {
		if p99 := r.Latency(script.Where{Service: "x", Phase: phase}, 0.99); p99 == nil || *p99 != want {
			t.Errorf("p99 of %s is %v, want %v ms", phase, p99, want)
		}
	}
	if r.Latency(script.Where{Service: "y", Phase: "a"}, 0.99) != nil {
		t.Error("a service without requests has a latency")
	}
	if unserved, all := r.Unserved(script.Where{Phase: "a"}); unserved != 1 || all != 2 {
		t.Errorf("%d of %d unserved, want 1 of 2", unserved, all)
	}
}

func TestThrottledAfterTheStep(t *testing.T) {
	r := Run{Plan: plan}
	for s := 1; s <= 30; s++ {
		throttled := 0.0
		switch {
		case s <= 15:
			throttled = 900 // before the step, and in its first five seconds
		case s <= 20:
			throttled = 30
		}
		r.Samples = append(r.Samples, Sample{At: time.Duration(s) * time.Second, App: "x", Throttled: throttled})
	}
	if got := r.Throttled(script.Where{Service: "x", Phase: "b"}); got == nil || *got != 10 {
		t.Errorf("throttled %v ms/s, want 10", got)
	}
	if r.Throttled(script.Where{Service: "y", Phase: "b"}) != nil {
		t.Error("what was not sampled has a figure")
	}
}

// TestUsage: the mean of a hog or a service from the fifth second on, that of the first ten seconds,
// and the lowest over ten seconds, which is none where the phase is too short.
func TestUsage(t *testing.T) {
	r := Run{Plan: plan}
	for s := 1; s <= 30; s++ {
		x := Sample{At: time.Duration(s) * time.Second, App: "hog", Usage: 1000}
		switch {
		case s <= 13:
			x.Usage = 100 // before the phase, and in its first three seconds
		case s > 25:
			x.Usage = 700
		}
		r.Samples = append(r.Samples, x, Sample{At: x.At, App: "web", Usage: 250})
	}
	hog := script.Where{Hog: "hog", Phase: "b"}
	for name, c := range map[string]struct {
		of   func(script.Where) *float64
		at   script.Where
		want float64
	}{
		"usage":            {r.Usage, hog, 0.9},
		"usage of service": {r.Usage, script.Where{Service: "web", Phase: "b"}, 0.25},
		"onset":            {r.OnsetUsage, hog, 0.73},
		"lowest":           {r.LowUsage, hog, 0.85},
	} {
		if got := c.of(c.at); got == nil || math.Abs(*got-c.want) > 1e-9 {
			t.Errorf("%s: %v, want %v cores", name, got, c.want)
		}
	}
	for name, of := range map[string]func(script.Where) *float64{
		"usage": r.Usage, "onset": r.OnsetUsage, "lowest": r.LowUsage,
	} {
		if of(script.Where{Hog: "other", Phase: "b"}) != nil {
			t.Errorf("%s: what was not sampled has a figure", name)
		}
	}
	if r.LowUsage(script.Where{Hog: "hog", Phase: "a"}) != nil {
		t.Error("five seconds have a lowest mean over ten")
	}
}
