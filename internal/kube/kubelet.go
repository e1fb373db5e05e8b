package kube

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	utilversion "k8s.io/apimachinery/pkg/util/version"

	"github.com/mbcas/mbcas/api/v1alpha1"
)

// LatestResizeWins says whether the kubelet of a node takes resizes from a queue, in which the latest of a pod
// replaces an earlier one. Before 1.34 the pod's own sync takes them, and reports do not tell two apart.
func LatestResizeWins(n *corev1.Node) bool {
	v, err := utilversion.ParseGeneric(n.Status.NodeInfo.KubeletVersion)
	return err == nil && v.AtLeast(utilversion.MajorMinor(1, 34))
}

// podLevel is the pod itself as a container, where it has a CPU limit of its own: its kubelet gives that limit to the
// pod's cgroup, and to the cgroup of each container without one. shared: no container has one.
func podLevel(pod *corev1.Pod) (whole Container, shared, ok bool) {
	if pod.Spec.Resources == nil || Milli(pod.Spec.Resources.Limits[corev1.ResourceCPU]) <= 0 {
		return Container{}, false, false
	}
	spec := &corev1.Container{Name: v1alpha1.PodLevel, Resources: *pod.Spec.Resources}
	status := &corev1.ContainerStatus{Name: v1alpha1.PodLevel, Resources: pod.Status.Resources}
	shared = !slices.ContainsFunc(slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers), hasCPULimit)
	for _, c := range EachContainer(pod) {
		spec.ResizePolicy = append(spec.ResizePolicy, c.Spec.ResizePolicy...)
		if c.Status == nil || c.Status.State.Running == nil || status.State.Running != nil {
			continue
		}
		if status.State.Running = c.Status.State.Running; c.RuntimeID() != "" { // else it was trimmed
			status.ContainerID = "pod://" + CgroupUID(pod)
		}
	}
	if !shared { // the containers have the requests
		spec.Resources.Requests = nil
	}
	return Container{spec, status}, shared, true
}

func hasCPULimit(c corev1.Container) bool { return Milli(c.Resources.Limits[corev1.ResourceCPU]) > 0 }

// HasPodLimit says whether the pod has a CPU limit of its own, beside those of its containers.
func HasPodLimit(pod *corev1.Pod) bool {
	_, _, ok := podLevel(pod)
	return ok
}

// SharesLimit says whether all containers of a pod share its own CPU limit, and none has another: the pod is one container
// to the market, v1alpha1.PodLevel.
func SharesLimit(pod *corev1.Pod) bool {
	_, shared, ok := podLevel(pod)
	return ok && shared
}

// PodLevelResizes says whether the pod's own resources can be changed in place: its kubelet reports those in force, and
// the API server stores that report. Both do so with the feature gate InPlacePodLevelResourcesVerticalScaling alone, which is
// on by default from Kubernetes 1.36 (pkg/kubelet/kubelet_pods.go and pkg/api/pod/util.go of Kubernetes).
func PodLevelResizes(pod *corev1.Pod) bool { return pod.Status.Resources != nil }
