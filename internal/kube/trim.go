package kube

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mbcas/mbcas/api/v1alpha1"
)

// Trim drops what decisions do not read. A tombstone stays as it is: the object in it was trimmed
// when it came.
func Trim(object any) (any, error) {
	switch o := object.(type) {
	case *corev1.Pod:
		TrimPod(o)
	case *v1alpha1.PodAllocation:
		o.ManagedFields, o.OwnerReferences = nil, nil
	case *corev1.Node:
		o.ManagedFields, o.Status.Images, o.Annotations = nil, nil, nil
	case metav1.Object:
		o.SetManagedFields(nil)
	}
	return object, nil
}

// keptAnnotations are those that decisions read.
var keptAnnotations = []string{ManagedKey, MaxCPUKey, MaxRaiseKey, StartupBoostKey, corev1.MirrorPodAnnotationKey}

// TrimPod keeps the resources of a pod's containers, its state, and which manager changed its limits.
// It may be applied twice.
func TrimPod(pod *corev1.Pod) {
	m := &pod.ObjectMeta
	var annotations map[string]string
	for _, key := range keptAnnotations {
		if v, ok := m.Annotations[key]; ok {
			if annotations == nil {
				annotations = make(map[string]string, 1)
			}
			annotations[key] = v
		}
	}
	pod.ObjectMeta = metav1.ObjectMeta{
		Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion, Generation: m.Generation,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp,
		DeletionGracePeriodSeconds: m.DeletionGracePeriodSeconds, Labels: m.Labels, Annotations: annotations,
		OwnerReferences: controllerOnly(m.OwnerReferences), ManagedFields: TrimManagedFields(m.ManagedFields),
	}
	s := pod.Spec
	pod.Spec = corev1.PodSpec{
		Containers: trimContainers(s.Containers), InitContainers: trimContainers(s.InitContainers),
		RestartPolicy: s.RestartPolicy, NodeName: s.NodeName, Tolerations: s.Tolerations, OS: s.OS, Resources: s.Resources,
		RuntimeClassName: s.RuntimeClassName, Overhead: Bounded(s.Overhead), Priority: s.Priority,
		PriorityClassName: s.PriorityClassName, ActiveDeadlineSeconds: s.ActiveDeadlineSeconds,
		NodeSelector: trimNodeSelector(s.NodeSelector), Affinity: TrimAffinity(s.Affinity),
	}
	if len(s.ResourceClaims) > 0 {
		pod.Spec.ResourceClaims = someClaims
	}
	if len(s.TopologySpreadConstraints) > 0 {
		pod.Spec.TopologySpreadConstraints = someSpread
	}
	pod.Status = corev1.PodStatus{
		Phase: pod.Status.Phase, QOSClass: pod.Status.QOSClass, ObservedGeneration: pod.Status.ObservedGeneration,
		Conditions:            trimConditions(pod.Status.Conditions),
		ContainerStatuses:     trimStatuses(pod.Status.ContainerStatuses, pod.Status.Phase),
		InitContainerStatuses: trimStatuses(pod.Status.InitContainerStatuses, pod.Status.Phase),
	}
}

// someClaims stands for any claims of devices: PodQuota asks whether there are some.
var someClaims = []corev1.PodResourceClaim{{}}

// someSpread stands for any topology spread constraints: TopologySpread asks whether there are some.
var someSpread = []corev1.TopologySpreadConstraint{{}}

// controllerOnly keeps the owner that controls the pod.
func controllerOnly(owners []metav1.OwnerReference) []metav1.OwnerReference {
	for i := range owners {
		if o := &owners[i]; o.Controller != nil && *o.Controller {
			return []metav1.OwnerReference{
				{APIVersion: o.APIVersion, Kind: o.Kind, Name: o.Name, UID: o.UID, Controller: o.Controller},
			}
		}
	}
	return nil
}

// trimNodeSelector keeps what FixedToNode reads.
func trimNodeSelector(selector map[string]string) map[string]string {
	if host, named := selector[corev1.LabelHostname]; named {
		return map[string]string{corev1.LabelHostname: host}
	}
	return nil
}

func trimContainers(list []corev1.Container) []corev1.Container {
	if list == nil {
		return nil
	}
	kept := make([]corev1.Container, len(list))
	for i, c := range list {
		kept[i] = corev1.Container{
			Name: c.Name, Resources: c.Resources, ResizePolicy: c.ResizePolicy, RestartPolicy: c.RestartPolicy,
			RestartPolicyRules: c.RestartPolicyRules,
		}
		kept[i].Resources.Limits, kept[i].Resources.Requests = Bounded(c.Resources.Limits), Bounded(c.Resources.Requests)
	}
	return kept
}

// trimConditions keeps the conditions that say whether the pod is ready or on its way out, and what
// its kubelet says of a resize.
func trimConditions(list []corev1.PodCondition) []corev1.PodCondition {
	kept := make([]corev1.PodCondition, 0, 1)
	for _, c := range list {
		k := corev1.PodCondition{Type: c.Type, Status: c.Status, Reason: c.Reason}
		switch c.Type {
		case corev1.PodReady, corev1.DisruptionTarget:
			k.LastTransitionTime = c.LastTransitionTime
		case corev1.PodResizePending, corev1.PodResizeInProgress:
			k.ObservedGeneration, k.LastTransitionTime, k.Message = c.ObservedGeneration, c.LastTransitionTime, c.Message
		default:
			continue
		}
		kept = append(kept, k)
	}
	if len(kept) == 0 {
		return nil
	}
	return slices.Clip(kept)
}

// trimStatuses keeps starts, ends and restarts of containers, the CPU limit in force, that a start failed and, before
// the pod runs, what they wait for.
func trimStatuses(list []corev1.ContainerStatus, phase corev1.PodPhase) []corev1.ContainerStatus {
	if list == nil {
		return nil
	}
	kept := make([]corev1.ContainerStatus, len(list))
	for i := range list {
		s := &list[i]
		k := corev1.ContainerStatus{Name: s.Name, RestartCount: s.RestartCount, State: trimState(s.State), Started: shared(s.Started)}
		k.LastTerminationState.Terminated = trimEnd(s.LastTerminationState.Terminated)
		if w := s.State.Waiting; w != nil && (phase == corev1.PodPending || Container{Status: s}.FailedStart()) {
			k.State.Waiting = &corev1.ContainerStateWaiting{Reason: w.Reason}
		}
		if s.Resources != nil {
			k.Resources = &corev1.ResourceRequirements{Limits: s.Resources.Limits}
		}
		kept[i] = k
	}
	return kept
}

// yes and no are what started containers of all pods share.
var yes, no = true, false

func shared(b *bool) *bool {
	switch {
	case b == nil:
		return nil
	case *b:
		return &yes
	}
	return &no
}

func trimState(s corev1.ContainerState) corev1.ContainerState {
	return corev1.ContainerState{Running: s.Running, Terminated: trimEnd(s.Terminated)}
}

func trimEnd(end *corev1.ContainerStateTerminated) *corev1.ContainerStateTerminated {
	if end == nil {
		return nil
	}
	kept := &corev1.ContainerStateTerminated{FinishedAt: end.FinishedAt, ExitCode: end.ExitCode}
	if end.Reason == startError {
		kept.Reason = startError
	}
	return kept
}
