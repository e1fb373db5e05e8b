package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/market"
)

// PodAllocation is the CPU limit that the market of a node gives to one pod. Its name is the
// pod's UID and its owner is the pod. The controller creates it and writes status; the
// agent of the pod's node writes the decision part of spec.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=palloc,categories=mbcas
// +kubebuilder:selectablefield:JSONPath=`.spec.nodeName`
// +kubebuilder:printcolumn:name="Pod",type=string,JSONPath=`.spec.podRef.name`
// +kubebuilder:printcolumn:name="Desired",type=string,JSONPath=`.spec.desiredCPULimit`
// +kubebuilder:printcolumn:name="Applied",type=string,JSONPath=`.status.appliedCPULimit`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.reason`
// +kubebuilder:printcolumn:name="Bound-By",type=string,JSONPath=`.spec.decision.boundBy`
// +kubebuilder:printcolumn:name="Price",type=string,JSONPath=`.spec.decision.price`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.spec.nodeName`,priority=1
// +kubebuilder:printcolumn:name="Demand",type=string,JSONPath=`.spec.decision.demand`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name == self.spec.podRef.uid",message="metadata.name must equal spec.podRef.uid"
type PodAllocation struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec PodAllocationSpec `json:"spec"`
	// +optional
	Status PodAllocationStatus `json:"status,omitzero"`
}

// PodAllocationList is a list of PodAllocations.
//
// +kubebuilder:object:root=true
type PodAllocationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PodAllocation `json:"items"`
}

// PodAllocationSpec says which pod is meant and what the market decided for it.
//
// +kubebuilder:validation:XValidation:rule="self.nodeName == oldSelf.nodeName",message="nodeName is immutable"
// +kubebuilder:validation:XValidation:rule="self.podRef == oldSelf.podRef",message="podRef is immutable"
// +kubebuilder:validation:XValidation:rule="has(self.desiredCPULimit) == has(self.decision) && has(self.desiredCPULimit) == has(self.containers)",message="desiredCPULimit, containers and decision are written together"
// +kubebuilder:validation:XValidation:rule="!has(self.containers) || self.containers.all(c, int(c.cpuLimit.replace('m', \"\")) >= 10)",message="containers[].cpuLimit must be at least 10m"
// +kubebuilder:validation:XValidation:rule="!has(self.containers) || !has(self.desiredCPULimit) || self.containers.map(c, int(c.cpuLimit.replace('m', \"\"))).sum() == int(self.desiredCPULimit.replace('m', \"\"))",message="desiredCPULimit must be the sum of containers[].cpuLimit"
// +kubebuilder:validation:XValidation:rule="!has(self.decision) || !has(self.desiredCPULimit) || int(self.desiredCPULimit.replace('m', \"\")) >= int(self.decision.floor.replace('m', \"\"))",message="desiredCPULimit must not be below decision.floor"
// +kubebuilder:validation:XValidation:rule="!has(self.decision) || !has(self.desiredCPULimit) || int(self.desiredCPULimit.replace('m', \"\")) <= int(self.decision.ceiling.replace('m', \"\"))",message="desiredCPULimit must not be above decision.ceiling"
type PodAllocationSpec struct {
	// NodeName is the node that the pod runs on.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	NodeName string `json:"nodeName"`

	// PodRef is the pod, in the namespace of this object.
	PodRef PodRef `json:"podRef"`

	// DesiredCPULimit is the pod's total CPU limit: the sum of containers[].cpuLimit.
	// Absent until the agent has decided for the first time.
	// +optional
	DesiredCPULimit *cpu.Milli `json:"desiredCPULimit,omitempty"`

	// Containers holds the limit of each container that has one.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Containers []ContainerLimit `json:"containers,omitempty"`

	// Decision is what led to DesiredCPULimit.
	// +optional
	Decision *Decision `json:"decision,omitempty"`
}

// PodRef names one pod for good: a later pod of the same name has another UID.
//
// +kubebuilder:object:generate=false
type PodRef struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	UID types.UID `json:"uid"`
}

// ContainerLimit is the CPU limit of one container.
//
// +kubebuilder:object:generate=false
type ContainerLimit struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// CPULimit is the CPU limit in thousandths of a core, such as "500m". A limit of 0 is none.
	// +kubebuilder:validation:XValidation:rule="self != '0m'",message="a CPU limit of 0m is none"
	CPULimit cpu.Milli `json:"cpuLimit"`
}

// BoundBy says what determines a pod's limit.
//
// +kubebuilder:validation:Enum=Nothing;Price;Floor;Ceiling
type BoundBy string

const (
	// BoundByNothing: the demand is below what the budget buys. The pod is uncapped.
	BoundByNothing BoundBy = "Nothing"
	// BoundByPrice: the demand exceeds what the budget buys at the node's price. The pod is capped.
	BoundByPrice BoundBy = "Price"
	// BoundByFloor: the budget buys less than the floor, so the limit is the floor.
	BoundByFloor BoundBy = "Floor"
	// BoundByCeiling: the demand exceeds the ceiling, so the limit is the ceiling.
	BoundByCeiling BoundBy = "Ceiling"
)

// Decision is one pod's part of one round of its node's market.
type Decision struct {
	// Demand is the estimated CPU that the pod's containers with a limit would use without one.
	Demand cpu.Milli `json:"demand"`
	// Usage is the CPU that these containers used in the last interval.
	Usage cpu.Milli `json:"usage"`
	// ThrottledPercent is the share of CFS periods in which the pod was throttled.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	ThrottledPercent int32 `json:"throttledPercent"`
	// CPUPressurePercent is the share of time in which a task of these containers waited for a CPU
	// (PSI "some"). Absent where the kernel does not report it.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	CPUPressurePercent *int32 `json:"cpuPressurePercent,omitempty"`
	// MemoryPressurePercent is the share of time in which all tasks of a container waited for memory
	// (PSI "full"), of the worst container. Absent unless the agent reads it (flag --memory-io-pressure).
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	MemoryPressurePercent *int32 `json:"memoryPressurePercent,omitempty"`
	// IOPressurePercent is the same for IO.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	IOPressurePercent *int32 `json:"ioPressurePercent,omitempty"`
	// Budget is the CPU request, in thousandths of a core, of the containers with a limit, times
	// PriorityPercent and CoordinationPercent.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000000000
	Budget int64 `json:"budget"`
	// PriorityPercent is the multiplier of the pod's priority: 100 up to a priority of 1000, 50 below 0,
	// at most 800.
	// +optional
	// +kubebuilder:validation:Minimum=50
	// +kubebuilder:validation:Maximum=800
	PriorityPercent int32 `json:"priorityPercent,omitempty"`
	// CoordinationPercent is that of the pod's constraints, in the NodeAllocation, as this decision used it.
	// +optional
	// +kubebuilder:validation:Minimum=50
	// +kubebuilder:validation:Maximum=200
	CoordinationPercent *int32 `json:"coordinationPercent,omitempty"`
	// Price is the node's price in budget per thousandth of a core, with three decimals or, below a
	// tenth, three significant digits. At "1.000" a budget buys its own size; "0.000" means that CPU
	// is not scarce.
	Price market.Price `json:"price"`
	// Floor and Ceiling bound the limit.
	Floor   cpu.Milli `json:"floor"`
	Ceiling cpu.Milli `json:"ceiling"`
	// BoundBy says what determines the limit.
	BoundBy BoundBy `json:"boundBy"`
	// FloorsExceedSupply is true when the floors of the node's pods together exceed the supply.
	// +optional
	FloorsExceedSupply bool `json:"floorsExceedSupply,omitempty"`
	// RevokedForSeconds is for how long after ObservedAt the pod is not raised above its declared limit, as a raise was
	// revoked; 0: none was.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=300
	RevokedForSeconds int32 `json:"revokedForSeconds"`
	// ObservedAt is when the agent read the counters behind this decision, on the node's clock.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}(Z|[+-][0-9]{2}:[0-9]{2})$`
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="timestamp(self) > timestamp('2000-01-01T00:00:00Z')",message="observedAt is a date after the year 2000"
	ObservedAt metav1.MicroTime `json:"observedAt"`
}

// Phase summarises a PodAllocation.
//
// +kubebuilder:validation:Enum=Pending;Applied;NotApplied;Failed;Restored
type Phase string

const (
	// PhasePending: no decision yet, or a resize is in flight.
	PhasePending Phase = "Pending"
	// PhaseApplied: the kubelet reports the desired limits.
	PhaseApplied Phase = "Applied"
	// PhaseNotApplied: the desired limits are deliberately not applied; the reason says why.
	PhaseNotApplied Phase = "NotApplied"
	// PhaseFailed: the last resize was refused or did not take effect; it will be tried again.
	PhaseFailed Phase = "Failed"
	// PhaseRestored: the pod has its declared limits again.
	PhaseRestored Phase = "Restored"
)

// PodAllocationStatus says what the controller did with the decision.
type PodAllocationStatus struct {
	// Phase is where the allocation stands.
	// +optional
	Phase Phase `json:"phase,omitempty"`
	// Reason is one CamelCase word for Phase; the documentation lists all of them.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason,omitempty"`
	// Message is Reason in a sentence.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
	// DeclaredLimits are the limits that the pod's owner declared. They are recorded before the
	// first resize and are what a restore returns to.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	DeclaredLimits []ContainerLimit `json:"declaredLimits,omitempty"`
	// AppliedLimits are the limits that the controller last applied, per container. A pod with
	// other limits was changed by another client.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	AppliedLimits []ContainerLimit `json:"appliedLimits,omitempty"`
	// AppliedCPULimit is the pod's total CPU limit as last applied.
	// +optional
	AppliedCPULimit *cpu.Milli `json:"appliedCPULimit,omitempty"`
	// LastAppliedTime is when the controller last changed the pod's limits.
	// +optional
	LastAppliedTime metav1.MicroTime `json:"lastAppliedTime,omitzero"`
	// LastIncreaseTime is when it last raised one of them.
	// +optional
	LastIncreaseTime metav1.MicroTime `json:"lastIncreaseTime,omitzero"`
	// LastDecreaseTime is when it last lowered one of them.
	// +optional
	LastDecreaseTime metav1.MicroTime `json:"lastDecreaseTime,omitzero"`
	// LastExternalChangeTime is when the controller last found that another client had changed the limits.
	// +optional
	LastExternalChangeTime metav1.MicroTime `json:"lastExternalChangeTime,omitzero"`
	// Rollback is what the controller needs to take a harmful decrease back.
	// +optional
	Rollback RollbackStatus `json:"rollback,omitzero"`
	// Retry is the back-off after refused or failed resizes.
	// +optional
	Retry RetryStatus `json:"retry,omitzero"`
	// ObservedGeneration is the generation of spec that this status answers to.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions: Ready (the desired limits are in force), Actuated (the last resize took effect),
	// StartupBoostValid (False while the pod's start-up boost cannot be read, else absent).
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ConditionStartupBoostValid is the condition of a PodAllocation whose pod has a start-up boost that cannot be read.
const ConditionStartupBoostValid = "StartupBoostValid"

// RollbackStatus is the memory of a run of decreases and of the harm that the last harmful one did.
type RollbackStatus struct {
	// Limits are the limits before the last decrease, or before a run of them, up to the declared ones. If the pod
	// becomes not Ready or restarts within the rollback window, the controller restores them. Absent once restored.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Limits []ContainerLimit `json:"limits,omitempty"`
	// WindowStart is the time of the decrease from Limits: in a run of decreases, of the first.
	// +optional
	WindowStart metav1.MicroTime `json:"windowStart,omitzero"`
	// LastHarmfulDecreaseTime is when the controller last found that a decrease had harmed the pod. The
	// pod keeps at least its declared limit for a day after it (flag --rollback-holdoff).
	// +optional
	LastHarmfulDecreaseTime metav1.MicroTime `json:"lastHarmfulDecreaseTime,omitzero"`
}

// RetryStatus is the back-off of one pod.
type RetryStatus struct {
	// Time is when the controller may try again.
	// +optional
	Time metav1.MicroTime `json:"time,omitzero"`
	// Failures counts refused or failed resizes in a row.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Failures int32 `json:"failures,omitempty"`
}
