package eligibility

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
)

func eligible() Facts {
	return Facts{Running: true, QOS: QOSBurstable, Containers: []ContainerFacts{{}, {Limited: true}}}
}

func TestEveryExclusion(t *testing.T) {
	if r, ok := Eligible(eligible()); !ok {
		t.Fatalf("a plain Burstable pod is excluded: %v", r)
	}
	var tested []reasons.Reason
	for _, c := range []struct {
		want   reasons.Reason
		change func(*Facts)
	}{
		{reasons.SystemNamespace, func(f *Facts) { f.SystemNamespace = true }},
		{reasons.NamespaceOff, func(f *Facts) { f.NamespaceOff = true }},
		{reasons.OptedOut, func(f *Facts) { f.OptedOut = true }},
		{reasons.InvalidAnnotation, func(f *Facts) { f.InvalidAnnotation = true }},
		{reasons.ManagedByVPA, func(f *Facts) { f.VPA = true }},
		{reasons.NotRunning, func(f *Facts) { f.Running = false }},
		{reasons.StaticPod, func(f *Facts) { f.Static = true }},
		{reasons.WindowsPod, func(f *Facts) { f.Windows = true }},
		{reasons.GuaranteedQoS, func(f *Facts) { f.QOS = QOSGuaranteed }},
		{reasons.BestEffortQoS, func(f *Facts) { f.QOS = QOSBestEffort }},
		{reasons.PodLevelResources, func(f *Facts) { f.PodResources = true }},
		{reasons.RuntimeClass, func(f *Facts) { f.RuntimeClass = true }},
		{reasons.NoCPULimit, func(f *Facts) { f.Containers = []ContainerFacts{{}} }},
		{reasons.ResizeRestarts, func(f *Facts) { f.Containers = []ContainerFacts{{Limited: true, Restarts: true}} }},
		{reasons.NodeCannotResize, func(f *Facts) { f.StatusWithoutResources = true }},
	} {
		tested = append(tested, c.want)
		f := eligible()
		c.change(&f)
		if r, ok := Eligible(f); ok || r != c.want {
			t.Errorf("want %v, got %v (eligible %v)", c.want, r, ok)
		}
	}
	if diff := cmp.Diff(Exclusions(), tested); diff != "" {
		t.Errorf("exclusions without a case (-code +test):\n%s", diff)
	}
}

func TestUnlimitedContainersDoNotExclude(t *testing.T) {
	f := eligible()
	f.Containers = []ContainerFacts{{Limited: true}, {Restarts: true}}
	if r, ok := Eligible(f); !ok {
		t.Errorf("excluded: %v", r)
	}
}
