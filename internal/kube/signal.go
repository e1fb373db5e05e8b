package kube

import (
	"fmt"
	"math"
	"strconv"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/mbcas/mbcas/api/v1alpha1"
)

// SignalTarget is the workload whose pods a DemandSignal is for.
func SignalTarget(d *v1alpha1.DemandSignal) Target { return target(d.Spec.TargetRef) }

func target(o v1alpha1.ObjectRef) Target {
	return Target{APIVersion: o.APIVersion, Kind: o.Kind, Name: o.Name}
}

// Metric is the metric that a DemandSignal reads.
type Metric struct {
	Type     v1alpha1.SignalMetricType
	Name     string
	Selector labels.Selector // of series
	Object   Target          // of a metric of an object
	Target   float64
	// PerPod is true if the target is per pod and the metric of all pods together.
	PerPod bool
}

// MetricOf is the metric that a DemandSignal reads. An error names the invalid field.
func MetricOf(d *v1alpha1.DemandSignal) (Metric, error) {
	spec := &d.Spec.Metric
	m := Metric{Type: spec.Type}
	var id v1alpha1.MetricID
	var objective v1alpha1.SignalObjective
	var field string
	switch {
	case spec.Type == v1alpha1.PodsMetric && spec.Pods != nil:
		field, id, objective = "pods", spec.Pods.Metric, spec.Pods.Target
	case spec.Type == v1alpha1.ObjectMetric && spec.Object != nil:
		field, id, objective = "object", spec.Object.Metric, spec.Object.Target
		m.Object = target(spec.Object.DescribedObject)
	case spec.Type == v1alpha1.ExternalMetric && spec.External != nil:
		field, id, objective = "external", spec.External.Metric, spec.External.Target
	default:
		return m, fmt.Errorf("spec.metric describes no metric of type %q", spec.Type)
	}
	m.Name, m.Selector = id.Name, labels.Everything()
	if id.Selector != nil {
		s, err := metav1.LabelSelectorAsSelector(id.Selector)
		if err != nil {
			return m, fmt.Errorf("spec.metric.%s.metric.selector: %w", field, err)
		}
		m.Selector = s
	}
	q := objective.Value
	if q == nil {
		q, m.PerPod = objective.AverageValue, spec.Type != v1alpha1.PodsMetric // that of pods is read of each
	}
	if q == nil {
		return m, fmt.Errorf("spec.metric.%s.target has no value", field)
	}
	m.Target = q.AsApproximateFloat64()
	return m, nil
}

// Group is the API group that serves the metric.
func (m Metric) Group() string {
	if m.Type == v1alpha1.ExternalMetric {
		return "external.metrics.k8s.io"
	}
	return "custom.metrics.k8s.io"
}

func (m Metric) String() string {
	s := m.Name
	if m.Selector != nil && !m.Selector.Empty() {
		s += "{" + m.Selector.String() + "}"
	}
	switch m.Type {
	case v1alpha1.PodsMetric:
		return "metric " + s + " of the pods"
	case v1alpha1.ObjectMetric:
		return "metric " + s + " of " + m.Object.String()
	}
	return "external metric " + s
}

// DisplayQuantity is a value rounded to three digits.
func DisplayQuantity(v float64) *resource.Quantity {
	const most = 1e18 // the API rounds larger ones down
	q, err := resource.ParseQuantity(strconv.FormatFloat(math.Max(-most, math.Min(most, v)), 'e', 2, 64))
	if err != nil { // no number
		return nil
	}
	return resource.NewDecimalQuantity(*q.AsDec(), resource.DecimalSI)
}
