package kube

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Relevant is the part of a pod, trimmed as by TrimPod, that decisions depend on: without versions,
// addresses, images and times of writes, of which each may change alone.
func Relevant(pod *corev1.Pod) *corev1.Pod {
	part := &corev1.Pod{Spec: pod.Spec}
	part.ObjectMeta = metav1.ObjectMeta{
		UID: pod.UID, Generation: pod.Generation, Labels: pod.Labels, Annotations: pod.Annotations,
		OwnerReferences: pod.OwnerReferences, DeletionTimestamp: pod.DeletionTimestamp,
		DeletionGracePeriodSeconds: pod.DeletionGracePeriodSeconds,
	}
	for _, m := range pod.ManagedFields {
		m.Time = nil
		part.ManagedFields = append(part.ManagedFields, m)
	}
	s := pod.Status
	part.Status = corev1.PodStatus{
		ObservedGeneration: s.ObservedGeneration, Phase: s.Phase, QOSClass: s.QOSClass, Resize: s.Resize, Resources: s.Resources,
		ContainerStatuses: relevantStatuses(s.ContainerStatuses), InitContainerStatuses: relevantStatuses(s.InitContainerStatuses),
	}
	for _, c := range s.Conditions {
		switch c.Type {
		case corev1.PodReady, corev1.DisruptionTarget, corev1.PodResizePending, corev1.PodResizeInProgress:
			c.LastProbeTime = metav1.Time{}
			part.Status.Conditions = append(part.Status.Conditions, c)
		}
	}
	return part
}

func relevantStatuses(list []corev1.ContainerStatus) (parts []corev1.ContainerStatus) {
	for _, s := range list {
		parts = append(parts, corev1.ContainerStatus{
			Name: s.Name, State: s.State, LastTerminationState: s.LastTerminationState, RestartCount: s.RestartCount,
			Started: s.Started, AllocatedResources: s.AllocatedResources, Resources: s.Resources,
		})
	}
	return parts
}
