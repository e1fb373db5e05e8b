package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DemandSignal lets a metric that should be low, such as a latency, have CPU kept free for the pods of a workload: while it is
// above its target the market of each node takes their demand for more than it is. Users write it; the controller writes status.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=dsig,categories=mbcas
// +kubebuilder:printcolumn:name="Kind",type=string,JSONPath=`.spec.targetRef.kind`
// +kubebuilder:printcolumn:name="Target",type=string,JSONPath=`.spec.targetRef.name`
// +kubebuilder:printcolumn:name="Current",type=string,JSONPath=`.status.current`
// +kubebuilder:printcolumn:name="Percent",type=integer,JSONPath=`.status.demandPercent`
// +kubebuilder:printcolumn:name="Available",type=string,JSONPath=`.status.conditions[?(@.type=="Available")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Available")].reason`
// +kubebuilder:printcolumn:name="Min",type=integer,JSONPath=`.spec.minPercent`,priority=1
// +kubebuilder:printcolumn:name="Max",type=integer,JSONPath=`.spec.maxPercent`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Available")].message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type DemandSignal struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec DemandSignalSpec `json:"spec"`
	// +optional
	Status DemandSignalStatus `json:"status,omitzero"`
}

// DemandSignalList is a list of DemandSignals.
//
// +kubebuilder:object:root=true
type DemandSignalList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []DemandSignal `json:"items"`
}

// DemandSignalSpec says which metric speaks for which pods, and how much it may ask for.
//
// +kubebuilder:validation:XValidation:rule="self.minPercent <= self.maxPercent",message="minPercent must not be above maxPercent"
type DemandSignalSpec struct {
	// TargetRef is the workload whose pods the signal is for, in the namespace of this object, as a HorizontalPodAutoscaler names it.
	TargetRef ObjectRef `json:"targetRef"`
	// Metric is what is read, and the target that it should not exceed.
	Metric SignalMetric `json:"metric"`
	// MinPercent is the least that the pods' demand is taken for while the metric is read. 100: for what it is.
	// +optional
	// +kubebuilder:default=100
	// +kubebuilder:validation:Minimum=100
	// +kubebuilder:validation:Maximum=1000
	MinPercent int32 `json:"minPercent,omitempty"`
	// MaxPercent is the most that it is taken for. However much it is, no more is kept free for a pod than its budget's share.
	// +optional
	// +kubebuilder:default=200
	// +kubebuilder:validation:Minimum=100
	// +kubebuilder:validation:Maximum=1000
	MaxPercent int32 `json:"maxPercent,omitempty"`
}

// ObjectRef names an object of the same namespace.
//
// +kubebuilder:object:generate=false
type ObjectRef struct {
	// +optional
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion,omitempty"`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// SignalMetric is a metric, written as in a HorizontalPodAutoscaler of autoscaling/v2. The types are those that are not
// about CPU and memory: the kernel tells enough of these.
//
// +kubebuilder:validation:XValidation:rule="has(self.pods) == (self.type == 'Pods') && has(self.object) == (self.type == 'Object') && has(self.external) == (self.type == 'External')",message="the field that type names must be set, and no other"
type SignalMetric struct {
	// Type is the kind of the metric, and the field that describes it.
	Type SignalMetricType `json:"type"`
	// Pods is a metric of each pod of the target, from custom.metrics.k8s.io. The mean of them counts.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.target.type == 'AverageValue'",message="target.type must be AverageValue"
	Pods *MetricTarget `json:"pods,omitempty"`
	// Object is a metric of one object, such as an Ingress, from custom.metrics.k8s.io.
	// +optional
	Object *ObjectSignal `json:"object,omitempty"`
	// External is a metric of nothing in the cluster, from external.metrics.k8s.io. Where several series match, the sum of them counts.
	// +optional
	External *MetricTarget `json:"external,omitempty"`
}

// MetricTarget is a metric and what it should not exceed.
type MetricTarget struct {
	Metric MetricID        `json:"metric"`
	Target SignalObjective `json:"target"`
}

// ObjectSignal is a metric of one object of the namespace.
type ObjectSignal struct {
	DescribedObject ObjectRef       `json:"describedObject"`
	Metric          MetricID        `json:"metric"`
	Target          SignalObjective `json:"target"`
}

// MetricID names a metric.
type MetricID struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[^/%*]+$`
	Name string `json:"name"`
	// Selector picks series of the metric by their labels. Absent: all of them.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// SignalObjective is what a metric should not exceed.
//
// +kubebuilder:validation:XValidation:rule="has(self.value) == (self.type == 'Value') && has(self.averageValue) == (self.type == 'AverageValue')",message="the field that type names must be set, and no other"
// +kubebuilder:validation:XValidation:rule="!has(self.value) || (type(self.value) == int ? self.value > 0 : quantity(self.value).isGreaterThan(quantity('0')))",message="value must be more than 0"
// +kubebuilder:validation:XValidation:rule="!has(self.averageValue) || (type(self.averageValue) == int ? self.averageValue > 0 : quantity(self.averageValue).isGreaterThan(quantity('0')))",message="averageValue must be more than 0"
type SignalObjective struct {
	// Type is Value, or AverageValue, for which the metric is divided by the number of pods of the target.
	// +kubebuilder:validation:Enum=Value;AverageValue
	Type string `json:"type"`
	// +optional
	Value *resource.Quantity `json:"value,omitempty"`
	// +optional
	AverageValue *resource.Quantity `json:"averageValue,omitempty"`
}

// SignalMetricType is the kind of a metric.
//
// +kubebuilder:validation:Enum=Pods;Object;External
type SignalMetricType string

const (
	// PodsMetric is a metric of each pod.
	PodsMetric SignalMetricType = "Pods"
	// ObjectMetric is a metric of one object.
	ObjectMetric SignalMetricType = "Object"
	// ExternalMetric is a metric of nothing in the cluster.
	ExternalMetric SignalMetricType = "External"
)

// DemandSignalStatus says what was read and what came of it. It is written when that changes, and else once a minute.
type DemandSignalStatus struct {
	// ObservedGeneration is the generation of spec that this status answers to.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Current is the metric as it was last read, to be compared with its target.
	// +optional
	Current *resource.Quantity `json:"current,omitempty"`
	// DemandPercent is what the pods' demand is taken for. Absent where the kernel's signals stand alone.
	// +optional
	// +kubebuilder:validation:Minimum=100
	// +kubebuilder:validation:Maximum=1000
	DemandPercent *int32 `json:"demandPercent,omitempty"`
	// LastReadTime is when the metric was last read and could be used.
	// +optional
	LastReadTime *metav1.Time `json:"lastReadTime,omitempty"`
	// Conditions: Available (the metric is read and can be used; the reason says why not).
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// SignalAvailable is the type of the condition of a DemandSignal.
const SignalAvailable = "Available"

// Reasons of the condition Available of a DemandSignal.
const (
	// ReasonMetricRead: the metric is read.
	ReasonMetricRead = "MetricRead"
	// ReasonMetricMissing: the metrics API knows no such metric, or has no value of it.
	ReasonMetricMissing = "MetricMissing"
	// ReasonMetricStale: the value is too old, or its time lies ahead.
	ReasonMetricStale = "MetricStale"
	// ReasonInvalidMetric: the value is below 0 or no number, or spec.metric cannot be asked for.
	ReasonInvalidMetric = "InvalidMetric"
	// ReasonMetricForbidden: the controller may not read it.
	ReasonMetricForbidden = "MetricForbidden"
	// ReasonMetricsAPIMissing: the cluster does not serve the metrics API.
	ReasonMetricsAPIMissing = "MetricsAPIMissing"
	// ReasonMetricsAPIUnavailable: what serves the metrics API does not answer.
	ReasonMetricsAPIUnavailable = "MetricsAPIUnavailable"
	// ReasonTargetUnknown: no pod belongs to the target.
	ReasonTargetUnknown = "TargetUnknown"
	// ReasonTargetNotManaged: pods belong to the target, and the market moves none of them.
	ReasonTargetNotManaged = "TargetNotManaged"
	// ReasonSignalsOff: the controller was started with the order to look at no metric.
	ReasonSignalsOff = "SignalsOff"
)
