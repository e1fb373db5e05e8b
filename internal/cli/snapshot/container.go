package snapshot

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kube"
)

// Container is the CPU of one container or sidecar in a pod's spec.
type Container struct {
	Name           string
	Request, Limit cpu.Milli // limit 0: none
	// Restarts: its resizePolicy restarts it when its CPU changes.
	Restarts bool
}

// RunningContainers lists what runs at the same time in the pod: its containers and its sidecars.
func RunningContainers(pod *corev1.Pod) []Container {
	var list []Container
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

func containerOf(c *corev1.Container) Container {
	out := Container{
		Name:    c.Name,
		Request: kube.Milli(c.Resources.Requests[corev1.ResourceCPU]),
		Limit:   kube.Milli(c.Resources.Limits[corev1.ResourceCPU]),
	}
	for _, p := range c.ResizePolicy {
		if p.ResourceName == corev1.ResourceCPU && p.RestartPolicy == corev1.RestartContainer {
			out.Restarts = true
		}
	}
	return out
}

// InForce is the limit that the kubelet reports for a container; 0: none.
func InForce(pod *corev1.Pod, name string) cpu.Milli {
	for _, list := range [][]corev1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses} {
		for _, s := range list {
			if s.Name == name && s.Resources != nil {
				return kube.Milli(s.Resources.Limits[corev1.ResourceCPU])
			}
		}
	}
	return 0
}

// Limits are the CPU limits in the pod's spec by container.
func Limits(pod *corev1.Pod) map[string]cpu.Milli {
	m := map[string]cpu.Milli{}
	for _, l := range kube.Limits(pod) {
		m[l.Name] = l.CPULimit
	}
	return m
}
