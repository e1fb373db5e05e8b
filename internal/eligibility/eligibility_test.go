package eligibility

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/podtest"
)

func eligible() Pod {
	return Pod{Pod: podtest.Shop(), Mode: kube.ModeEnforce, System: kube.SystemNamespace}
}

func restartsFor(name corev1.ResourceName) []corev1.ContainerResizePolicy {
	return []corev1.ContainerResizePolicy{{ResourceName: name, RestartPolicy: corev1.RestartContainer}}
}

func TestEveryExclusion(t *testing.T) {
	if r, ok := Eligible(eligible()); !ok {
		t.Fatalf("a plain Burstable pod is excluded: %v", r)
	}
	var tested []reasons.Reason
	for _, c := range []struct {
		want   reasons.Reason
		change func(*Pod)
	}{
		{reasons.SystemNamespace, func(p *Pod) { p.Namespace = "kube-system" }},
		{reasons.SystemNamespace, func(p *Pod) { p.Namespace = kube.SystemNamespace }},
		{reasons.NamespaceOff, func(p *Pod) { p.Mode = kube.ModeOff }},
		{reasons.OptedOut, func(p *Pod) { p.Labels[kube.ManagedKey] = "false" }},
		{reasons.OptedOut, func(p *Pod) { p.Annotations[kube.ManagedKey] = "false" }},
		{reasons.InvalidAnnotation, func(p *Pod) { p.Annotations[kube.MaxCPUKey] = "two" }},
		{reasons.InvalidAnnotation, func(p *Pod) { p.Annotations[kube.MaxCPUKey] = "-1" }},
		{reasons.InvalidAnnotation, func(p *Pod) { p.Labels[kube.MaxRaiseKey] = "many" }},
		{reasons.ManagedByVPA, func(p *Pod) { p.VPA = true }},
		{reasons.NotRunning, func(p *Pod) { p.Status.Phase, p.Spec.NodeName = corev1.PodPending, "" }},
		{reasons.NotRunning, func(p *Pod) { p.DeletionTimestamp = &metav1.Time{} }},
		{reasons.StaticPod, func(p *Pod) { p.Annotations[corev1.MirrorPodAnnotationKey] = "x" }},
		{reasons.WindowsPod, func(p *Pod) { p.Spec.OS = &corev1.PodOS{Name: corev1.Windows} }},
		{reasons.GuaranteedQoS, func(p *Pod) { p.Status.QOSClass = corev1.PodQOSGuaranteed }},
		{reasons.BestEffortQoS, func(p *Pod) { p.Status.QOSClass = corev1.PodQOSBestEffort }},
		{reasons.PodLevelResources, func(p *Pod) { p.Spec.Resources = &corev1.ResourceRequirements{} }},
		{reasons.RuntimeClass, func(p *Pod) { p.Spec.RuntimeClassName = new("gvisor") }},
		{reasons.NoCPULimit, func(p *Pod) {
			p.Spec.Containers[0].Resources.Limits, p.Spec.InitContainers[1].Resources.Limits = nil, nil
		}},
		{reasons.ResizeRestarts, func(p *Pod) { p.Spec.Containers[0].ResizePolicy = restartsFor(corev1.ResourceCPU) }},
		{reasons.NodeCannotResize, func(p *Pod) { p.Status.ContainerStatuses[1].Resources = nil }},
		{reasons.PodTooLarge, func(p *Pod) {
			for i := range v1alpha1.MaxContainers {
				c := p.Spec.Containers[0]
				c.Name = fmt.Sprint("more-", i)
				p.Spec.Containers = append(p.Spec.Containers, c)
			}
		}},
		{reasons.PodTooLarge, func(p *Pod) {
			p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100k")}
		}},
	} {
		tested = append(tested, c.want)
		p := eligible()
		c.change(&p)
		if r, ok := Eligible(p); ok || r != c.want {
			t.Errorf("want %v, got %v (eligible %v)", c.want, r, ok)
		}
	}
	if diff := cmp.Diff(Exclusions(), slices.Compact(tested)); diff != "" {
		t.Errorf("exclusions without a case (-code +test):\n%s", diff)
	}
}

func TestUnlimitedContainersDoNotExclude(t *testing.T) {
	p := eligible()
	p.Spec.Containers[1].ResizePolicy = restartsFor(corev1.ResourceCPU)
	p.Spec.Containers[0].ResizePolicy = restartsFor(corev1.ResourceMemory)
	if r, ok := Eligible(p); !ok {
		t.Errorf("excluded: %v", r)
	}
}

// TestStartingPodsAreManaged: their records are then made before they run. A pod that cannot start costs none.
func TestStartingPodsAreManaged(t *testing.T) {
	waiting := func(reason string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
	}
	for name, c := range map[string]struct {
		change  func(*corev1.Pod)
		managed bool
	}{
		"its containers are created":        {func(*corev1.Pod) {}, true},
		"its init containers run":           {func(p *corev1.Pod) { p.Status.ContainerStatuses[0].State = waiting("PodInitializing") }, true},
		"its image is not found":            {func(p *corev1.Pod) { p.Status.ContainerStatuses[0].State = waiting("ImagePullBackOff") }, false},
		"an init container is tried again":  {func(p *corev1.Pod) { p.Status.ContainerStatuses[0].RestartCount = 1 }, false},
		"its kubelet has not seen it":       {func(p *corev1.Pod) { p.Status.ContainerStatuses, p.Status.InitContainerStatuses = nil, nil }, false},
		"no node has been found for it yet": {func(p *corev1.Pod) { p.Spec.NodeName = "" }, false},
		"it is being deleted":               {func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }, false},
	} {
		p := eligible()
		p.Spec.NodeName, p.Status.Phase = "n1", corev1.PodPending
		for _, list := range [][]corev1.ContainerStatus{p.Status.ContainerStatuses, p.Status.InitContainerStatuses} {
			for i := range list {
				list[i].State, list[i].Resources = waiting("ContainerCreating"), nil
			}
		}
		c.change(p.Pod)
		kube.TrimPod(p.Pod)
		if r, ok := Eligible(p); ok != c.managed || !ok && r != reasons.NotRunning {
			t.Errorf("%s: eligible %v, reason %q", name, ok, r)
		}
	}
}
