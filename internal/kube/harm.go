package kube

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// podCompleted is the kubelet's reason for a pod that is not Ready as all its containers have done their work
// (PodCompleted in pkg/kubelet/status of Kubernetes).
const podCompleted = "PodCompleted"

// UnreadySince is when the kubelet found a pod not Ready; zero where it is Ready, and where
// something else than trouble of the pod made it not Ready.
//
// The kubelet always gives a reason for a pod that is not. A condition without one is of the node
// controller, which sets all pods of an unreachable node to not Ready and changes nothing but the
// time (MarkPodsNotReady in pkg/controller/util/node of Kubernetes). It may be seen before the node
// is. A kubelet that comes back gives its own reason and keeps that time.
//
// A container that has done its work, such as that of a Job, makes its pod not Ready, and does not make it Ready again.
func UnreadySince(pod *corev1.Pod) time.Time {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionFalse && c.Reason != "" &&
			c.Reason != podCompleted && !completedBefore(pod, c.LastTransitionTime) {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// completedBefore says whether a container had done its work by then, and was not started again. The kubelet dates in
// whole seconds. Init containers end so as a rule.
func completedBefore(pod *corev1.Pod, at metav1.Time) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		end := s.State.Terminated
		return end != nil && end.ExitCode == 0 && !end.FinishedAt.After(at.Time)
	})
}

// FailedAt are the times at which a container ended with another exit code than 0, as far as the
// kubelet reports them. One that ended with 0 has done its work; where it is started again, its pod
// is not Ready meanwhile.
func FailedAt(s *corev1.ContainerStatus) (at []time.Time) {
	for _, end := range []*corev1.ContainerStateTerminated{s.State.Terminated, s.LastTerminationState.Terminated} {
		if end != nil && end.ExitCode != 0 {
			at = append(at, end.FinishedAt.Time)
		}
	}
	return at
}
