// Package podtest builds the pods that tests of several packages share.
package podtest

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
)

// CPU is a list of so much CPU and 64Mi of memory; empty for "".
func CPU(q string) corev1.ResourceList {
	if q == "" {
		return nil
	}
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(q), corev1.ResourceMemory: resource.MustParse("64Mi")}
}

// Container has these CPU quantities and 64Mi of memory with each.
func Container(name, request, limit string) corev1.Container {
	return corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Requests: CPU(request), Limits: CPU(limit)}}
}

// status is that of a running container, from a kubelet that reports resources.
func status(name string) corev1.ContainerStatus {
	return corev1.ContainerStatus{
		Name: name, ContainerID: "containerd://" + name + "-id", Resources: &corev1.ResourceRequirements{}, Started: new(true),
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
	}
}

// Shop has a limited application, an unlimited exporter, a limited sidecar, and an init container
// that is done.
func Shop() *corev1.Pod {
	always := corev1.ContainerRestartPolicyAlways
	sidecar := Container("proxy", "50m", "200m")
	sidecar.RestartPolicy = &always
	priority := int32(4000)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "shop-1", Namespace: "shop", UID: "u-1", Annotations: map[string]string{}, Labels: map[string]string{}},
		Spec: corev1.PodSpec{
			NodeName: "n", Priority: &priority,
			InitContainers: []corev1.Container{Container("migrate", "1", "2"), sidecar},
			Containers:     []corev1.Container{Container("app", "100m", "500m"), Container("exporter", "20m", "")},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, QOSClass: corev1.PodQOSBurstable,
			ContainerStatuses:     []corev1.ContainerStatus{status("exporter"), status("app")},
			InitContainerStatuses: []corev1.ContainerStatus{status("proxy")},
		},
	}
}

// Owned is a pod that something controls.
func Owned(apiVersion, kind, name string, podLabels map[string]string) *corev1.Pod {
	pod, yes := Shop(), true
	pod.Labels = podLabels
	if kind != "" {
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: name, Controller: &yes}}
	}
	return pod
}

// Amounts are a list from pairs of a resource and a quantity.
func Amounts(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

// Limits are limits from pairs of a name and thousandths of a core.
func Limits(pairs ...any) (l []v1alpha1.ContainerLimit) {
	for i := 0; i < len(pairs); i += 2 {
		l = append(l, v1alpha1.ContainerLimit{Name: pairs[i].(string), CPULimit: cpu.Milli(pairs[i+1].(int))})
	}
	return l
}

// LimitRanges holds a LimitRange of one item for containers, as the API server stores it.
func LimitRanges(item corev1.LimitRangeItem) []corev1.LimitRange {
	if item.Type == "" {
		item.Type = corev1.LimitTypeContainer
	}
	return []corev1.LimitRange{{ObjectMeta: metav1.ObjectMeta{Name: "limits"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{item}}}}
}
