package kube

import (
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/mbcas/mbcas/api/v1alpha1"
)

// LimitsText is limits in words: app=500m, proxy=100m.
func LimitsText(limits []v1alpha1.ContainerLimit) string {
	parts := make([]string, len(limits))
	for i, l := range limits {
		parts[i] = l.Name + "=" + l.CPULimit.String()
	}
	return strings.Join(parts, ", ")
}

// Ended says whether the pod has ended or is being deleted, so that its limits no longer matter.
func Ended(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// FullySpecified says whether every container has each request and limit for which a LimitRange can
// give a default.
func FullySpecified(pod *corev1.Pod) bool {
	for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for _, c := range list {
			for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
				_, request := c.Resources.Requests[name]
				_, limit := c.Resources.Limits[name]
				if !request || !limit {
					return false
				}
			}
		}
	}
	return true
}

// NotServed says whether an error means that the API server does not serve the kind itself, because
// its CRD is missing.
func NotServed(err error) bool {
	if meta.IsNoMatchError(err) {
		return true
	}
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	d := status.Status().Details
	return d == nil || d.Kind != "namespaces"
}
