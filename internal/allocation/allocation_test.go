package allocation

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/round"
	"github.com/mbcas/mbcas/internal/sense"
	"github.com/mbcas/mbcas/internal/testing/podtest"
	"github.com/mbcas/mbcas/market"
)

func recorded(pod *corev1.Pod) *v1alpha1.PodAllocation {
	pa := New(pod)
	pa.Status.DeclaredLimits = kube.Limits(pod)
	return pa
}

// told is what the agent is told about the pod.
func told(pod *corev1.Pod, c v1alpha1.Constraints) *v1alpha1.NodePod {
	pa := recorded(pod)
	pa.UID = "pa-1"
	p := NodePod(pa, LimitsOf(pa.Status.DeclaredLimits), c)
	return &p
}

func TestDemandPod(t *testing.T) {
	p := podtest.Shop()
	budget := market.Budget(340) // requests of 170m at the weight 1 + log2(4)/2
	containers := func(managed bool) []demand.Container {
		c := []demand.Container{
			{Name: "app", ID: "app-id", Request: 100, Limit: 500},
			{Name: "exporter", ID: "exporter-id", Request: 20},
			{Name: "proxy", ID: "proxy-id", Request: 50, Limit: 200},
		}
		if managed {
			c[0].Declared, c[2].Declared = 500, 200
			c[0], c[2] = c[0].Within(0, 2000), c[2].Within(0, 1600) // 8 times the declared limit
		}
		return c
	}
	weights := demand.Weights{PriorityPercent: 200}
	shadow := demand.Pod{UID: "u-1", Budget: budget, Weights: weights, Unmanaged: true, Containers: containers(false)}
	if diff := cmp.Diff(shadow, DemandPod(p, nil, 2000)); diff != "" {
		t.Errorf("of which the agent is told nothing:\n%s", diff)
	}
	stranger := told(p, v1alpha1.Constraints{})
	stranger.UID = "u-0"
	if diff := cmp.Diff(shadow, DemandPod(p, stranger, 2000)); diff != "" {
		t.Errorf("with what is told of another pod:\n%s", diff)
	}
	plain := told(p, v1alpha1.Constraints{})
	if plain.Constraints != nil || plain.UID != p.UID || plain.AllocationUID != "pa-1" {
		t.Errorf("told without constraints: %+v", plain)
	}
	want := demand.Pod{UID: "u-1", Budget: budget, Weights: weights, Containers: containers(true)}
	if diff := cmp.Diff(want, DemandPod(p, plain, 2000)); diff != "" {
		t.Errorf("managed:\n%s", diff)
	}
	fair, slo, most := int32(150), int32(120), cpu.Milli(1500)
	bent := told(p, v1alpha1.Constraints{CoordinationPercent: &fair, DemandPercent: &slo, Ceiling: &most, IncreaseOnNeed: true, NoDecrease: "ScaledByHPA"})
	want.CoordinationPercent, want.Budget, want.DemandPercent = 150, 510, 120
	want.Ceiling, want.IncreaseOnNeed = 1500, true
	want.Containers[0].Floor, want.Containers[2].Floor = 500, 200
	if diff := cmp.Diff(want, DemandPod(p, bent, 2000)); diff != "" {
		t.Errorf("under constraints:\n%s", diff)
	}
	p.Status.ContainerStatuses[1].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}
	if id := DemandPod(p, plain, 2000).Containers[0].ID; id != "" {
		t.Errorf("a container that waits has the ID %q", id)
	}
}

func TestFactsAndSpecAgree(t *testing.T) {
	p := podtest.Shop()
	pa := recorded(p)
	at := time.Date(2026, 1, 1, 0, 0, 0, 123456000, time.UTC)
	d := round.Decision{
		UID: "u-1", Limit: 1000, Containers: []round.ContainerLimit{{Name: "app", Limit: 800}, {Name: "proxy", Limit: 200}},
		Demand: 700, Usage: 650, ThrottleRatio: 0.256, Pressure: sense.Ratio{Known: true, Value: 1.7}, Budget: 340, Price: 0.34, Floor: 210, Ceiling: 4000,
		Bound: market.ByPrice,
	}
	spec := DecisionSpec(d, demand.Weights{PriorityPercent: 200, CoordinationPercent: 120}, round.NodeDecision{}, at)
	if spec.Decision.PriorityPercent != 200 || *spec.Decision.CoordinationPercent != 120 || DecisionSpec(d, demand.Weights{}, round.NodeDecision{}, at).Decision.CoordinationPercent != nil {
		t.Errorf("weights of the budget: %+v", spec.Decision)
	}
	if *spec.DesiredCPULimit != 1000 || spec.Decision.ThrottledPercent != 26 || *spec.Decision.CPUPressurePercent != 100 || spec.Decision.Price != 0.34 || spec.Decision.BoundBy != v1alpha1.BoundByPrice {
		t.Errorf("spec %+v, decision %+v", spec, spec.Decision)
	}
	pa.Spec.DesiredCPULimit, pa.Spec.Containers, pa.Spec.Decision = spec.DesiredCPULimit, spec.Containers, spec.Decision
	want := round.Published{
		At: at, Limits: map[string]cpu.Milli{"app": 800, "proxy": 200}, Demand: 700, Price: 0.34, Bound: market.ByPrice,
		ThrottleRatio: 0.26,
	}
	if diff := cmp.Diff(want, Published(pa)); diff != "" {
		t.Errorf("what was written reads otherwise:\n%s", diff)
	}
	d.RevokedFor = 9200 * time.Millisecond
	pa.Spec = DecisionSpec(d, demand.Weights{}, round.NodeDecision{}, at)
	if got := DecisionOf(pa, 0, 0, 0).RevokedFor; got != 10*time.Second { // never shorter
		t.Errorf("a raise that is revoked for %v reads as %v", d.RevokedFor, got)
	}
	for made, want := range map[time.Duration]time.Duration{4 * time.Second: 6 * time.Second, time.Hour: 0} {
		if got := DecisionOf(pa, made, 0, 0).RevokedFor; got != want { // whatever the agent has confirmed since
			t.Errorf("after %v it is revoked for %v, want %v", made, got, want)
		}
	}
	d.Price = 2.0 / 57_600 // budgets of 2 on a node of 64 cores
	if got := Published(&v1alpha1.PodAllocation{Spec: DecisionSpec(d, demand.Weights{}, round.NodeDecision{}, at)}).Price; got == 0 {
		t.Error("a small price that holds a pod reads as none")
	}
	if !Published(nil).At.IsZero() || !Published(recorded(p)).At.IsZero() {
		t.Error("an allocation without a decision counts as published")
	}

	var given *v1alpha1.Constraints
	planned := func() actuator.Pod {
		facts := Facts(p, pa.Status.DeclaredLimits, 2000, given)
		return facts.Planned(DecisionOf(pa, 0, 0, 0).Limits, false)
	}
	state := actuator.Pod{UID: "u-1", Containers: []actuator.Container{
		{Name: "app", Limit: 500, Declared: 500, Floor: 110, Ceiling: 2000, Desired: 800},
		{Name: "proxy", Limit: 200, Declared: 200, Floor: 100, Ceiling: 1600, Desired: 200},
	}}
	if diff := cmp.Diff(state, planned()); diff != "" {
		t.Error(diff)
	}
	most := cpu.Milli(800)
	given = &v1alpha1.Constraints{Ceiling: &most}
	capped := state
	capped.Containers = slices.Clone(state.Containers)
	capped.Containers[0].Desired, capped.Containers[1].Desired = 620, 170 // 690 and 100 above the floors, of which 590 are left
	if diff := cmp.Diff(capped, planned()); diff != "" {
		t.Errorf("wanted is more than the pod's ceiling:\n%s", diff)
	}
	p.Spec.Containers[0].Resources.Limits = podtest.CPU("700m")
	capped.Containers[0].Limit, capped.Containers[0].Ceiling, capped.Containers[1].Ceiling = 700, 620, 170
	if diff := cmp.Diff(capped, planned()); diff != "" {
		t.Errorf("the pod is above its ceiling:\n%s", diff)
	}
	p.Spec.Containers[0].Resources.Limits = podtest.CPU("500m")
	given = nil
	// A container that was given a limit after the record is not managed.
	p.Spec.Containers[1].Resources.Limits = podtest.CPU("1")
	if diff := cmp.Diff(state, planned()); diff != "" {
		t.Error(diff)
	}
}

func TestNode(t *testing.T) {
	n := &corev1.Node{Status: corev1.NodeStatus{
		Capacity: podtest.CPU("2"), Allocatable: podtest.CPU("1600m"),
		Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
			{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionTrue},
			{Type: corev1.NodeDiskPressure, Status: corev1.ConditionUnknown},
			{Type: corev1.NodePIDPressure, Status: corev1.ConditionTrue},
		},
	}}
	if got, want := Node(n), (round.Node{Capacity: 2000, Allocatable: 1600, Pressures: 2}); got != want {
		t.Errorf("Node = %+v, want %+v", got, want)
	}
}

// TestDecisionOfThrottledPod: a pod counts as throttled from the ratio from which its agent counts it so.
func TestDecisionOfThrottledPod(t *testing.T) {
	for percent, want := range map[int32]bool{0: false, 9: false, 10: true, 100: true} {
		pa := &v1alpha1.PodAllocation{}
		pa.Spec.Decision = &v1alpha1.Decision{ThrottledPercent: percent}
		if got := DecisionOf(pa, 0, 0, 0).Throttled; got != want {
			t.Errorf("throttled in %d %% of its periods: %v, want %v", percent, got, want)
		}
	}
}

// TestPriorityIsThatOfThePod: what counts is the priority that the API server gave the pod, not that of its class now.
func TestPriorityIsThatOfThePod(t *testing.T) {
	for priority, want := range map[int32]int32{4000: 200, -10: 50, 2000: 150, 2_000_000_000: 800} {
		p := podtest.Shop()
		p.Spec.Priority, p.Spec.PriorityClassName = &priority, "gold"
		got := DemandPod(p, nil, 4000)
		if got.PriorityPercent != want || got.Budget != market.Budget(170*want/100) {
			t.Errorf("priority %d: %d %%, budget %v, want %d %% of 170", priority, got.PriorityPercent, got.Budget, want)
		}
	}
}
