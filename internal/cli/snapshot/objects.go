package snapshot

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/mbcas/mbcas/internal/constraints"
	"github.com/mbcas/mbcas/internal/kube"
)

// NamespaceObjects are the objects of one namespace that constrain its pods, as far as they were
// read.
type NamespaceObjects struct {
	constraints.NamespaceObjects
	// Unresolved are the scale targets whose pods are unknown, each with the error.
	Unresolved map[kube.Target]error
}

// ObjectsByNamespace holds the objects of each namespace that has any.
type ObjectsByNamespace map[string]*NamespaceObjects

// Get is the entry of a namespace, which is made if there is none. The caller may add to it.
func (o ObjectsByNamespace) Get(namespace string) *NamespaceObjects {
	if o[namespace] == nil {
		o[namespace] = &NamespaceObjects{
			NamespaceObjects: constraints.NamespaceObjects{Selectors: map[kube.Target]labels.Selector{}},
			Unresolved:       map[kube.Target]error{},
		}
	}
	return o[namespace]
}

// VPA names the VerticalPodAutoscaler that writes the pod's CPU; "" for none.
func (o ObjectsByNamespace) VPA(pod *corev1.Pod) string {
	if o[pod.Namespace] == nil {
		return ""
	}
	name, _ := o[pod.Namespace].VPAFor(pod)
	return name
}
