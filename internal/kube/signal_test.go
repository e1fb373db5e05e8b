package kube

import (
	"math"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mbcas/mbcas/api/v1alpha1"
)

func TestMetricOf(t *testing.T) {
	value := func(q string) v1alpha1.SignalObjective {
		v := resource.MustParse(q)
		return v1alpha1.SignalObjective{Type: "Value", Value: &v}
	}
	average := func(q string) v1alpha1.SignalObjective {
		v := resource.MustParse(q)
		return v1alpha1.SignalObjective{Type: "AverageValue", AverageValue: &v}
	}
	web := &metav1.LabelSelector{MatchLabels: map[string]string{"service": "web"}}
	external := func(s *metav1.LabelSelector, o v1alpha1.SignalObjective) v1alpha1.SignalMetric {
		return v1alpha1.SignalMetric{Type: v1alpha1.ExternalMetric, External: &v1alpha1.MetricTarget{Metric: v1alpha1.MetricID{Name: "p99", Selector: s}, Target: o}}
	}
	for name, tt := range map[string]struct {
		metric v1alpha1.SignalMetric
		says   string // how it is called, or what is wrong
		group  string // "": an error
		target float64
		perPod bool
	}{
		"external":        {external(web, value("200m")), "external metric p99{service=web}", "external.metrics.k8s.io", 0.2, false},
		"external, all":   {external(nil, value("2")), "external metric p99", "external.metrics.k8s.io", 2, false},
		"external by pod": {external(nil, average("1k")), "external metric p99", "external.metrics.k8s.io", 1000, true},
		"object": {v1alpha1.SignalMetric{Type: v1alpha1.ObjectMetric, Object: &v1alpha1.ObjectSignal{
			DescribedObject: v1alpha1.ObjectRef{Kind: "Ingress", Name: "web"}, Metric: v1alpha1.MetricID{Name: "p99"}, Target: value("1"),
		}}, "metric p99 of Ingress/web", "custom.metrics.k8s.io", 1, false},
		"pods": {v1alpha1.SignalMetric{Type: v1alpha1.PodsMetric, Pods: &v1alpha1.MetricTarget{
			Metric: v1alpha1.MetricID{Name: "queue"}, Target: average("1500m"),
		}}, "metric queue of the pods", "custom.metrics.k8s.io", 1.5, false},
		"a bad selector":  {external(&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}}, value("1")), "spec.metric.external.metric.selector: ", "", 0, false},
		"no value":        {external(nil, v1alpha1.SignalObjective{Type: "Value"}), "spec.metric.external.target has no value", "", 0, false},
		"nothing":         {v1alpha1.SignalMetric{Type: "Pods"}, `no metric of type "Pods"`, "", 0, false},
		"a type of later": {v1alpha1.SignalMetric{Type: "Oracle"}, `no metric of type "Oracle"`, "", 0, false},
	} {
		m, err := MetricOf(&v1alpha1.DemandSignal{Spec: v1alpha1.DemandSignalSpec{Metric: tt.metric}})
		switch {
		case tt.group == "":
			if err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%s: error %v, want %q", name, err, tt.says)
			}
		case err != nil:
			t.Errorf("%s: %v", name, err)
		case m.String() != tt.says || m.Group() != tt.group || math.Abs(m.Target-tt.target) > 1e-9 || m.PerPod != tt.perPod:
			t.Errorf("%s: %+v, called %q", name, m, m)
		}
	}
}

func TestDisplayQuantity(t *testing.T) {
	for v, want := range map[float64]string{
		0.2613: "261m", 0.0004567: "457u", 1: "1", 1234: "1230", 1.5e6: "1500k", 0: "0", -2: "-2", 1e-30: "1n", 1e300: "1E",
	} {
		if got := DisplayQuantity(v); got == nil || got.String() != want {
			t.Errorf("%v is written %v, want %s", v, got, want)
		}
	}
	if got := DisplayQuantity(math.NaN()); got != nil {
		t.Errorf("no number is written %v", got)
	}
}
