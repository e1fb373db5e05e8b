package cli

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kube"
)

// container is the CPU of one container or sidecar in a pod's spec.
type container struct {
	name           string
	request, limit cpu.Milli // limit 0: none
	restarts       bool
}

// running lists what runs beside each other in the pod: its containers and its sidecars.
func running(pod *corev1.Pod) []container {
	var list []container
	for i := range pod.Spec.Containers {
		list = append(list, containerOf(&pod.Spec.Containers[i]))
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			list = append(list, containerOf(c))
		}
	}
	return list
}

func containerOf(c *corev1.Container) container {
	out := container{
		name:    c.Name,
		request: kube.Milli(c.Resources.Requests[corev1.ResourceCPU]),
		limit:   kube.Milli(c.Resources.Limits[corev1.ResourceCPU]),
	}
	for _, p := range c.ResizePolicy {
		if p.ResourceName == corev1.ResourceCPU && p.RestartPolicy == corev1.RestartContainer {
			out.restarts = true
		}
	}
	return out
}
