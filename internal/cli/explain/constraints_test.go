package explain

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/cli/snapshot"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

// web is a pod of one container with a limit, and its allocation.
func web() Subject {
	pod := apiserver.RunningPod("plaza", "web", apiserver.Container("app", "200m", "900m"))
	return Subject{
		Pod: pod, Allocation: &v1alpha1.PodAllocation{Status: v1alpha1.PodAllocationStatus{DeclaredLimits: kube.Limits(pod)}},
	}
}

func milli(m cpu.Milli) *cpu.Milli { return &m }

// TestMultipliers: a budget is explained by its multipliers only if they make it.
func TestMultipliers(t *testing.T) {
	s := web()
	s.Pod.Spec.Containers = append(s.Pod.Spec.Containers, apiserver.Container("log", "50m", ""))
	const request = " (the CPU request of its containers with a limit, 200m, times "
	for want, f := range map[string]snapshot.Figures{
		"": {Budget: 400},
		" (the CPU request of its containers with a limit)":                {Budget: 200, PriorityPercent: 100},
		request + "0.5 for its priority)":                                  {Budget: 100, PriorityPercent: 50},
		request + "1.37 for fairness between nodes)":                       {Budget: 274, PriorityPercent: 100, CoordinationPercent: 137},
		request + "2 for its priority and 0.5 for fairness between nodes)": {Budget: 200, PriorityPercent: 200, CoordinationPercent: 50},
	} {
		s.Row.Figures = &f
		if got := multipliers(s); got != want {
			t.Errorf("%+v: %q, want %q", f, got, want)
		}
	}
	s.Row.Figures = &snapshot.Figures{Budget: 300, PriorityPercent: 100, CoordinationPercent: 200} // newer than the multipliers
	if got := multipliers(s); got != "" {
		t.Errorf("a budget is explained by multipliers that do not make it: %q", got)
	}
}

// TestRevokedRaises: explain says why a pod has its declared limit at most, and until when.
func TestRevokedRaises(t *testing.T) {
	s := web()
	s.Row.Figures = &snapshot.Figures{
		RevokedUntil: time.Date(2026, 1, 1, 12, 0, 20, 0, time.UTC), Desired: 900, BoundBy: v1alpha1.BoundByCeiling,
	}
	s.Now = s.Row.Figures.RevokedUntil.Add(-time.Second)
	want := "Decision: a limit of 900m, at most the declared one or the floor until 12:00:20 UTC: other pods needed the CPU that it had above that. " +
		"Then it is raised again on need."
	if got := decision(s); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	s.Now = s.Now.Add(time.Second)
	if got := decision(s); strings.Contains(got, "until") {
		t.Errorf("after that: %q", got)
	}
	s.Now, s.Row.Figures.BoundBy = s.Now.Add(-time.Second), v1alpha1.BoundByPrice
	if got := decision(s); strings.Contains(got, "until") {
		t.Errorf("a pod that the price caps: %q", got)
	}
}

// TestInvalidStartupBoost: explain says as long as a start-up boost cannot be read that it cannot.
func TestInvalidStartupBoost(t *testing.T) {
	s := web()
	s.Allocation = &v1alpha1.PodAllocation{}
	if got := startupBoost(s); got != "" {
		t.Errorf("nothing is wrong: %q", got)
	}
	s.Allocation.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionStartupBoostValid, Status: metav1.ConditionFalse, Reason: "InvalidStartupBoost", Message: "it is 11",
	}}
	if got, want := startupBoost(s), "Start-up boost: it is 11 (InvalidStartupBoost)."; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestStalls: memory and IO pressure are explained as far as the agent reports them.
func TestStalls(t *testing.T) {
	const waited = "Stalls: all its runnable tasks waited for "
	zero, few, some, most := int32(0), int32(12), int32(64), int32(91)
	for want, f := range map[string]snapshot.Figures{
		"": {},
		waited + "memory 0% of the time and for IO 12%.":                                              {MemoryPressure: &zero, IOPressure: &few},
		waited + "memory 64% of the time. More CPU would therefore raise its usage by 56% at most.":   {MemoryPressure: &some},
		waited + "IO 91% of the time. Throttling and CPU pressure therefore do not raise its demand.": {IOPressure: &most},
	} {
		if got := stalls(Subject{Row: snapshot.Row{Figures: &f}}); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if f := (snapshot.Figures{Throttled: 97, IOPressure: &most}); f.Bottleneck() != snapshot.BottleneckStall {
		t.Errorf("throttled, and stalled most of the time: bottleneck %v", f.Bottleneck())
	}
}

// TestNoDecrease: every reason against a decrease is explained, with the hold-off that the
// installation uses, also a reason that this version does not know.
func TestNoDecrease(t *testing.T) {
	unhealthy := string(reasons.UnhealthyAfterDecrease)
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	harmed, never := metav1.NewMicroTime(now.Add(-10*time.Minute)), metav1.MicroTime{}
	for name, c := range map[string]struct {
		reason   string
		harmed   metav1.MicroTime
		settings kube.Settings
		want     string
	}{
		"a day":            {unhealthy, harmed, kube.Settings{kube.RollbackHoldOffFlag: "24h0m0s"}, "not decreased until 2026-11-22 11:50 UTC, because"},
		"an hour":          {unhealthy, harmed, kube.Settings{kube.RollbackHoldOffFlag: "1h0m0s"}, "not decreased until 2026-11-21 12:50 UTC, because"},
		"unknown hold-off": {unhealthy, harmed, nil, "not decreased for the controller's --rollback-holdoff, because"},
		"unknown time":     {unhealthy, never, nil, "not decreased: " + reasons.UnhealthyAfterDecrease.Sentence() + " (UnhealthyAfterDecrease)."},
		"unknown reason":   {"MoonPhase", never, nil, "not decreased: reason MoonPhase (MoonPhase)."},
	} {
		s := web()
		s.Row.Constraints, s.Settings, s.Now = &v1alpha1.Constraints{NoDecrease: c.reason}, c.settings, now
		s.Allocation.Status.Rollback.LastHarmfulDecreaseTime = c.harmed
		if got := noDecrease(s); !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestBoundsNameTheirSource: a floor or ceiling is attributed to an object only if the object sets
// it.
func TestBoundsNameTheirSource(t *testing.T) {
	s := web()
	s.Pod.Annotations = map[string]string{kube.MaxCPUKey: "2"}
	container := func(floor, ceiling *cpu.Milli) []v1alpha1.ContainerConstraints {
		return []v1alpha1.ContainerConstraints{{Name: "app", Floor: floor, Ceiling: ceiling}}
	}
	hpa := v1alpha1.Constraints{Containers: container(milli(360), nil), FloorBy: "HorizontalPodAutoscaler/web"}
	noDecrease := hpa
	noDecrease.NoDecrease = string(reasons.ScaledByHPA)
	low := v1alpha1.Constraints{Containers: container(milli(50), milli(1500)), FloorBy: "LimitRange/a", CeilingBy: "LimitRange/a"}
	high := v1alpha1.Constraints{Ceiling: milli(3000), CeilingBy: "LimitRange/a, ResourceQuota/b"}
	twice, much := v1alpha1.Constraints{MaxRaise: ptr.To[int32](2)}, v1alpha1.Constraints{MaxRaise: ptr.To[int32](100)}
	const byHPA = "set by HorizontalPodAutoscaler web"
	const declared = "what its declared limit and request give it"
	for name, c := range map[string]struct {
		constraints              *v1alpha1.Constraints
		floor, ceiling           cpu.Milli
		wantFloorBy, wantCeiling string
	}{
		"no constraints":                             {nil, 210, 2000, "", ""},
		"an HPA's floor":                             {&hpa, 360, 2000, byHPA, ""},
		"a decision from before the HPA":             {&hpa, 210, 2000, "", ""},
		"a pod that is not decreased":                {&noDecrease, 900, 2000, "because it is not decreased", ""},
		"a pod at the HPA's floor":                   {&noDecrease, 360, 2000, byHPA, ""},
		"a floor below the pod's own":                {&low, 210, 1500, "", "set by LimitRange a"},
		"a node that is smaller than the constraint": {&low, 210, 1000, "", ""},
		"a ceiling above the pod's own":              {&high, 210, 2000, "", ""},
		"its declared limit":                         {nil, 900, 2000, declared, ""},
		"its declared limit, above the HPA's floor":  {&hpa, 900, 2000, declared, ""},
		"a pod that saturates":                       {nil, 640, 2000, "", ""},
		"a ceiling below its declared limit":         {nil, 700, 700, declared, ""},
		"as far as its limit may rise":               {&twice, 210, 1800, "", "2 times its declared limit; mbcas.io/max-raise changes that"},
		"a raise that its max-cpu bounds":            {&much, 210, 2000, "", ""},
	} {
		s.Row.Declared = milli(900)
		s.Row.Constraints, s.Row.Figures = c.constraints, &snapshot.Figures{Floor: c.floor, Ceiling: c.ceiling}
		if floor, ceiling := floorSource(s), ceilingSource(s); floor != c.wantFloorBy || ceiling != c.wantCeiling {
			t.Errorf("%s: floor %q, ceiling %q; want %q and %q", name, floor, ceiling, c.wantFloorBy, c.wantCeiling)
		}
	}
}

// TestDemandSignals: the DemandSignals of a pod, and those of a node, are named.
func TestDemandSignals(t *testing.T) {
	percent := int32(150)
	for by, want := range map[string]string{
		"":                               "A DemandSignal multiplies its demand by 1.5.",
		"DemandSignal/p99":               "DemandSignal p99 multiplies its demand by 1.5.",
		"DemandSignal/a, DemandSignal/b": "DemandSignal a and DemandSignal b multiply its demand by 1.5.",
	} {
		if got := demandSignals(&v1alpha1.Constraints{DemandPercent: &percent, DemandBy: by}); got != want {
			t.Errorf("%q: %q, want %q", by, got, want)
		}
	}
	var list []snapshot.PodConstraints
	for _, by := range []string{"", "DemandSignal/a", "DemandSignal/a, DemandSignal/b", "DemandSignal/c", "DemandSignal/d"} {
		c := &v1alpha1.Constraints{DemandPercent: &percent, DemandBy: by}
		list = append(list, snapshot.PodConstraints{Namespace: "lab", Constraints: c})
	}
	want := "The demand of 5 pods is raised by DemandSignal lab/a (150%), DemandSignal lab/b (150%), DemandSignal lab/c (150%) and 2 more."
	if got := Signals(list); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
