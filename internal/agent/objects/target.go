package objects

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/kube"
)

// Target is what is read of a pod with these containers. Where the one container is the pod itself, these are its own
// cgroup and those in it, to which the kubelet gives the same limit.
func Target(pod *corev1.Pod, containers []demand.Container) kernel.Target {
	t := kernel.Target{Pod: kube.CgroupUID(pod)}
	for _, c := range containers {
		if c.Name != v1alpha1.PodLevel {
			t.Containers, t.Limits = append(t.Containers, c.ID), append(t.Limits, c.Limit)
			continue
		}
		t.Whole = c.Name
		for _, inner := range kube.EachContainer(pod) {
			t.Containers, t.Limits = append(t.Containers, inner.RuntimeID()), append(t.Limits, c.Limit)
		}
	}
	return t
}

// RunsContainer says whether a container of the pod, or an init container, runs or has run.
func RunsContainer(pod *corev1.Pod) bool {
	return slices.ContainsFunc(slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses),
		func(c corev1.ContainerStatus) bool { return c.ContainerID != "" })
}
