package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mbcas/mbcas/cpu"
)

// PodAllocation is the CPU limit that the market of a node gives to one pod. Its name is the
// pod's UID and its owner is the pod. The controller creates it and writes status; the
// agent of the pod's node writes the decision part of spec.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=pa,categories=mbcas
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
type ContainerLimit struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// CPULimit is the CPU limit in thousandths of a core, such as "500m". A limit of 0 is none.
	// +kubebuilder:validation:XValidation:rule="self != '0m'",message="a CPU limit of 0m is none"
	CPULimit cpu.Milli `json:"cpuLimit"`
}

// BoundBy says what holds a pod's limit where it is.
//
// +kubebuilder:validation:Enum=Nothing;Price;Floor;Ceiling
type BoundBy string

const (
	// BoundByNothing: the pod's demand fits below its limit.
	BoundByNothing BoundBy = "Nothing"
	// BoundByPrice: the pod wants more than its budget buys at the node's price.
	BoundByPrice BoundBy = "Price"
	// BoundByFloor: the pod's budget buys less than its floor, so it holds its floor.
	BoundByFloor BoundBy = "Floor"
	// BoundByCeiling: the pod wants more than its ceiling allows.
	BoundByCeiling BoundBy = "Ceiling"
)

// Decision is one pod's part of one round of its node's market.
type Decision struct {
	// Demand is the CPU that the pod's containers with a limit would use, on average, if nothing held them back.
	Demand cpu.Milli `json:"demand"`
	// Usage is the CPU that its containers with a limit used in the last interval.
	Usage cpu.Milli `json:"usage"`
	// Throttled is the share of CFS periods, in percent, in which the pod was throttled.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Throttled int32 `json:"throttled"`
	// Pressure is the share of time, in percent, in which some task of them waited
	// for a CPU (PSI "some"). Absent where the kernel does not tell.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Pressure *int32 `json:"pressure,omitempty"`
	// MemoryPressure is the share of time, in percent, in which nothing of a container went on because its tasks waited for
	// memory (PSI "full"); that of the worst container. Absent where the agent does not read it (its flag
	// --stall-signals) or the kernel does not tell.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	MemoryPressure *int32 `json:"memoryPressure,omitempty"`
	// IOPressure is the same for IO.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	IOPressure *int32 `json:"ioPressure,omitempty"`
	// Budget is what the pod bids with: the CPU request, in thousandths of a core, of its containers with a
	// limit, times PriorityPercent and FairnessPercent.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000000000
	Budget int64 `json:"budget"`
	// PriorityPercent is the multiplier of the pod's priority, in percent: 100 up to a priority of 1000, 50 below 0, at most 800.
	// +optional
	// +kubebuilder:validation:Minimum=50
	// +kubebuilder:validation:Maximum=800
	PriorityPercent int32 `json:"priorityPercent,omitempty"`
	// FairnessPercent is status.terms.fairnessPercent as this decision used it; absent where that is.
	// +optional
	// +kubebuilder:validation:Minimum=50
	// +kubebuilder:validation:Maximum=200
	FairnessPercent *int32 `json:"fairnessPercent,omitempty"`
	// Price is the node's price in budget per thousandth of a core, with three decimals or, below
	// a tenth, three significant digits. At "1.000" a budget buys just its own size; "0.000" means that CPU is not scarce.
	// +kubebuilder:validation:MaxLength=24
	// +kubebuilder:validation:Pattern=`^[0-9]+\.[0-9]{3,}$`
	Price string `json:"price"`
	// Floor and Ceiling bound the limit.
	Floor   cpu.Milli `json:"floor"`
	Ceiling cpu.Milli `json:"ceiling"`
	// BoundBy says what holds the limit where it is.
	BoundBy BoundBy `json:"boundBy"`
	// FloorsExceedSupply is true when even the floors of the node's pods want more than
	// there is, so that the market has no room.
	// +optional
	FloorsExceedSupply bool `json:"floorsExceedSupply,omitempty"`
	// ObservedAt is when the agent read the counters behind this decision.
	ObservedAt metav1.MicroTime `json:"observedAt"`
}

// Phase is where a PodAllocation stands.
//
// +kubebuilder:validation:Enum=Pending;Applied;Held;Failed;Restored
type Phase string

const (
	// Pending: no decision yet, or a resize is on its way.
	PhasePending Phase = "Pending"
	// Applied: the kubelet reports the desired limits.
	PhaseApplied Phase = "Applied"
	// Held: the desired limits are deliberately not applied; the reason says why.
	PhaseHeld Phase = "Held"
	// Failed: the last resize was refused or did not take effect; it will be tried again.
	PhaseFailed Phase = "Failed"
	// Restored: the pod is back at its declared limits.
	PhaseRestored Phase = "Restored"
)

// Terms are what other parts of the platform (autoscalers, quotas, LimitRanges, disruption budgets, other nodes) ask of
// the decisions about one pod. They only ever bound or weigh a decision: a pod without terms is
// decided by its node alone, and so is one whose terms are not kept up to date because the controller is away.
type Terms struct {
	// Containers bound the limits of single containers.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Containers []ContainerTerms `json:"containers,omitempty"`
	// Ceiling bounds the pod's total limit.
	// +optional
	Ceiling *cpu.Milli `json:"ceiling,omitempty"`
	// FloorBy and CeilingBy name what sets the floors and the ceilings, as Kind/name; several are separated by ", ".
	// +optional
	// +kubebuilder:validation:MaxLength=512
	FloorBy string `json:"floorBy,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=512
	CeilingBy string `json:"ceilingBy,omitempty"`
	// RaiseOnNeed is true where the limit counts against a quota that the namespace's pods share and that is short: the
	// pod is raised only when its need shows.
	// +optional
	RaiseOnNeed bool `json:"raiseOnNeed,omitempty"`
	// NoDecrease is why the pod is not lowered at all, as a reason; absent where it may be.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	NoDecrease string `json:"noDecrease,omitempty"`
	// FairnessPercent is what the pod's budget is multiplied by, in percent, so that equal budgets buy equal CPU on all nodes.
	// +optional
	// +kubebuilder:validation:Minimum=50
	// +kubebuilder:validation:Maximum=200
	FairnessPercent *int32 `json:"fairnessPercent,omitempty"`
	// DemandPercent is what the pod's demand is taken for when the price is made, in percent, as a DemandSignal asks: so
	// much is kept free for it, up to its share. It does not change what the price holds the pod itself to. Where a quota is
	// short, the pod is taken to need so much of it.
	// +optional
	// +kubebuilder:validation:Minimum=100
	// +kubebuilder:validation:Maximum=1000
	DemandPercent *int32 `json:"demandPercent,omitempty"`
	// DemandBy names who asks for DemandPercent, as FloorBy does.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	DemandBy string `json:"demandBy,omitempty"`
}

// ContainerTerms bound the limit of one container.
type ContainerTerms struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// Floor and Ceiling bound the limit; where they contradict each other the floor wins.
	// +optional
	Floor *cpu.Milli `json:"floor,omitempty"`
	// +optional
	Ceiling *cpu.Milli `json:"ceiling,omitempty"`
}

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
	// Terms are what the platform asks of the decisions about this pod. The agent keeps its decisions within
	// them, and the controller applies none that breaks them. Absent where nothing is asked.
	// +optional
	Terms *Terms `json:"terms,omitempty"`
	// AppliedLimits are the limits that the controller last applied, per container. A pod that
	// has others was changed by somebody else.
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
	LastAppliedTime *metav1.MicroTime `json:"lastAppliedTime,omitempty"`
	// LastIncreaseTime is when it last raised one of them.
	// +optional
	LastIncreaseTime *metav1.MicroTime `json:"lastIncreaseTime,omitempty"`
	// LastDecreaseTime is when it last lowered one of them.
	// +optional
	LastDecreaseTime *metav1.MicroTime `json:"lastDecreaseTime,omitempty"`
	// DecreasedFrom are the limits before the last decrease, or before a run of them: should the pod get into trouble
	// right after it, they are given back. Absent once they have been.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	DecreasedFrom []ContainerLimit `json:"decreasedFrom,omitempty"`
	// DecreasedSince is when DecreasedFrom were left: in a run of decreases, the time of the first.
	// +optional
	DecreasedSince *metav1.MicroTime `json:"decreasedSince,omitempty"`
	// HurtTime is when the pod was found not Ready, or restarted, right after a decrease. It is not lowered for a day.
	// +optional
	HurtTime *metav1.MicroTime `json:"hurtTime,omitempty"`
	// ForeignTime is when somebody else's change of the limits was last found.
	// +optional
	ForeignTime *metav1.MicroTime `json:"foreignTime,omitempty"`
	// RetryTime is when a pod whose resize was refused or failed may be tried again.
	// +optional
	RetryTime *metav1.MicroTime `json:"retryTime,omitempty"`
	// Failures counts refused or failed resizes in a row.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Failures int32 `json:"failures,omitempty"`
	// ObservedGeneration is the generation of spec that this status answers to.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions: Ready (the desired limits are in force), Actuated (the last resize took effect).
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
