package kube

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/testing/podtest"
)

// TestSharedLimit: a pod of which all containers share its own limit is one container, also after it was trimmed. Once a
// container gets a limit, all of them are there, and the pod's own limit is still found for a restore.
func TestSharedLimit(t *testing.T) {
	pod := podtest.ShareLimit(podtest.Shop(), "200m", "1")
	for _, what := range []string{"whole", "trimmed"} {
		all := Containers(pod)
		if len(all) != 1 {
			t.Fatalf("%s: %d containers, want the pod alone", what, len(all))
		}
		c := all[0]
		if c.Spec.Name != v1alpha1.PodLevel || c.Limit() != 1000 || c.Request() != 200 || c.InForce() != 1000 || !SharesLimit(pod) {
			t.Errorf("%s: %+v, want %s with 200m, 1000m and 1000m in force", what, c, v1alpha1.PodLevel)
		}
		if what == "whole" && c.RuntimeID() != "u-1" {
			t.Errorf("runtime ID %q, want that of the pod", c.RuntimeID())
		}
		TrimPod(pod)
	}
	lowered := WithLimits(pod, map[string]cpu.Milli{v1alpha1.PodLevel: 300})
	if got, kept := Limits(lowered), Limits(pod); got[0].CPULimit != 300 || kept[0].CPULimit != 1000 {
		t.Errorf("with other limits: %v of %v", got, kept)
	}
	pod.Spec.Containers[0].Resources.Limits = podtest.CPU("500m")
	want := []v1alpha1.ContainerLimit{{Name: "app", CPULimit: 500}, {Name: v1alpha1.PodLevel, CPULimit: 1000}}
	if diff := cmp.Diff(want, Limits(pod)); diff != "" || SharesLimit(pod) {
		t.Errorf("once app has a limit, shared: %v (-want +got):\n%s", SharesLimit(pod), diff)
	}
	for _, c := range Containers(pod) {
		if c.Spec.Name == v1alpha1.PodLevel && c.Request() != 0 {
			t.Errorf("the requests count twice: %v", c.Request())
		}
	}
}

// TestRestoreFloorsOfTheWholePod: a limit that returns to a raised request does not make the pod Guaranteed, which goes by
// the pod's own resources alone.
func TestRestoreFloorsOfTheWholePod(t *testing.T) {
	declared := []v1alpha1.ContainerLimit{{Name: v1alpha1.PodLevel, CPULimit: 300}}
	pod := podtest.ShareLimit(podtest.Shop(), "400m", "1") // 64Mi of memory each
	if got := RestoreFloors(pod, declared)[v1alpha1.PodLevel]; got != 410 {
		t.Errorf("floor %v, want 410m: at 400m it would be Guaranteed", got)
	}
	delete(pod.Spec.Resources.Limits, corev1.ResourceMemory)
	if got := RestoreFloors(pod, declared)[v1alpha1.PodLevel]; got != 400 {
		t.Errorf("floor %v without a memory limit, want 400m", got)
	}
}

// TestWholePodWrittenByMBCAS: the pod's own CPU limit has a writer of its own.
func TestWholePodWrittenByMBCAS(t *testing.T) {
	of := func(manager, fields string) metav1.ManagedFieldsEntry {
		m := by(manager, "resize", "f:containers")
		m.FieldsV1 = metav1.NewFieldsV1(`{"f:spec":{"f:nodeName":{},"f:resources":` + fields + `}}`)
		return m
	}
	const limit, memory = `{"f:limits":{"f:cpu":{}}}`, `{"f:limits":{"f:memory":{}},"f:requests":{"f:cpu":{}}}`
	for name, c := range map[string]struct {
		entry metav1.ManagedFieldsEntry
		ours  bool
	}{
		"by us": {of(FieldManager, limit), true}, "by another": {of("kubectl", limit), false}, "other fields by us": {of(FieldManager, memory), false},
	} {
		pod := podtest.ShareLimit(podtest.Shop(), "200m", "1")
		pod.Generation = 2
		pod.ManagedFields = []metav1.ManagedFieldsEntry{by("kubectl-create", "", "f:containers", "app"), c.entry}
		for range 2 {
			if got := WrittenByMBCAS(pod)[v1alpha1.PodLevel]; got != c.ours {
				t.Errorf("%s: ours %v, want %v", name, got, c.ours)
			}
			pod.ManagedFields = TrimManagedFields(pod.ManagedFields)
		}
	}
}
