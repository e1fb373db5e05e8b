package config_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	nodeallocation "github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
	"github.com/mbcas/mbcas/internal/testing/must"
)

// decided is a valid PodAllocation with a decision.
func decided(namespace, uid string) *v1alpha1.PodAllocation {
	limit, pressure, io := cpu.Milli(1500), int32(20), int32(0)
	pa := &v1alpha1.PodAllocation{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: uid}}
	pa.Spec = v1alpha1.PodAllocationSpec{
		NodeName: "n1", PodRef: v1alpha1.PodRef{Name: "web-0", UID: types.UID(uid)}, DesiredCPULimit: &limit,
		Containers: []v1alpha1.ContainerLimit{{Name: "app", CPULimit: 1000}, {Name: "proxy", CPULimit: 500}},
		Decision: &v1alpha1.Decision{
			Demand: 1200, Usage: 900, ThrottledPercent: 30, CPUPressurePercent: &pressure, IOPressurePercent: &io,
			Budget: 200, Price: 0.133, Floor: 220, Ceiling: 4000, BoundBy: v1alpha1.BoundByPrice,
			ObservedAt: metav1.NewMicroTime(time.Date(2026, 11, 20, 12, 0, 0, 123456000, time.UTC)),
		},
	}
	return pa
}

// latency is a valid DemandSignal.
func latency(namespace string) *v1alpha1.DemandSignal {
	d := demandSignal("latency")(nil).(*v1alpha1.DemandSignal)
	d.Namespace = namespace
	d.Spec.Metric.External.Metric.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"service": "web"}}
	return d
}

// schemaCase is an object that may be written, and what may not be written instead of parts of it.
type schemaCase struct {
	object   client.Object
	write    func(context.Context, client.Object) error
	required []string         // fields that may not be left out
	invalid  map[string][]any // values that a field may not have
	rules    []rule
}

// rule is a field with a value for which the object is refused in those words, or accepted if there are none. A value
// of nil leaves the field out.
type rule struct {
	path  string
	value any
	says  string
}

// TestSchema: the API server refuses each invalid object, and names the field or the rule.
func TestSchema(t *testing.T) {
	s := apiserver.Start(t)
	ns := s.Namespace(t)
	create := func(ctx context.Context, o client.Object) error { return s.Client.Create(ctx, o, client.DryRunAll) }
	update := func(ctx context.Context, o client.Object) error { return s.Client.Update(ctx, o, client.DryRunAll) }
	status := func(ctx context.Context, o client.Object) error {
		return s.Client.Status().Update(ctx, o, client.DryRunAll)
	}
	stored, signal := decided(ns, "u1"), latency(ns)
	for _, o := range []client.Object{stored, signal} {
		must.Succeed(t, s.Client.Create(t.Context(), o))
	}
	another := latency(ns)
	another.Name = "another"
	for name, tt := range map[string]schemaCase{
		"PodAllocation":        allocationSchema(decided(ns, "u2"), create),
		"PodAllocation update": {object: stored, write: update, rules: immutable},
		"PodAllocation status": allocationStatusSchema(stored, status),
		"NodeAllocation":       nodeAllocationSchema(create),
		"DemandSignal":         signalSchema(another, create),
		"DemandSignal status": {object: signal, write: status, invalid: map[string][]any{
			"status.demandPercent": {int64(99), int64(2000)}, "status.current": {"NaN"}, "status.lastReadTime": {"soon"},
		}},
	} {
		t.Run(name, func(t *testing.T) { tt.check(t) })
	}
}

func (c schemaCase) check(t *testing.T) {
	t.Helper()
	rules := c.rules
	for _, path := range c.required {
		rules = append(rules, rule{path, nil, path + ": Required"})
	}
	for path, values := range c.invalid {
		for _, value := range values {
			rules = append(rules, rule{path, value, path})
		}
	}
	for _, r := range rules {
		err := c.write(t.Context(), edited(t, c.object, r.path, r.value))
		switch {
		case r.says == "" && err != nil:
			t.Errorf("%s %v: %v", r.path, r.value, err)
		case r.says != "" && (err == nil || !strings.Contains(err.Error(), r.says)):
			t.Errorf("%s %v: got %v, want a refusal with %q", r.path, r.value, err, r.says)
		}
	}
}

// immutable are the parts of a PodAllocation that never change.
var immutable = []rule{
	{"spec.nodeName", "other", "nodeName is immutable"},
	{"spec.podRef.name", "other", "podRef is immutable"},
	{"spec.podRef.uid", "other", "podRef is immutable"},
	{"spec.decision.usage", "901m", ""},
}

// limits are those of containers, as the API has them.
func limits(pairs ...string) (list []any) {
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, map[string]any{"name": pairs[i], "cpuLimit": pairs[i+1]})
	}
	return list
}

func manyLimits(n int) (list []any) {
	for i := range n {
		list = append(list, limits(fmt.Sprint("c", i), "10m")...)
	}
	return list
}

func allocationSchema(pa *v1alpha1.PodAllocation, write func(context.Context, client.Object) error) schemaCase {
	const together = "desiredCPULimit, containers and decision are written together"
	percent := []any{int64(101), int64(-1)}
	return schemaCase{
		object: pa, write: write,
		required: []string{
			"spec", "spec.nodeName", "spec.podRef", "spec.podRef.name", "spec.podRef.uid", "spec.decision.demand",
			"spec.decision.usage", "spec.decision.floor", "spec.decision.ceiling", "spec.decision.price",
			"spec.decision.boundBy", "spec.decision.observedAt",
		},
		invalid: map[string][]any{
			"spec.nodeName":                       {"", strings.Repeat("n", 254)},
			"spec.podRef.name":                    {""},
			"spec.podRef.uid":                     {strings.Repeat("u", 64)},
			"spec.desiredCPULimit":                {"1.5", int64(1500), "01500m", "-1500m", "100000000m", "lots"},
			"spec.containers":                     {[]any{}, manyLimits(65)},
			"spec.decision.demand":                {"1"},
			"spec.decision.throttledPercent":      percent,
			"spec.decision.cpuPressurePercent":    percent,
			"spec.decision.memoryPressurePercent": percent,
			"spec.decision.ioPressurePercent":     percent,
			"spec.decision.budget":                {int64(-1), int64(9e18)},
			"spec.decision.price":                 {"1", "-1.000", strings.Repeat("9", 21) + ".000", "free"},
			"spec.decision.boundBy":               {"Luck"},
			"spec.decision.observedAt":            {"yesterday"},
		},
		rules: []rule{
			{"spec.nodeName", "n2", ""},
			{"metadata.name", "web-0", "metadata.name must equal spec.podRef.uid"},
			{"spec.decision", nil, together},
			{"spec.desiredCPULimit", nil, together},
			{"spec.containers", nil, together},
			{"spec.desiredCPULimit", "1400m", "desiredCPULimit must be the sum of containers[].cpuLimit"},
			{"spec.containers", limits("app", "1000m", "app", "500m"), "spec.containers[1]: Duplicate"},
			{"spec.containers", []any{map[string]any{"name": "app"}}, "spec.containers[0].cpuLimit: Required"},
			{"spec.containers", []any{map[string]any{"cpuLimit": "1500m"}}, "spec.containers[0].name: Required"},
			{"spec.containers", limits("app", "1"), "spec.containers[0].cpuLimit"},
			{"spec.containers", limits("app", "1495m", "proxy", "5m"), "containers[].cpuLimit must be at least 10m"},
			{"spec.decision.floor", "1600m", "desiredCPULimit must not be below decision.floor"},
			{"spec.decision.ceiling", "1400m", "desiredCPULimit must not be above decision.ceiling"},
		},
	}
}

func allocationStatusSchema(pa *v1alpha1.PodAllocation, write func(context.Context, client.Object) error) schemaCase {
	invalid := []any{limits("app", "1"), limits("app", "0m"), limits("app", "10m", "app", "20m"), manyLimits(65)}
	return schemaCase{object: pa, write: write, invalid: map[string][]any{
		"status.phase":           {"Done"},
		"status.reason":          {strings.Repeat("r", 65)},
		"status.message":         {strings.Repeat("m", 1025)},
		"status.declaredLimits":  invalid,
		"status.appliedLimits":   invalid,
		"status.appliedCPULimit": {"1"},
		"status.retry.failures":  {int64(-1)},
		"status.retry.time":      {"soon"},
		"status.conditions": {[]any{map[string]any{
			"type": "Ready", "status": "True", "reason": "", "message": "", "lastTransitionTime": "2026-11-20T12:00:00Z",
		}}},
	}}
}

func nodeAllocationSchema(write func(context.Context, client.Object) error) schemaCase {
	pod := func(change func(map[string]any)) []any {
		p := map[string]any{"uid": "u1", "allocationUID": "a1", "declaredLimits": limits("app", "500m")}
		change(p)
		return []any{p}
	}
	with := func(field string, value any) []any { return pod(func(p map[string]any) { p[field] = value }) }
	without := func(field string) []any { return pod(func(p map[string]any) { delete(p, field) }) }
	constrained := func(field string, value any) []any { return with("constraints", map[string]any{field: value}) }
	var many, full []any
	for i := range v1alpha1.MaxNodePods + 1 {
		many = append(many, pod(func(p map[string]any) {
			p["uid"] = fmt.Sprint("u", i)
			p["constraints"] = map[string]any{"ceiling": "2000m", "ceilingBy": "ResourceQuota/limits", "noDecrease": "ScaledByHPA"}
		})...)
	}
	full = many[1:]
	o := nodeallocation.NewNode("n1", "node")
	return schemaCase{object: o, write: write, rules: []rule{
		{"spec.pods", pod(func(map[string]any) {}), ""},
		{"spec.pods", full, ""},
		{"spec.pods", many, "spec.pods: Too many"},
		{"spec.pods", without("uid"), "spec.pods[0].uid: Required"},
		{"spec.pods", without("allocationUID"), "spec.pods[0].allocationUID: Required"},
		{"spec.pods", without("declaredLimits"), "spec.pods[0].declaredLimits: Required"},
		{"spec.pods", with("declaredLimits", []any{}), "declaredLimits"},
		{"spec.pods", with("declaredLimits", manyLimits(65)), "declaredLimits: Too many"},
		{"spec.pods", with("declaredLimits", limits("app", "0m")), "a CPU limit of 0m is none"},
		{"spec.pods", constrained("coordinationPercent", int64(1000)), "coordinationPercent"},
		{"spec.pods", constrained("demandPercent", int64(99)), "demandPercent"},
		{"spec.pods", with("declaredLimits", manyLimits(v1alpha1.MaxContainers)), ""},
		{"spec.pods", constrained("ceiling", cpu.Largest.String()), ""},
		{"spec.pods", constrained("ceiling", (cpu.Largest + 1).String()), "ceiling"},
		{"spec.pods", constrained("ceiling", "2"), "ceiling"},
		{"spec.pods", constrained("noDecrease", strings.Repeat("n", 65)), "noDecrease"},
	}}
}

func signalSchema(d *v1alpha1.DemandSignal, write func(context.Context, client.Object) error) schemaCase {
	const union = "the field that type names must be set, and no other"
	const target, value = "spec.metric.external.target", "spec.metric.external.target.value"
	object := func(text string) (o map[string]any) {
		if err := yaml.Unmarshal([]byte(text), &o); err != nil {
			panic(err)
		}
		return o
	}
	ofPods := object(`{metric: {name: queue}, target: {type: AverageValue, averageValue: "1"}}`)
	return schemaCase{
		object: d, write: write,
		required: []string{"spec.targetRef", "spec.targetRef.kind", "spec.metric", "spec.metric.type", target},
		invalid: map[string][]any{
			"spec.targetRef.name":              {""},
			"spec.metric.type":                 {"Resource"},
			"spec.metric.external.metric.name": {"", "a/../b", "*"},
			"spec.minPercent":                  {int64(99)},
			"spec.maxPercent":                  {int64(1001)},
			value:                              {"fast"},
			"spec.metric.external.target.type": {"Utilization"},
		},
		rules: []rule{
			{"spec.minPercent", int64(100), ""},
			{"spec.minPercent", int64(200), ""},
			{"spec.minPercent", int64(201), "minPercent must not be above maxPercent"},
			{"spec.metric", map[string]any{"type": "Pods", "pods": ofPods}, ""},
			{"spec.metric", object(`{type: Object, object: {describedObject: {kind: Ingress, name: web},
				metric: {name: p99}, target: {type: Value, value: "1"}}}`), ""},
			{"spec.metric", object(`{type: Object, object: {metric: {name: p99}, target: {type: Value, value: "1"}}}`),
				"describedObject: Required"},
			{"spec.metric", object(`{type: Pods, pods: {metric: {name: queue}, target: {type: Value, value: "1"}}}`),
				"target.type must be AverageValue"},
			{"spec.metric.type", "Pods", union},
			{"spec.metric.external", nil, union},
			{"spec.metric.pods", ofPods, union},
			{value, int64(2), ""},
			{value, "0", "value must be more than 0"},
			{value, int64(0), "value must be more than 0"},
			{value, "-5m", "value must be more than 0"},
			{target, object(`{type: AverageValue, averageValue: 1500m}`), ""},
			{target, object(`{type: AverageValue, averageValue: "0"}`), "averageValue must be more than 0"},
			{target, object(`{type: Value}`), union},
			{target, object(`{type: Value, value: "1", averageValue: "1"}`), union},
		},
	}
}

// edited is the object with one field set, or removed.
func edited(t *testing.T, o client.Object, path string, value any) *unstructured.Unstructured {
	t.Helper()
	text, err := json.Marshal(o)
	must.Succeed(t, err)
	obj := &unstructured.Unstructured{}
	must.Succeed(t, json.Unmarshal(text, &obj.Object))
	kind := "PodAllocation"
	switch o.(type) {
	case *v1alpha1.DemandSignal:
		kind = "DemandSignal"
	case *v1alpha1.NodeAllocation:
		kind = "NodeAllocation"
	}
	obj.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
	fields := strings.Split(path, ".")
	if value == nil {
		unstructured.RemoveNestedField(obj.Object, fields...)
	} else if err := unstructured.SetNestedField(obj.Object, value, fields...); err != nil {
		t.Fatal(err)
	}
	return obj
}

// TestStoredAsWritten: what is written is what is read, defaults are filled in, and status is written by itself only.
func TestStoredAsWritten(t *testing.T) {
	s := apiserver.Start(t)
	ns := s.Namespace(t)
	total, percent, current, now := cpu.Milli(1500), int32(130), resource.MustParse("260m"), metav1.Now().Rfc3339Copy()
	pa := decided(ns, "u1")
	pa.Status = v1alpha1.PodAllocationStatus{
		Phase: v1alpha1.PhaseApplied, Reason: "Settled", Message: "the limits are in force", AppliedCPULimit: &total,
		DeclaredLimits: []v1alpha1.ContainerLimit{{Name: "app", CPULimit: 600}}, AppliedLimits: pa.Spec.Containers,
		ObservedGeneration: 1,
	}
	d := latency(ns)
	d.Status = v1alpha1.DemandSignalStatus{
		ObservedGeneration: 1, Current: &current, DemandPercent: &percent, LastReadTime: &now,
		Conditions: []metav1.Condition{{
			Type: v1alpha1.SignalAvailable, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonMetricRead, LastTransitionTime: now,
		}},
	}
	undecided := decided(ns, "u2")
	undecided.Spec = v1alpha1.PodAllocationSpec{NodeName: "n2", PodRef: undecided.Spec.PodRef}
	for _, want := range []client.Object{pa, d, undecided} {
		got := want.DeepCopyObject().(client.Object)
		must.Succeed(t, s.Client.Create(t.Context(), got)) // the answer has no status
		if want == d {
			d.Spec.MinPercent, d.Spec.MaxPercent = 100, 200
		}
		status := want.DeepCopyObject().(client.Object)
		status.SetResourceVersion(got.GetResourceVersion())
		must.Succeed(t, s.Client.Status().Update(t.Context(), status))
		got.SetResourceVersion(status.GetResourceVersion())
		must.Succeed(t, s.Client.Update(t.Context(), got))
		must.Succeed(t, s.Client.Get(t.Context(), client.ObjectKeyFromObject(got), got))
		if diff := cmp.Diff(want, got, cmpopts.IgnoreTypes(metav1.ObjectMeta{}, metav1.TypeMeta{})); diff != "" {
			t.Errorf("(-written +read):\n%s", diff)
		}
		if got.GetGeneration() != 1 {
			t.Errorf("generation %d after writes of status, want 1", got.GetGeneration())
		}
	}
	var list v1alpha1.PodAllocationList // the plugin lists those of a node
	of := client.MatchingFields{"spec.nodeName": "n2"}
	must.Succeed(t, s.Client.List(t.Context(), &list, client.InNamespace(ns), of))
	if len(list.Items) != 1 || list.Items[0].Name != "u2" {
		t.Errorf("objects of n2: %+v, want u2 alone", list.Items)
	}
}

// TestColumns: what kubectl get shows.
func TestColumns(t *testing.T) {
	s := apiserver.Start(t)
	ns := s.Namespace(t)
	c, err := kubernetes.NewForConfig(s.Config)
	must.Succeed(t, err)
	for resource, tt := range map[string]struct {
		object client.Object
		want   map[string]any
	}{
		"podallocations": {decided(ns, "u1"), map[string]any{
			"Name": "u1", "Pod": "web-0", "Desired": "1500m", "Applied": nil, "Phase": nil, "Reason": nil,
			"Bound-By": "Price", "Price": "0.133", "Node": "n1", "Demand": "1200m", "Message": nil,
		}},
		"demandsignals": {latency(ns), map[string]any{
			"Name": "latency", "Kind": "Deployment", "Target": "web", "Current": nil, "Percent": nil, "Available": nil,
			"Reason": nil, "Min": float64(100), "Max": float64(200), "Message": nil,
		}},
	} {
		must.Succeed(t, s.Client.Create(t.Context(), tt.object))
		body, err := c.RESTClient().Get().AbsPath("/apis", v1alpha1.GroupVersion.String(), "namespaces", ns, resource).
			SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(t.Context())
		must.Succeed(t, err)
		var table metav1.Table
		must.Succeed(t, json.Unmarshal(body, &table))
		shown := map[string]any{}
		for i, c := range table.ColumnDefinitions {
			shown[c.Name] = table.Rows[0].Cells[i]
		}
		delete(shown, "Age") // as old as the test
		if d := cmp.Diff(tt.want, shown); d != "" {
			t.Errorf("columns of %s (-want +got):\n%s", resource, d)
		}
	}
}

// TestSampleSignals: the sample is accepted as it is.
func TestSampleSignals(t *testing.T) {
	s := apiserver.Start(t)
	s.Install(t, s.Namespace(t), "samples/demand-signal.yaml")
}
