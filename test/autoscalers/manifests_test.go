// Package autoscalers checks the manifests of docs/autoscalers.md and the rules of docs/demand-signals.md against the
// types of the programs that read them.
package autoscalers

import (
	"os"
	"strings"
	"testing"

	keda "github.com/kedacore/keda/v2/apis/keda/v1alpha1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/prometheus-adapter/pkg/client"
	adapter "sigs.k8s.io/prometheus-adapter/pkg/config"
	"sigs.k8s.io/prometheus-adapter/pkg/naming"
	"sigs.k8s.io/yaml"
)

// ratio is what the recording rule of MBCAS is called.
const ratio = "mbcas:workload_share_pressure:ratio"

// block is the block of YAML in docs/autoscalers.md that begins so.
func block(t *testing.T, begins string) []byte {
	t.Helper()
	return blockOf(t, "autoscalers.md", begins)
}

// blockOf is the block of YAML in a page of docs that begins so.
func blockOf(t *testing.T, name, begins string) []byte {
	t.Helper()
	page, err := os.ReadFile("../../docs/" + name)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range strings.Split(string(page), "```yaml\n")[1:] {
		if text, _, _ := strings.Cut(b, "```"); strings.HasPrefix(text, begins) {
			return []byte(text)
		}
	}
	t.Fatalf("docs/%s has no YAML that begins with %q", name, begins)
	return nil
}

func readHPA(t *testing.T) (h autoscalingv2.HorizontalPodAutoscaler) {
	t.Helper()
	if err := yaml.UnmarshalStrict(block(t, "apiVersion: autoscaling/v2"), &h); err != nil {
		t.Fatal(err)
	}
	if h.Kind != "HorizontalPodAutoscaler" || len(h.Spec.Metrics) != 1 || h.Spec.Metrics[0].External == nil {
		t.Fatalf("%+v", h)
	}
	return h
}

// TestHorizontalPodAutoscaler: the HPA multiplies the number of replicas by the ratio, and its behaviour is that of the
// simulation in internal/controller/metrics.
func TestHorizontalPodAutoscaler(t *testing.T) {
	h := readHPA(t)
	target := h.Spec.Metrics[0].External.Target
	if target.Type != autoscalingv2.ValueMetricType || target.Value == nil || target.Value.MilliValue() != 1000 {
		t.Errorf("the target is %+v, want the value 1", target)
	}
	checkBehavior(t, h.Spec.Behavior)
}

func checkBehavior(t *testing.T, b *autoscalingv2.HorizontalPodAutoscalerBehavior) {
	t.Helper()
	if b == nil || b.ScaleUp == nil || len(b.ScaleUp.Policies) != 1 || b.ScaleDown == nil {
		t.Fatalf("the behaviour is %+v", b)
	}
	want := autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PercentScalingPolicy, Value: 50, PeriodSeconds: 60}
	if b.ScaleUp.Policies[0] != want || *b.ScaleDown.StabilizationWindowSeconds != 300 {
		t.Errorf("up: %+v, down: %+v", b.ScaleUp.Policies, b.ScaleDown)
	}
}

// mapper knows the kinds that rules name.
func mapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	m.Add(schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}, meta.RESTScopeRoot)
	m.Add(schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, meta.RESTScopeNamespace)
	return m
}

// TestAdapterRule: prometheus-adapter reads the rule, lists the series under the name that the HPA asks for, and makes
// the query of the workload from the selector of the HPA.
func TestAdapterRule(t *testing.T) {
	config, err := adapter.FromYAML(block(t, "externalRules:"))
	if err != nil || len(config.ExternalRules) != 1 {
		t.Fatalf("%+v, %v", config, err)
	}
	namers, err := naming.NamersFromConfig(config.ExternalRules, mapper())
	if err != nil {
		t.Fatal(err)
	}
	h := readHPA(t)
	metric := h.Spec.Metrics[0].External.Metric
	if want := `{__name__="` + ratio + `",namespace!=""}`; string(namers[0].Selector()) != want {
		t.Errorf("the adapter looks for %s, want %s", namers[0].Selector(), want)
	}
	if as := config.ExternalRules[0].Name.As; as != metric.Name {
		t.Errorf("the adapter calls the metric %s, and the HPA %s", as, metric.Name)
	}
	selector, err := metav1.LabelSelectorAsSelector(metric.Selector)
	if err != nil {
		t.Fatal(err)
	}
	query, err := namers[0].QueryForExternalSeries(ratio, h.Namespace, selector)
	want := `max(` + ratio + `{kind="Deployment",workload="web",namespace="shop"})`
	if err != nil || string(query) != want {
		t.Errorf("the adapter asks for %s (%v), want %s", query, err, want)
	}
}

// signal is what of a DemandSignal names its metric.
type signal struct {
	Metadata struct{ Namespace string }
	Spec     struct {
		Metric struct {
			External, Pods *autoscalingv2.ExternalMetricSource
		}
	}
}

// TestSignalRules: prometheus-adapter reads the rules of docs/demand-signals.md, lists the series under the names that
// the signals of the sample ask for, and makes the query from the selector of a signal, or for the pods of its target.
func TestSignalRules(t *testing.T) {
	config, err := adapter.FromYAML(blockOf(t, "demand-signals.md", "externalRules:"))
	if err != nil || len(config.ExternalRules) != 1 || len(config.Rules) != 1 {
		t.Fatalf("%+v, %v", config, err)
	}
	namers, err := naming.NamersFromConfig(append(config.ExternalRules, config.Rules...), mapper())
	if err != nil {
		t.Fatal(err)
	}
	sample, err := os.ReadFile("../../config/samples/demand-signal.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var latency, queue signal
	for i, text := range strings.Split(string(sample), "\n---\n") {
		if err := yaml.Unmarshal([]byte(text), []any{&latency, &queue}[i]); err != nil {
			t.Fatal(err)
		}
	}
	if latency.Spec.Metric.External == nil || queue.Spec.Metric.Pods == nil {
		t.Fatalf("the signals of the sample are %+v and %+v, want an External and a Pods metric", latency, queue)
	}
	external, pods := latency.Spec.Metric.External.Metric, queue.Spec.Metric.Pods.Metric
	for i, want := range []struct{ series, name string }{
		{"http_request_duration_seconds_bucket", external.Name}, {"requests_waiting", pods.Name},
	} {
		name, err := namers[i].MetricNameForSeries(client.Series{Name: want.series})
		if err != nil || name != want.name {
			t.Errorf("the adapter calls %s %q (%v), and the signal %q", want.series, name, err, want.name)
		}
		if !strings.Contains(string(namers[i].Selector()), `"`+want.series+`"`) {
			t.Errorf("the adapter looks for %s, want %s", namers[i].Selector(), want.series)
		}
	}
	selector, err := metav1.LabelSelectorAsSelector(external.Selector)
	if err != nil {
		t.Fatal(err)
	}
	query, err := namers[0].QueryForExternalSeries("http_request_duration_seconds_bucket", latency.Metadata.Namespace,
		selector)
	want := `histogram_quantile(0.99, sum by (le) (rate(http_request_duration_seconds_bucket{` +
		`service="front",namespace="mbcas-shop"}[2m]))) >= 0`
	if err != nil || string(query) != want {
		t.Errorf("the adapter asks for %s (%v), want %s", query, err, want)
	}
	query, err = namers[1].QueryForSeries("requests_waiting", schema.GroupResource{Resource: "pods"},
		queue.Metadata.Namespace, labels.Everything(), "front-1", "front-2")
	want = `sum by (pod) (requests_waiting{namespace="mbcas-shop",pod=~"front-1|front-2"})`
	if err != nil || string(query) != want {
		t.Errorf("the adapter asks for %s (%v), want %s", query, err, want)
	}
}

// TestScaledObject: KEDA makes an HPA with the same target and behaviour, and an error of a query without a result.
func TestScaledObject(t *testing.T) {
	var s keda.ScaledObject
	if err := yaml.UnmarshalStrict(block(t, "apiVersion: keda.sh/v1alpha1"), &s); err != nil {
		t.Fatal(err)
	}
	if s.Kind != "ScaledObject" || len(s.Spec.Triggers) != 1 {
		t.Fatalf("%+v", s)
	}
	trigger := s.Spec.Triggers[0]
	if trigger.Type != "prometheus" || trigger.MetricType != autoscalingv2.ValueMetricType {
		t.Errorf("the trigger is a %s of type %s", trigger.Type, trigger.MetricType)
	}
	want := `max(` + ratio + `{namespace="shop",kind="Deployment",workload="web"})`
	if m := trigger.Metadata; m["query"] != want || m["threshold"] != "1" || m["ignoreNullValues"] != "false" {
		t.Errorf("metadata %v", m)
	}
	if err := keda.ValidateTriggers(s.Spec.Triggers); err != nil {
		t.Error(err)
	}
	checkBehavior(t, s.Spec.Advanced.HorizontalPodAutoscalerConfig.Behavior)
}
