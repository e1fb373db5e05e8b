package snapshot

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/mbcas/mbcas/internal/constraints"
	"github.com/mbcas/mbcas/internal/kube"
)

// NamespaceObjects is what surrounds the pods of one namespace, as far as it was read.
type NamespaceObjects struct {
	constraints.Neighbourhood
	// Unresolved are the targets whose pods are not known, each with what stands in the way.
	Unresolved map[kube.Target]error
}

// ObjectsByNamespace are those of each namespace.
type ObjectsByNamespace map[string]*NamespaceObjects

// Get is what surrounds the pods of a namespace; it may be written to.
func (s ObjectsByNamespace) Get(namespace string) *NamespaceObjects {
	if s[namespace] == nil {
		s[namespace] = &NamespaceObjects{
			Neighbourhood: constraints.Neighbourhood{Selectors: map[kube.Target]labels.Selector{}}, Unresolved: map[kube.Target]error{},
		}
	}
	return s[namespace]
}

// VPA names the VerticalPodAutoscaler to which the pod's CPU is left; "" for none.
func (s ObjectsByNamespace) VPA(pod *corev1.Pod) string {
	if s[pod.Namespace] == nil {
		return ""
	}
	name, _ := s[pod.Namespace].VPA(pod)
	return name
}
