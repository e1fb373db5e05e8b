// Package v1alpha1 holds PodAllocation, the record of what a pod's CPU limits should be, why, and what
// came of it; NodeAllocation, by which the controller tells the agent of a node what to decide about;
// and DemandSignal, by which a metric has CPU kept free for pods.
//
// +kubebuilder:object:generate=true
// +groupName=allocation.mbcas.io
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of the types in this package.
var GroupVersion = schema.GroupVersion{Group: "allocation.mbcas.io", Version: "v1alpha1"}

// AddToScheme registers the types in this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&PodAllocation{}, &PodAllocationList{}, &NodeAllocation{}, &NodeAllocationList{}, &DemandSignal{}, &DemandSignalList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
