package apiserver_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

// decided is a valid PodAllocation with a decision.
func decided(namespace, uid string) *v1alpha1.PodAllocation {
	limit, pressure, io := cpu.Milli(1500), int32(20), int32(0)
	return &v1alpha1.PodAllocation{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "PodAllocation"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: uid},
		Spec: v1alpha1.PodAllocationSpec{
			NodeName:        "n1",
			PodRef:          v1alpha1.PodRef{Name: "web-0", UID: types.UID(uid)},
			DesiredCPULimit: &limit,
			Containers:      []v1alpha1.ContainerLimit{{Name: "app", CPULimit: 1000}, {Name: "proxy", CPULimit: 500}},
			Decision: &v1alpha1.Decision{
				Demand: 1200, Usage: 900, ThrottledPercent: 30, CPUPressurePercent: &pressure, IOPressurePercent: &io, Budget: 200, Price: 0.133,
				Floor: 220, Ceiling: 4000, BoundBy: v1alpha1.BoundByPrice,
				ObservedAt: metav1.NewMicroTime(time.Date(2026, 11, 20, 12, 0, 0, 123456000, time.UTC)),
			},
		},
	}
}

// TestAllocationIsKept: what is written is what is read, and status can be written by itself only.
func TestAllocationIsKept(t *testing.T) {
	s := apiserver.Start(t)
	want := decided(s.Namespace(t), "8a7e3c52-0000-4000-8000-000000000001")
	pa := want.DeepCopy()
	if err := s.Client.Create(t.Context(), pa); err != nil {
		t.Fatal(err)
	}
	limit := cpu.Milli(1500)
	status := v1alpha1.PodAllocationStatus{
		Phase: v1alpha1.PhaseApplied, Reason: "Settled", Message: "the limits are in force", AppliedCPULimit: &limit,
		DeclaredLimits: []v1alpha1.ContainerLimit{{Name: "app", CPULimit: 600}}, AppliedLimits: want.Spec.Containers,
		ObservedGeneration: 1,
	}
	pa.Status = status
	if err := s.Client.Status().Update(t.Context(), pa); err != nil {
		t.Fatal(err)
	}
	pa.Status = v1alpha1.PodAllocationStatus{}
	if err := s.Client.Update(t.Context(), pa); err != nil {
		t.Fatal(err)
	}
	got := &v1alpha1.PodAllocation{}
	if err := s.Client.Get(t.Context(), client.ObjectKeyFromObject(pa), got); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want.Spec, got.Spec); d != "" {
		t.Errorf("spec (-written +read):\n%s", d)
	}
	if d := cmp.Diff(status, got.Status); d != "" {
		t.Errorf("an update of spec touched status (-written +read):\n%s", d)
	}
	if got.Generation != 1 {
		t.Errorf("generation %d after writes to status, want 1", got.Generation)
	}
}

// TestUndecidedAllocation: the controller creates the object before anything is decided.
func TestUndecidedAllocation(t *testing.T) {
	s := apiserver.Start(t)
	pa := decided(s.Namespace(t), "u1")
	pa.Spec.DesiredCPULimit, pa.Spec.Containers, pa.Spec.Decision = nil, nil, nil
	if err := s.Client.Create(t.Context(), pa); err != nil {
		t.Fatal(err)
	}
}

// TestInvalidAllocation: the API server refuses each, and names the field.
func TestInvalidAllocation(t *testing.T) {
	s := apiserver.Start(t)
	ns := s.Namespace(t)
	if err := s.Client.Create(t.Context(), edited(t, decided(ns, "u1"), "spec.nodeName", "n2"), client.DryRunAll); err != nil {
		t.Fatalf("the object that all others differ from is refused itself: %v", err)
	}
	container := func(name, limit string) any { return map[string]any{"name": name, "cpuLimit": limit} }
	for reason, tt := range map[string]struct {
		path  string
		value any // nil: the field is removed
		says  string
	}{
		"name is not the uid":           {"metadata.name", "web-0", "metadata.name must equal spec.podRef.uid"},
		"no spec":                       {"spec", nil, "spec: Required"},
		"no node":                       {"spec.nodeName", nil, "spec.nodeName: Required"},
		"empty node":                    {"spec.nodeName", "", "spec.nodeName"},
		"node name too long":            {"spec.nodeName", strings.Repeat("n", 254), "spec.nodeName"},
		"no pod":                        {"spec.podRef", nil, "spec.podRef: Required"},
		"no pod name":                   {"spec.podRef.name", nil, "spec.podRef.name: Required"},
		"empty pod name":                {"spec.podRef.name", "", "spec.podRef.name"},
		"no pod uid":                    {"spec.podRef.uid", nil, "spec.podRef.uid: Required"},
		"uid too long":                  {"spec.podRef.uid", strings.Repeat("u", 64), "spec.podRef.uid"},
		"limit as cores":                {"spec.desiredCPULimit", "1.5", "spec.desiredCPULimit"},
		"limit as number":               {"spec.desiredCPULimit", int64(1500), "spec.desiredCPULimit"},
		"limit in another spelling":     {"spec.desiredCPULimit", "01500m", "spec.desiredCPULimit"},
		"negative limit":                {"spec.desiredCPULimit", "-1500m", "spec.desiredCPULimit"},
		"limit beyond all machines":     {"spec.desiredCPULimit", "123456789m", "spec.desiredCPULimit"},
		"limit without decision":        {"spec.decision", nil, "desiredCPULimit, containers and decision are written together"},
		"decision without limit":        {"spec.desiredCPULimit", nil, "desiredCPULimit, containers and decision are written together"},
		"limit without containers":      {"spec.containers", nil, "desiredCPULimit, containers and decision are written together"},
		"empty list of containers":      {"spec.containers", []any{}, "spec.containers"},
		"the sum is wrong":              {"spec.desiredCPULimit", "1400m", "desiredCPULimit must be the sum of containers[].cpuLimit"},
		"two containers of one name":    {"spec.containers", []any{container("app", "1000m"), container("app", "500m")}, "spec.containers[1]: Duplicate"},
		"container without limit":       {"spec.containers", []any{map[string]any{"name": "app"}}, "spec.containers[0].cpuLimit: Required"},
		"container without name":        {"spec.containers", []any{map[string]any{"cpuLimit": "1500m"}}, "spec.containers[0].name: Required"},
		"container limit in cores":      {"spec.containers", []any{container("app", "1")}, "spec.containers[0].cpuLimit"},
		"limit below what a kernel has": {"spec.containers", []any{container("app", "1495m"), container("proxy", "5m")}, "containers[].cpuLimit must be at least 10m"},
		"below the floor":               {"spec.decision.floor", "1600m", "desiredCPULimit must not be below decision.floor"},
		"above the ceiling":             {"spec.decision.ceiling", "1400m", "desiredCPULimit must not be above decision.ceiling"},
		"no demand":                     {"spec.decision.demand", nil, "spec.decision.demand: Required"},
		"demand in cores":               {"spec.decision.demand", "1", "spec.decision.demand"},
		"no usage":                      {"spec.decision.usage", nil, "spec.decision.usage: Required"},
		"no floor":                      {"spec.decision.floor", nil, "spec.decision.floor: Required"},
		"no ceiling":                    {"spec.decision.ceiling", nil, "spec.decision.ceiling: Required"},
		"throttled beyond all":          {"spec.decision.throttledPercent", int64(101), "spec.decision.throttledPercent"},
		"throttled below nothing":       {"spec.decision.throttledPercent", int64(-1), "spec.decision.throttledPercent"},
		"pressure beyond all":           {"spec.decision.cpuPressurePercent", int64(101), "spec.decision.cpuPressurePercent"},
		"pressure below nothing":        {"spec.decision.cpuPressurePercent", int64(-1), "spec.decision.cpuPressurePercent"},
		"memory pressure beyond all":    {"spec.decision.memoryPressurePercent", int64(101), "spec.decision.memoryPressurePercent"},
		"memory pressure below nothing": {"spec.decision.memoryPressurePercent", int64(-1), "spec.decision.memoryPressurePercent"},
		"IO pressure beyond all":        {"spec.decision.ioPressurePercent", int64(101), "spec.decision.ioPressurePercent"},
		"IO pressure below nothing":     {"spec.decision.ioPressurePercent", int64(-1), "spec.decision.ioPressurePercent"},
		"negative budget":               {"spec.decision.budget", int64(-1), "spec.decision.budget"},
		"price without decimals":        {"spec.decision.price", "1", "spec.decision.price"},
		"negative price":                {"spec.decision.price", "-1.000", "spec.decision.price"},
		"price too long":                {"spec.decision.price", strings.Repeat("9", 21) + ".000", "spec.decision.price"},
		"no price":                      {"spec.decision.price", nil, "spec.decision.price: Required"},
		"bound by what":                 {"spec.decision.boundBy", "Luck", "spec.decision.boundBy"},
		"no bound":                      {"spec.decision.boundBy", nil, "spec.decision.boundBy: Required"},
		"no time":                       {"spec.decision.observedAt", nil, "spec.decision.observedAt: Required"},
		"time in another form":          {"spec.decision.observedAt", "yesterday", "spec.decision.observedAt"},
	} {
		t.Run(reason, func(t *testing.T) {
			obj := edited(t, decided(ns, "8a7e3c52-0000-4000-8000-000000000002"), tt.path, tt.value)
			refused(t, s.Client.Create(t.Context(), obj, client.DryRunAll), tt.says)
		})
	}
}

// TestInvalidStatus: the same for what the controller writes.
func TestInvalidStatus(t *testing.T) {
	s := apiserver.Start(t)
	pa := decided(s.Namespace(t), "u1")
	if err := s.Client.Create(t.Context(), pa); err != nil {
		t.Fatal(err)
	}
	many := make([]any, 65)
	for i := range many {
		many[i] = map[string]any{"name": string(rune('a'+i/26)) + string(rune('a'+i%26)), "cpuLimit": "10m"}
	}
	for reason, tt := range map[string]struct {
		path  string
		value any
	}{
		"phase unknown":            {"status.phase", "Done"},
		"reason too long":          {"status.reason", strings.Repeat("r", 65)},
		"message too long":         {"status.message", strings.Repeat("m", 1025)},
		"declared limit in cores":  {"status.declaredLimits", []any{map[string]any{"name": "app", "cpuLimit": "1"}}},
		"too many declared limits": {"status.declaredLimits", many},
		"applied limit in cores":   {"status.appliedLimits", []any{map[string]any{"name": "app", "cpuLimit": "1"}}},
		"applied total in cores":   {"status.appliedCPULimit", "1"},
		"negative failures":        {"status.retry.failures", int64(-1)},
		"time in another form":     {"status.retry.time", "soon"},
		"condition without reason": {"status.conditions", []any{map[string]any{"type": "Ready", "status": "True", "reason": "", "message": "", "lastTransitionTime": "2026-11-20T12:00:00Z"}}},
	} {
		t.Run(reason, func(t *testing.T) {
			obj := edited(t, pa, tt.path, tt.value)
			refused(t, s.Client.Status().Update(t.Context(), obj, client.DryRunAll), tt.path)
		})
	}
}

// TestImmutable: a PodAllocation never changes to another pod or node.
func TestImmutable(t *testing.T) {
	s := apiserver.Start(t)
	pa := decided(s.Namespace(t), "u1")
	if err := s.Client.Create(t.Context(), pa); err != nil {
		t.Fatal(err)
	}
	for path, says := range map[string]string{
		"spec.nodeName": "nodeName is immutable", "spec.podRef.name": "podRef is immutable", "spec.podRef.uid": "podRef is immutable",
	} {
		t.Run(path, func(t *testing.T) {
			refused(t, s.Client.Update(t.Context(), edited(t, pa, path, "other"), client.DryRunAll), says)
		})
	}
	if err := s.Client.Update(t.Context(), edited(t, pa, "spec.decision.usage", "901m"), client.DryRunAll); err != nil {
		t.Errorf("another decision for the same pod: %v", err)
	}
}

// TestAllocationsOfNode: the agent watches its own node's only.
func TestAllocationsOfNode(t *testing.T) {
	s := apiserver.Start(t)
	ns := s.Namespace(t)
	for uid, node := range map[string]string{"u1": "n1", "u2": "n2"} {
		pa := decided(ns, uid)
		pa.Spec.NodeName = node
		if err := s.Client.Create(t.Context(), pa); err != nil {
			t.Fatal(err)
		}
	}
	var list v1alpha1.PodAllocationList
	if err := s.Client.List(t.Context(), &list, client.InNamespace(ns), client.MatchingFields{"spec.nodeName": "n2"}); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 || list.Items[0].Name != "u2" {
		t.Errorf("objects of n2: %+v, want u2 alone", list.Items)
	}
}

// TestColumns: what kubectl get shows.
func TestColumns(t *testing.T) {
	s := apiserver.Start(t)
	pa := decided(s.Namespace(t), "u1")
	if err := s.Client.Create(t.Context(), pa); err != nil {
		t.Fatal(err)
	}
	c, err := kubernetes.NewForConfig(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	body, err := c.RESTClient().Get().AbsPath("/apis", v1alpha1.GroupVersion.Group, v1alpha1.GroupVersion.Version, "namespaces", pa.Namespace, "podallocations").
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
	delete(shown, "Age") // as old as the test
	want := map[string]any{
		"Name": "u1", "Pod": "web-0", "Desired": "1500m", "Applied": nil, "Phase": nil, "Reason": nil, "Bound-By": "Price",
		"Price": "0.133", "Node": "n1", "Demand": "1200m", "Message": nil,
	}
	if d := cmp.Diff(want, shown); d != "" {
		t.Errorf("columns (-want +got):\n%s", d)
	}
}

// edited is the object with one field set, or removed.
func edited(t *testing.T, pa *v1alpha1.PodAllocation, path string, value any) *unstructured.Unstructured {
	t.Helper()
	return editedAs(t, "PodAllocation", pa, path, value)
}

func editedAs(t *testing.T, kind string, o client.Object, path string, value any) *unstructured.Unstructured {
	t.Helper()
	text, err := json.Marshal(o) // not the converter of apimachinery, which knows no MarshalText
	if err != nil {
		t.Fatal(err)
	}
	obj := &unstructured.Unstructured{}
	if err := json.Unmarshal(text, &obj.Object); err != nil {
		t.Fatal(err)
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

func refused(t *testing.T, err error, says string) {
	t.Helper()
	if err == nil {
		t.Fatalf("it was taken; want a refusal with %q", says)
	}
	if !strings.Contains(err.Error(), says) {
		t.Errorf("refused with %q, want something with %q", err, says)
	}
}
