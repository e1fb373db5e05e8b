// Package snapshot joins what was read of a cluster into one row per pod. It is pure: it holds no
// client and reads no clock.
package snapshot

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/constraints"
	"github.com/mbcas/mbcas/internal/kube"
)

// Snapshot is what a command reads of a cluster before it prints anything.
type Snapshot struct {
	Pods        []corev1.Pod
	Allocations map[types.UID]*v1alpha1.PodAllocation
	// Constraints are those of each pod that has any, as its agent is told them.
	Constraints map[types.UID]*v1alpha1.Constraints
	// Modes holds the mode of each namespace that has a label for it.
	Modes map[string]kube.Mode
	// Settings are the controller's; nil if they cannot be read.
	Settings kube.Settings
	// System is the namespace that MBCAS runs in.
	System string
	// Removed: neither the controller nor the agents exist. What objects say of pods is from before.
	Removed bool
	// Objects constrain the pods of a namespace; the commands other than doctor read
	// VerticalPodAutoscalers only.
	Objects ObjectsByNamespace
	// Live holds the figures of each node's last round, Markets the nodes, as far as agents
	// answered.
	Live    map[types.UID]*Figures
	Markets []Market
	// Notes say what could not be read.
	Notes []string
}

// Mode is the mode of a namespace; "" if unknown.
func (s *Snapshot) Mode(namespace string) kube.Mode {
	if m, ok := s.Modes[namespace]; ok {
		return m
	}
	return s.Settings.Mode()
}

// Note records what could not be read.
func (s *Snapshot) Note(format string, args ...any) {
	s.Notes = append(s.Notes, fmt.Sprintf(format, args...))
}

// NamespaceObjects are the objects of one namespace that constrain its pods, as far as they were
// read.
type NamespaceObjects struct {
	constraints.NamespaceObjects
	// Unresolved are the scale targets whose pods are unknown, each with the error.
	Unresolved map[kube.Target]error
}

// PodConstraints are the constraints of a pod of that namespace.
type PodConstraints struct {
	Namespace string
	*v1alpha1.Constraints
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
