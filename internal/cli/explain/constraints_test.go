package explain

import (
	"testing"
	"time"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/cli/snapshot"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

// TestWeights: a budget is explained by the weights of the decision, if they make it.
func TestWeights(t *testing.T) {
	e := Explanation{of: Subject{Pod: apiserver.RunningPod("plaza", "web", apiserver.Container("app", "200m", "900m"), apiserver.Container("log", "50m", ""))}}
	e.of.Allocation = &v1alpha1.PodAllocation{Status: v1alpha1.PodAllocationStatus{DeclaredLimits: kube.Limits(e.of.Pod)}}
	for want, f := range map[string]snapshot.Figures{
		"": {Budget: 400},
		" (the CPU request of its containers with a limit)":                                                                    {Budget: 200, PriorityPercent: 100},
		" (the CPU request of its containers with a limit, 200m, times 0.5 for its priority)":                                  {Budget: 100, PriorityPercent: 50},
		" (the CPU request of its containers with a limit, 200m, times 1.37 for fairness between nodes)":                       {Budget: 274, PriorityPercent: 100, FairnessPercent: 137},
		" (the CPU request of its containers with a limit, 200m, times 2 for its priority and 0.5 for fairness between nodes)": {Budget: 200, PriorityPercent: 200, FairnessPercent: 50},
	} {
		e.Figures = &f
		if got := e.weights(); got != want {
			t.Errorf("%+v: %q, want %q", f, got, want)
		}
	}
	e.Figures = &snapshot.Figures{Budget: 300, PriorityPercent: 100, FairnessPercent: 200} // the round is newer than the decision
	if got := e.weights(); got != "" {
		t.Errorf("a budget that its weights do not make is explained by them: %q", got)
	}
}

// TestNotLowered: every reason not to lower a pod is told, also one without a time and one that this plugin does not know.
func TestNotLowered(t *testing.T) {
	unhealthy := string(reasons.UnhealthyAfterDecrease)
	for reason, want := range map[string]string{
		unhealthy:   "It is not lowered: " + reasons.UnhealthyAfterDecrease.Sentence() + " (UnhealthyAfterDecrease).",
		"MoonPhase": "It is not lowered: reason MoonPhase (MoonPhase).",
	} {
		e := Explanation{Row: snapshot.Row{Terms: &v1alpha1.Constraints{NoDecrease: reason}}, of: Subject{Allocation: &v1alpha1.PodAllocation{}}}
		if got := e.notLowered(time.Now()); got != want {
			t.Errorf("%s: %q, want %q", reason, got, want)
		}
	}
}

// TestBoundsNameTheirSource: a floor or ceiling is laid to the platform's account only where it is its own.
func TestBoundsNameTheirSource(t *testing.T) {
	e := Explanation{of: Subject{Pod: apiserver.RunningPod("plaza", "web", apiserver.Container("app", "200m", "900m"))}}
	e.of.Allocation = &v1alpha1.PodAllocation{Status: v1alpha1.PodAllocationStatus{DeclaredLimits: kube.Limits(e.of.Pod)}}
	e.of.Pod.Annotations = map[string]string{kube.MaxCPUKey: "2"}
	hpa := v1alpha1.Constraints{Containers: []v1alpha1.ContainerConstraints{{Name: "app", Floor: milli(360)}}, FloorBy: "HorizontalPodAutoscaler/web"}
	still := hpa
	still.NoDecrease = string(reasons.ScaledByHPA)
	low := v1alpha1.Constraints{Containers: []v1alpha1.ContainerConstraints{{Name: "app", Floor: milli(50), Ceiling: milli(1500)}}, FloorBy: "LimitRange/a", CeilingBy: "LimitRange/a"}
	high := v1alpha1.Constraints{Ceiling: milli(3000), CeilingBy: "LimitRange/a, ResourceQuota/b"}
	const web = "set by HorizontalPodAutoscaler web"
	for name, c := range map[string]struct {
		terms                *v1alpha1.Constraints
		floor, ceiling       cpu.Milli
		floorFrom, ceilingBy string
	}{
		"no terms":                             {nil, 210, 2000, "", ""},
		"an HPA's floor":                       {&hpa, 360, 2000, web, ""},
		"a decision from before the HPA":       {&hpa, 210, 2000, "", ""},
		"a pod that is not lowered":            {&still, 900, 2000, "because it is not lowered", ""},
		"one that has come down to the floor":  {&still, 360, 2000, web, ""},
		"a floor below the pod's own":          {&low, 210, 1500, "", "set by LimitRange a"},
		"a node that is smaller than the term": {&low, 210, 1000, "", ""},
		"a ceiling above the pod's own":        {&high, 210, 2000, "", ""},
	} {
		e.Terms, e.Figures = c.terms, &snapshot.Figures{Floor: c.floor, Ceiling: c.ceiling}
		if floor, ceiling := e.raisedBy(), e.cappedBy(); floor != c.floorFrom || ceiling != c.ceilingBy {
			t.Errorf("%s: floor %q, ceiling %q; want %q and %q", name, floor, ceiling, c.floorFrom, c.ceilingBy)
		}
	}
}

// TestAsker: whoever asks for a demand is named.
func TestAsker(t *testing.T) {
	for by, want := range map[string]string{
		"": "a DemandSignal asks", "DemandSignal/p99": "DemandSignal p99 asks", "DemandSignal/a, DemandSignal/b": "DemandSignal a and DemandSignal b ask",
	} {
		if got := asker(by); got != want {
			t.Errorf("%q: %q, want %q", by, got, want)
		}
	}
}

func milli(m cpu.Milli) *cpu.Milli { return &m }
