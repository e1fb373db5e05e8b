package objects

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/kube"
)

// Trimmed objects keep what packages kube and allocation read. A test compares the snapshots of
// whole and trimmed objects.

var keptAnnotations = []string{
	kube.MaxCPUKey,
	kube.ManagedKey,
	corev1.MirrorPodAnnotationKey,
	"kubernetes.io/config.hash",
}

func trimMeta(m metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion,
		Generation: m.Generation, DeletionTimestamp: m.DeletionTimestamp,
	}
}

func trimNode(n *corev1.Node) *corev1.Node {
	out := &corev1.Node{ObjectMeta: trimMeta(n.ObjectMeta)}
	out.Status.Capacity = onlyCPU(n.Status.Capacity)
	out.Status.Allocatable = onlyCPU(n.Status.Allocatable)
	for _, c := range n.Status.Conditions {
		out.Status.Conditions = append(out.Status.Conditions, corev1.NodeCondition{Type: c.Type, Status: c.Status})
	}
	return out
}

// someClaims stands for any claims of devices.
var someClaims = []corev1.PodResourceClaim{{}}

// ownResize stands for any resize by MBCAS.
var ownResize = []metav1.ManagedFieldsEntry{
	{Manager: kube.FieldManager, Operation: metav1.ManagedFieldsOperationUpdate, Subresource: "resize"},
}

func trimPod(p *corev1.Pod) *corev1.Pod {
	out := &corev1.Pod{ObjectMeta: trimMeta(p.ObjectMeta)}
	out.CreationTimestamp = p.CreationTimestamp
	for _, key := range keptAnnotations {
		if v, ok := p.Annotations[key]; ok {
			if out.Annotations == nil {
				out.Annotations = make(map[string]string, 1)
			}
			out.Annotations[key] = v
		}
	}
	if kube.ResizedByMBCAS(p) {
		out.ManagedFields = ownResize
	}
	out.Spec.NodeName, out.Spec.Priority, out.Spec.Overhead = p.Spec.NodeName, p.Spec.Priority, onlyCPU(p.Spec.Overhead)
	if len(p.Spec.ResourceClaims) > 0 {
		out.Spec.ResourceClaims = someClaims
	}
	out.Spec.Containers = trimContainers(p.Spec.Containers)
	out.Spec.InitContainers = trimContainers(p.Spec.InitContainers)
	out.Status.Phase, out.Status.ObservedGeneration = p.Status.Phase, p.Status.ObservedGeneration
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodResizePending || c.Type == corev1.PodResizeInProgress {
			out.Status.Conditions = append(out.Status.Conditions, corev1.PodCondition{Type: c.Type, Status: c.Status})
		}
	}
	out.Status.ContainerStatuses = trimStatuses(p.Status.ContainerStatuses)
	out.Status.InitContainerStatuses = trimStatuses(p.Status.InitContainerStatuses)
	return out
}

func trimContainers(list []corev1.Container) []corev1.Container {
	var out []corev1.Container
	for _, c := range list {
		out = append(out, corev1.Container{
			Name: c.Name, RestartPolicy: c.RestartPolicy,
			Resources: corev1.ResourceRequirements{Limits: onlyCPU(c.Resources.Limits), Requests: onlyCPU(c.Resources.Requests)},
		})
	}
	return out
}

func trimStatuses(list []corev1.ContainerStatus) []corev1.ContainerStatus {
	var out []corev1.ContainerStatus
	for _, s := range list {
		kept := corev1.ContainerStatus{Name: s.Name, ContainerID: s.ContainerID}
		if s.State.Running != nil {
			kept.State.Running = &corev1.ContainerStateRunning{}
		}
		out = append(out, kept)
	}
	return out
}

func onlyCPU(l corev1.ResourceList) corev1.ResourceList {
	q, ok := l[corev1.ResourceCPU]
	if !ok {
		return nil
	}
	return kube.Bounded(corev1.ResourceList{corev1.ResourceCPU: q})
}

// Trim keeps of an object only what a round reads, so that the memory of a full node stays small.
func Trim(o any) (any, error) {
	switch o := o.(type) {
	case *corev1.Node:
		return trimNode(o), nil
	case *corev1.Pod:
		return trimPod(o), nil
	case *v1alpha1.NodeAllocation:
		return &v1alpha1.NodeAllocation{ObjectMeta: trimMeta(o.ObjectMeta), Spec: o.Spec}, nil
	case cache.DeletedFinalStateUnknown:
		return o, nil
	}
	return nil, fmt.Errorf("object of type %T: the agent does not watch this type", o)
}
