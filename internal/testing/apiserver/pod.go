package apiserver

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Pod is a pod of the containers, bound to no node.
func Pod(namespace, name string, containers ...corev1.Container) *corev1.Pod {
	p := &corev1.Pod{}
	p.Namespace, p.Name = namespace, name
	p.Spec.Containers = containers
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
