package allocation

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/lifecycle"
	"github.com/mbcas/mbcas/internal/round"
	"github.com/mbcas/mbcas/internal/sense"
	"github.com/mbcas/mbcas/internal/testing/podtest"
)

// TestOddQuantities: whatever way CPU is written, and however little it is, it comes out in
// thousandths, rounded up as the API server does, with a floor that a kernel takes.
func TestOddQuantities(t *testing.T) {
	for _, c := range []struct {
		request, limit string
		want, floor    cpu.Milli
	}{
		{"", "1e3", 1_000_000, 100},
		{"900", "1e3", 1_000_000, 1_000_000}, // more than the node has, so it is left there
		{"", "1k", 1_000_000, 100},
		{"", "0.1", 100, 100},
		{"50m", "0.1", 100, 100},
		{"95m", "0.1", 100, 100},
		{"", "1.0005", 1001, 100},
		{"", "100e-3", 100, 100},
		{"", "1m", 1, 10},
		{"1m", "5m", 5, 20},
		{"", "5m", 5, 10},
		{"", "10.5m", 11, 11},
		{"10m", "10500u", 11, 11},
		{"", "1n", 1, 10},
	} {
		p := podtest.Shop()
		p.Spec.Containers[0] = podtest.Container("app", c.request, c.limit)
		got := DemandPod(p, told(p, v1alpha1.Constraints{}), 2000).Containers[0]
		floor, ceiling := got.Floor, got.Ceiling
		if !got.Limited() || got.Limit != c.want || got.Declared != c.want || floor != c.floor || ceiling != max(floor, min(2000, 8*max(10, c.want)).RoundDown(10)) {
			t.Errorf("request %q, limit %q: limit %v, declared %v, from %v to %v; want %v and a floor of %v",
				c.request, c.limit, got.Limit, got.Declared, floor, ceiling, c.want, c.floor)
		}
	}
}

// TestLargestAmounts: what no object can hold is left out, or lowered to what it can, and a pod with such limits is too large.
func TestLargestAmounts(t *testing.T) {
	d := DecisionSpec(round.Decision{Floor: cpu.Largest + 1, Ceiling: 2 * cpu.Largest}, demand.Weights{}, round.NodeDecision{}, time.Time{}).Decision
	if d.Floor != cpu.Largest || d.Ceiling != cpu.Largest {
		t.Errorf("a decision from %v to %v", d.Floor, d.Ceiling)
	}
	var status v1alpha1.PodAllocationStatus
	SetStatus(&status, lifecycle.Status{Applied: LimitsOf([]v1alpha1.ContainerLimit{
		{Name: "app", CPULimit: cpu.Largest}, {Name: "proxy", CPULimit: cpu.Largest + 1},
	})})
	if l := status.AppliedLimits; len(l) != 1 || l[0].Name != "app" || *status.AppliedCPULimit != cpu.Largest {
		t.Errorf("applied %v, in sum %v", l, status.AppliedCPULimit)
	}
	p := podtest.Shop()
	declared := kube.Limits(p)
	large := []v1alpha1.ContainerLimit{{Name: "app", CPULimit: cpu.Largest}, {Name: "proxy", CPULimit: 1}}
	if Facts(p, declared, 2000, nil).TooLarge || !Facts(p, large, 2000, nil).TooLarge {
		t.Error("a pod is too large by its declared limits, and by no others")
	}
	p.Spec.Containers[0] = podtest.Container("app", "100m", "100k")
	if !Facts(p, declared, 2000, nil).TooLarge {
		t.Error("a pod with a limit of 100,000 cores is not too large")
	}
}

// TestObservedEnds: a container's starts and ends reach lifecycle, whether it runs again or not.
func TestObservedEnds(t *testing.T) {
	at := func(s int) metav1.Time { return metav1.Unix(int64(s), 0) }
	ended := func(s int) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: at(s)}}
	}
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at(9)}}
	for name, c := range map[string]struct {
		status corev1.ContainerStatus
		want   lifecycle.Container
	}{
		"runs": {corev1.ContainerStatus{State: running}, lifecycle.Container{StartedAt: at(9).Time}},
		"runs again": {corev1.ContainerStatus{RestartCount: 2, State: running, LastTerminationState: ended(5)},
			lifecycle.Container{Restarts: 2, StartedAt: at(9).Time, EndedAt: []time.Time{at(5).Time}}},
		"has ended": {corev1.ContainerStatus{State: ended(7), LastTerminationState: ended(5)},
			lifecycle.Container{EndedAt: []time.Time{at(7).Time, at(5).Time}}},
	} {
		p := podtest.Shop()
		c.status.Name = "app"
		p.Status.ContainerStatuses = []corev1.ContainerStatus{c.status}
		got := Facts(p, nil, 2000, nil).Containers[0]
		got = lifecycle.Container{Restarts: got.Restarts, StartedAt: got.StartedAt, EndedAt: got.EndedAt}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}

// TestDecisionSpecStalls: absent is what is not known, and none is not absent.
func TestDecisionSpecStalls(t *testing.T) {
	d := DecisionSpec(round.Decision{}, demand.Weights{}, round.NodeDecision{}, time.Time{}).Decision
	if d.MemoryPressurePercent != nil || d.IOPressurePercent != nil {
		t.Errorf("not read, and told as %v and %v", d.MemoryPressurePercent, d.IOPressurePercent)
	}
	d = DecisionSpec(round.Decision{Stalls: &sense.Stalls{Memory: sense.Ratio{Known: true}, IO: sense.Ratio{Known: true, Value: 0.876}}}, demand.Weights{}, round.NodeDecision{}, time.Time{}).Decision
	if d.MemoryPressurePercent == nil || *d.MemoryPressurePercent != 0 || d.IOPressurePercent == nil || *d.IOPressurePercent != 88 {
		t.Errorf("none and 0.876 of the time are told as %v and %v", d.MemoryPressurePercent, d.IOPressurePercent)
	}
}
