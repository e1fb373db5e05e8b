package v1alpha1_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/testing/must"
)

// Clients without our types see amounts as the API server does: text.
func TestAmountsAreTextForGenericClients(t *testing.T) {
	total := cpu.Milli(1500)
	pa := &v1alpha1.PodAllocation{Spec: v1alpha1.PodAllocationSpec{
		DesiredCPULimit: &total, Containers: []v1alpha1.ContainerLimit{{Name: "app", CPULimit: 1500}},
	}}
	generic, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pa)
	must.Succeed(t, err)
	if got := generic["spec"].(map[string]any)["desiredCPULimit"]; got != "1500m" {
		t.Errorf("desiredCPULimit is %#v, want the text 1500m", got)
	}
	var back v1alpha1.PodAllocation
	must.Succeed(t, runtime.DefaultUnstructuredConverter.FromUnstructured(generic, &back))
	if diff := cmp.Diff(pa.Spec, back.Spec); diff != "" {
		t.Errorf("there and back:\n%s", diff)
	}
}
