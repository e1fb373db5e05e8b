package apiserver_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

// latency is a valid DemandSignal.
func latency(namespace, name string) *v1alpha1.DemandSignal {
	target := resource.MustParse("200m")
	return &v1alpha1.DemandSignal{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.DemandSignalSpec{
			TargetRef: v1alpha1.ObjectRef{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
			Metric: v1alpha1.SignalMetric{Type: v1alpha1.ExternalMetric, External: &v1alpha1.ExternalSignal{
				Metric: v1alpha1.MetricID{Name: "p99_seconds", Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"service": "web"}}},
				Target: v1alpha1.SignalObjective{Type: "Value", Value: &target},
			}},
		},
	}
}

// TestSignalIsKept: what is left out gets its default, and status is written by itself.
func TestSignalIsKept(t *testing.T) {
	s := apiserver.Start(t)
	want := latency(s.Namespace(t), "web")
	d := want.DeepCopy()
	if err := s.Client.Create(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	now, percent, current := metav1.Now().Rfc3339Copy(), int32(130), resource.MustParse("260m")
	d.Status = v1alpha1.DemandSignalStatus{ObservedGeneration: 1, Current: &current, DemandPercent: &percent, LastReadTime: &now, Conditions: []metav1.Condition{
		{Type: v1alpha1.SignalAvailable, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonMetricRead, LastTransitionTime: now},
	}}
	status := d.Status.DeepCopy()
	if err := s.Client.Status().Update(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	got := &v1alpha1.DemandSignal{}
	if err := s.Client.Get(t.Context(), client.ObjectKeyFromObject(want), got); err != nil {
		t.Fatal(err)
	}
	want.Spec.MinPercent, want.Spec.MaxPercent = 100, 200
	if diff := cmp.Diff(want.Spec, got.Spec); diff != "" {
		t.Errorf("spec (-written +read):\n%s", diff)
	}
	if diff := cmp.Diff(*status, got.Status); diff != "" || got.Generation != 1 {
		t.Errorf("generation %d, status (-written +read):\n%s", got.Generation, diff)
	}
}

// TestInvalidSignal: the API server refuses each, and names the field.
func TestInvalidSignal(t *testing.T) {
	s := apiserver.Start(t)
	ns := s.Namespace(t)
	object := func(kind, name, metric string) map[string]any {
		o := map[string]any{"metric": map[string]any{"name": metric}, "target": map[string]any{"type": "Value", "value": "1"}}
		if kind != "" {
			o["describedObject"] = map[string]any{"kind": kind, "name": name}
		}
		return o
	}
	metric := func(kind, field string, of map[string]any) map[string]any {
		return map[string]any{"type": kind, field: of}
	}
	target := func(kind string, kv ...any) map[string]any {
		m := map[string]any{"type": kind}
		for i := 0; i < len(kv); i += 2 {
			m[kv[i].(string)] = kv[i+1]
		}
		return m
	}
	pods := map[string]any{"metric": map[string]any{"name": "queue"}, "target": target("AverageValue", "averageValue", "1")}
	const union = "the field that type names must be set, and no other"
	for reason, tt := range map[string]struct {
		path  string
		value any    // nil: the field is removed
		says  string // "": it is taken
	}{
		"as it is":                    {"spec.minPercent", int64(100), ""},
		"a metric of pods":            {"spec.metric", metric("Pods", "pods", pods), ""},
		"a metric of an object":       {"spec.metric", metric("Object", "object", object("Ingress", "web", "p99")), ""},
		"a whole number":              {"spec.metric.external.target.value", int64(2), ""},
		"per pod":                     {"spec.metric.external.target", target("AverageValue", "averageValue", "1500m"), ""},
		"equal bounds":                {"spec.minPercent", int64(200), ""},
		"no target":                   {"spec.targetRef", nil, "spec.targetRef: Required"},
		"target without kind":         {"spec.targetRef.kind", nil, "spec.targetRef.kind: Required"},
		"target with empty name":      {"spec.targetRef.name", "", "spec.targetRef.name"},
		"no metric":                   {"spec.metric", nil, "spec.metric: Required"},
		"no type":                     {"spec.metric.type", nil, "spec.metric.type: Required"},
		"a type of CPU":               {"spec.metric.type", "Resource", "spec.metric.type"},
		"another type than described": {"spec.metric.type", "Pods", union},
		"nothing described":           {"spec.metric.external", nil, union},
		"two described":               {"spec.metric.pods", pods, union},
		"a metric without name":       {"spec.metric.external.metric.name", "", "spec.metric.external.metric.name"},
		"a metric in another path":    {"spec.metric.external.metric.name", "a/../b", "spec.metric.external.metric.name"},
		"all metrics":                 {"spec.metric.external.metric.name", "*", "spec.metric.external.metric.name"},
		"an object without kind":      {"spec.metric", metric("Object", "object", object("", "", "p99")), "describedObject: Required"},
		"pods with a plain value":     {"spec.metric", metric("Pods", "pods", object("", "", "queue")), "target.type must be AverageValue"},
		"no aim":                      {"spec.metric.external.target", nil, "spec.metric.external.target: Required"},
		"an aim of utilization":       {"spec.metric.external.target", target("Utilization", "averageUtilization", int64(80)), "target.type"},
		"an aim of zero":              {"spec.metric.external.target.value", "0", "value must be more than 0"},
		"an aim of zero as number":    {"spec.metric.external.target.value", int64(0), "value must be more than 0"},
		"an aim below zero":           {"spec.metric.external.target.value", "-5m", "value must be more than 0"},
		"an average of zero":          {"spec.metric.external.target", target("AverageValue", "averageValue", "0"), "averageValue must be more than 0"},
		"an aim that is no number":    {"spec.metric.external.target.value", "fast", "spec.metric.external.target.value"},
		"an aim without value":        {"spec.metric.external.target", target("Value"), union},
		"an aim with two values":      {"spec.metric.external.target.averageValue", "1", union},
		"less than it is":             {"spec.minPercent", int64(99), "spec.minPercent"},
		"more than tenfold":           {"spec.maxPercent", int64(1001), "spec.maxPercent"},
		"bounds that cross":           {"spec.minPercent", int64(201), "minPercent must not be above maxPercent"},
	} {
		t.Run(reason, func(t *testing.T) {
			err := s.Client.Create(t.Context(), editedAs(t, "DemandSignal", latency(ns, "web"), tt.path, tt.value), client.DryRunAll)
			if tt.says != "" {
				refused(t, err, tt.says)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
	d := latency(ns, "status")
	if err := s.Client.Create(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	for path, value := range map[string]any{"status.demandPercent": int64(99), "status.current": "NaN", "status.lastReadTime": "soon"} {
		refused(t, s.Client.Status().Update(t.Context(), editedAs(t, "DemandSignal", d, path, value), client.DryRunAll), path)
	}
}

// TestSignalColumns: what kubectl get shows.
func TestSignalColumns(t *testing.T) {
	s := apiserver.Start(t)
	d := latency(s.Namespace(t), "web")
	if err := s.Client.Create(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	c, err := kubernetes.NewForConfig(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	body, err := c.RESTClient().Get().AbsPath("/apis", v1alpha1.GroupVersion.Group, v1alpha1.GroupVersion.Version, "namespaces", d.Namespace, "demandsignals").
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var table metav1.Table
	if err := json.Unmarshal(body, &table); err != nil {
		t.Fatal(err)
	}
	shown := map[string]any{}
	for i, c := range table.ColumnDefinitions {
		shown[c.Name] = table.Rows[0].Cells[i]
	}
	delete(shown, "Age")
	want := map[string]any{
		"Name": "web", "Kind": "Deployment", "Target": "web", "Current": nil, "Percent": nil, "Available": nil, "Reason": nil,
		"Min": float64(100), "Max": float64(200), "Message": nil,
	}
	if diff := cmp.Diff(want, shown); diff != "" {
		t.Errorf("columns (-want +got):\n%s", diff)
	}
}

// TestSampleSignals: the samples are taken as they are.
func TestSampleSignals(t *testing.T) {
	s := apiserver.Start(t)
	f, err := os.Open("../../../config/samples/demand-signal.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	ns, found := s.Namespace(t), 0
	for docs := utilyaml.NewYAMLOrJSONDecoder(bufio.NewReader(f), 4096); ; found++ {
		o := &unstructured.Unstructured{}
		if err := docs.Decode(&o.Object); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		o.SetNamespace(ns)
		if err := s.Client.Create(t.Context(), o, client.FieldValidation(metav1.FieldValidationStrict)); err != nil {
			t.Errorf("%s: %v", o.GetName(), err)
		}
	}
	if found == 0 {
		t.Error("no samples")
	}
}
