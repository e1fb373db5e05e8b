package controller

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/internal/kube"
)

// CacheOptions keeps in memory what decisions need of a cluster's objects, and no more.
func CacheOptions(namespace string) cache.Options {
	own := map[string]cache.Config{namespace: {}}
	return cache.Options{
		ReaderFailOnMissingInformer: false,
		DefaultTransform:            dropWriters,
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}:           {Transform: trimPod},
			&corev1.Node{}:          {Transform: trimNode},
			&corev1.ConfigMap{}:     {Namespaces: own},
			&coordinationv1.Lease{}: {Namespaces: own},
		},
	}
}

// dropWriters removes managedFields.
func dropWriters(object any) (any, error) {
	if m, err := meta.Accessor(object); err == nil {
		m.SetManagedFields(nil)
	}
	return object, nil
}

// trimPod keeps the resources of a pod's containers, its state, and which manager changed its
// limits.
func trimPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil // a tombstone: the pod in it was trimmed when it came
	}
	trim(pod)
	return pod, nil
}

// trimmed is a copy of the pod as the cache would keep it.
func trimmed(pod *corev1.Pod) *corev1.Pod {
	pod = pod.DeepCopy()
	trim(pod)
	return pod
}

func trim(pod *corev1.Pod) {
	pod.ManagedFields = kube.TrimManagedFields(pod.ManagedFields)
	annotations := map[string]string{}
	for _, key := range []string{kube.ManagedKey, kube.MaxCPUKey, corev1.MirrorPodAnnotationKey} {
		if v, ok := pod.Annotations[key]; ok {
			annotations[key] = v
		}
	}
	pod.Annotations = annotations
	s := &pod.Spec
	for _, list := range [][]corev1.Container{s.Containers, s.InitContainers} {
		for i, c := range list {
			list[i] = corev1.Container{Name: c.Name, Resources: c.Resources, ResizePolicy: c.ResizePolicy, RestartPolicy: c.RestartPolicy}
		}
	}
	pod.Spec = corev1.PodSpec{
		Containers: s.Containers, InitContainers: s.InitContainers, NodeName: s.NodeName, Tolerations: s.Tolerations,
		OS: s.OS, Resources: s.Resources, RuntimeClassName: s.RuntimeClassName, Overhead: s.Overhead,
		Priority: s.Priority, PriorityClassName: s.PriorityClassName, ActiveDeadlineSeconds: s.ActiveDeadlineSeconds,
		NodeSelector: s.NodeSelector, Affinity: kube.TrimAffinity(s.Affinity), TopologySpreadConstraints: s.TopologySpreadConstraints,
	}
}

// trimNode drops what is long: the list of images.
func trimNode(object any) (any, error) {
	if n, ok := object.(*corev1.Node); ok {
		n.ManagedFields, n.Status.Images, n.Annotations = nil, nil, nil
	}
	return object, nil
}
