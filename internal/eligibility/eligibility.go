// Package eligibility decides whether MBCAS may manage a pod at all. It is pure.
//
// What it promises, each a test of the same name:
//   - EveryExclusion: each fact that excludes a pod does so by itself, with its own reason.
//   - StartingPodsAreManaged: a pod that its kubelet is about to start is managed, one that cannot start is not.
//   - UnlimitedContainersDoNotExclude: the resizePolicy of a container without a CPU limit does not matter.
package eligibility

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/kube"
)

// Pod is a pod with what its eligibility depends on beside it.
type Pod struct {
	*corev1.Pod
	Mode   kube.Mode // of its namespace
	System string    // the namespace of MBCAS
	VPA    bool      // a VerticalPodAutoscaler writes the pod's CPU
	// Boost: its limits are raised while it starts, so it is managed as soon as it has a node.
	Boost bool
}

// exclusions are the reasons not to manage a pod, in the order in which they count: from what the
// user chose to what the platform cannot do.
var exclusions = []struct {
	reason  reasons.Reason
	applies func(Pod) bool
}{
	{reasons.SystemNamespace, func(p Pod) bool { return kube.AlwaysUnmanaged(p.Namespace, p.System) }},
	{reasons.NamespaceOff, func(p Pod) bool { return p.Mode == kube.ModeOff }},
	{reasons.OptedOut, func(p Pod) bool {
		return p.Labels[kube.ManagedKey] == "false" || p.Annotations[kube.ManagedKey] == "false"
	}},
	{reasons.InvalidAnnotation, func(p Pod) bool {
		_, err := kube.MaxCPU(p.Pod)
		_, fault := kube.MaxRaise(p.Pod, 0)
		return err != nil || fault != ""
	}},
	{reasons.ManagedByVPA, func(p Pod) bool { return p.VPA }},
	{reasons.NotRunning, func(p Pod) bool {
		bound := p.Boost && p.Spec.NodeName != "" && p.Status.Phase == corev1.PodPending &&
			len(p.Status.ContainerStatuses)+len(p.Status.InitContainerStatuses) == 0
		return p.Status.Phase != corev1.PodRunning && !kube.Starting(p.Pod) && !bound || p.DeletionTimestamp != nil
	}},
	{reasons.StaticPod, func(p Pod) bool { return p.Annotations[corev1.MirrorPodAnnotationKey] != "" }},
	{reasons.WindowsPod, func(p Pod) bool { return p.Spec.OS != nil && p.Spec.OS.Name == corev1.Windows }},
	{reasons.GuaranteedQoS, func(p Pod) bool { return p.Status.QOSClass == corev1.PodQOSGuaranteed }},
	{reasons.BestEffortQoS, func(p Pod) bool { return p.Status.QOSClass == corev1.PodQOSBestEffort }},
	{reasons.PodLevelResources, func(p Pod) bool { return p.Spec.Resources != nil }},
	{reasons.RuntimeClass, func(p Pod) bool { return p.Spec.RuntimeClassName != nil && *p.Spec.RuntimeClassName != "" }},
	{reasons.NoCPULimit, func(p Pod) bool { return len(kube.Limits(p.Pod)) == 0 }},
	{reasons.ResizeRestarts, func(p Pod) bool {
		return slices.ContainsFunc(kube.Containers(p.Pod), func(c kube.Container) bool {
			return c.Limit() > 0 && c.RestartsOnResize()
		})
	}},
	{reasons.NodeCannotResize, statusWithoutResources},
	{reasons.PodTooLarge, func(p Pod) bool { return kube.TooLarge(kube.Limits(p.Pod)) }},
}

// statusWithoutResources says whether a running container's status has no resources, so that the
// kubelet is too old to resize. Like for the API server, the first running container alone counts.
func statusWithoutResources(p Pod) bool {
	for _, c := range kube.Containers(p.Pod) {
		if c.Status != nil && c.Status.State.Running != nil {
			return c.Status.Resources == nil
		}
	}
	return false
}

// Reasons are all reasons not to manage the pod, in the order in which they count.
func Reasons(p Pod) (list []reasons.Reason) {
	for _, e := range exclusions {
		if e.applies(p) {
			list = append(list, e.reason)
		}
	}
	return list
}

// Eligible says whether MBCAS may manage the pod, and if not, the first reason that applies.
func Eligible(p Pod) (reasons.Reason, bool) {
	if list := Reasons(p); len(list) > 0 {
		return list[0], false
	}
	return "", true
}

// Exclusions lists all reasons for which a pod is not managed, in the order in which they count.
func Exclusions() (list []reasons.Reason) {
	for _, e := range exclusions {
		list = append(list, e.reason)
	}
	return list
}
