package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mbcas/mbcas/cpu"
)

// NodeAllocation is what the controller tells the agent of one node: which of its pods are managed,
// and within which constraints to decide on them. Its name is that of the node, and the node owns it.
// The controller derives all of it from other objects and can rebuild it at any time.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=nalloc,categories=mbcas
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type NodeAllocation struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec NodeAllocationSpec `json:"spec,omitzero"`
}

// NodeAllocationList is a list of NodeAllocations.
//
// +kubebuilder:object:root=true
type NodeAllocationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodeAllocation `json:"items"`
}

// MaxNodePods is how many pods a NodeAllocation names at most. Pods beyond that are not published.
const MaxNodePods = 1024

// MaxContainers is how many containers of a pod have limits in an object of MBCAS at most. A pod with more is unmanaged.
const MaxContainers = 64

// NodeAllocationSpec holds the managed pods of the node.
type NodeAllocationSpec struct {
	// Pods are the managed pods of the node, in the order of their UIDs. The list is written as a whole,
	// so that the API server need not track the fields of each entry, which would double its size.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	Pods []NodePod `json:"pods,omitempty"`
}

// NodePod is what the agent is told about one pod.
type NodePod struct {
	// UID is the pod's, which is also the name of its PodAllocation.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	UID types.UID `json:"uid"`
	// AllocationUID is the UID of its PodAllocation, which changes when that is created again.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	AllocationUID types.UID `json:"allocationUID"`
	// DeclaredLimits are the limits that the pod's owner declared, as its PodAllocation records them.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	DeclaredLimits []ContainerLimit `json:"declaredLimits"`
	// Constraints are what other Kubernetes objects demand of the decisions about this pod. The agent
	// decides within them, and the controller applies no limit outside of them.
	// +optional
	Constraints *Constraints `json:"constraints,omitempty"`
}

// Constraints are what other Kubernetes objects (HPAs, ResourceQuotas, LimitRanges, PodDisruptionBudgets,
// DemandSignals, the Namespace) and the coordinator demand of the decisions about one pod. A pod
// without constraints is decided by its node alone.
type Constraints struct {
	// Containers bound the limits of single containers.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Containers []ContainerConstraints `json:"containers,omitempty"`
	// Ceiling bounds the pod's total limit.
	// +optional
	Ceiling *cpu.Milli `json:"ceiling,omitempty"`
	// MaxRaise is the multiple of its declared limit that the limit of a container reaches at most; absent: 8.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	MaxRaise *int32 `json:"maxRaise,omitempty"`
	// FloorBy names the objects that set the floors, as Kind/name, separated by ", ".
	// +optional
	// +kubebuilder:validation:MaxLength=512
	FloorBy string `json:"floorBy,omitempty"`
	// CeilingBy names the objects that set the ceilings, in the same form.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	CeilingBy string `json:"ceilingBy,omitempty"`
	// IncreaseOnNeed is true where a ResourceQuota that counts the pod is short: its limit rises only
	// when the pod is throttled or uses more than half of it.
	// +optional
	IncreaseOnNeed bool `json:"increaseOnNeed,omitempty"`
	// NoDecrease is the reason why the pod is not lowered; absent where it may be.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	NoDecrease string `json:"noDecrease,omitempty"`
	// CoordinationPercent multiplies the pod's budget, so that equal budgets buy equal CPU on all nodes.
	// +optional
	// +kubebuilder:validation:Minimum=50
	// +kubebuilder:validation:Maximum=200
	CoordinationPercent *int32 `json:"coordinationPercent,omitempty"`
	// DemandPercent multiplies the pod's demand, up to its share, when the market is cleared: a
	// DemandSignal keeps that much CPU free for it. The pod's own cap does not depend on it.
	// +optional
	// +kubebuilder:validation:Minimum=100
	// +kubebuilder:validation:Maximum=1000
	DemandPercent *int32 `json:"demandPercent,omitempty"`
	// DemandBy names the DemandSignals that set DemandPercent, in the form of FloorBy.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	DemandBy string `json:"demandBy,omitempty"`
}

// ContainerConstraints bound the limit of one container.
type ContainerConstraints struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// Floor is the lowest limit. It prevails over a lower Ceiling.
	// +optional
	Floor *cpu.Milli `json:"floor,omitempty"`
	// Ceiling is the highest limit.
	// +optional
	Ceiling *cpu.Milli `json:"ceiling,omitempty"`
}
