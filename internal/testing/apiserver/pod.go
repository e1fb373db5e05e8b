package apiserver

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
)

// Pod is a pod of the containers, bound to no node.
func Pod(namespace, name string, containers ...corev1.Container) *corev1.Pod {
	p := &corev1.Pod{}
	p.Namespace, p.Name = namespace, name
	p.Spec.Containers = containers
	return p
}

// RunningPod is a burstable pod that runs on node-1, as its kubelet reports it.
func RunningPod(namespace, name string, containers ...corev1.Container) *corev1.Pod {
	p := Pod(namespace, name, containers...)
	p.UID, p.ResourceVersion, p.Generation = types.UID("uid-"+name), "7", 3
	p.Spec.NodeName = "node-1"
	p.Status.Phase, p.Status.QOSClass, p.Status.ObservedGeneration = corev1.PodRunning, corev1.PodQOSBurstable, 3
	for _, c := range containers {
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Ready: true, Resources: c.Resources.DeepCopy(),
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		})
	}
	return p
}

// Container is a container with a CPU request and limit; "" leaves either out.
func Container(name, request, limit string) corev1.Container {
	c := corev1.Container{Name: name, Image: "registry.invalid/app"}
	if request != "" {
		c.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(request)}
	}
	if limit != "" {
		c.Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(limit)}
	}
	return c
}

// Sidecar is such a container that runs beside the others as a restartable init container.
func Sidecar(name, request, limit string) corev1.Container {
	c := Container(name, request, limit)
	always := corev1.ContainerRestartPolicyAlways
	c.RestartPolicy = &always
	return c
}
