package controller

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/atlength"
)

// oddOf are odd values for a field of this type.
func oddOf(s apiextensionsv1.JSONSchemaProps) []any {
	long := strings.Repeat("x", 3000)
	switch {
	case s.XIntOrString, s.Type == "string":
		return []any{"", "x", "-1", "NaN", "1e999", "99999999", long, "2026-01-01T00:00:00Z", "2026-99-01T00:00:00.000000Z", int64(-1), true, []any{}, map[string]any{}}
	case s.Type == "integer", s.Type == "number":
		return []any{int64(-1), int64(0), int64(1) << 31, int64(1) << 62, "x", []any{}}
	case s.Type == "boolean":
		return []any{"true", int64(1)}
	case s.Type == "array":
		return []any{[]any{}, []any{nil}, []any{map[string]any{}}, "x"}
	}
	return []any{nil, "x", []any{}, map[string]any{"nonsense": "x"}}
}

// oddAt are the values to try at the ith field: each third of them, others at the next field, or all with MBCAS_LONG=1.
func oddAt(i int, s apiextensionsv1.JSONSchemaProps) (list []any) {
	for j, value := range oddOf(s) {
		if (i+j)%3 == 0 || atlength.On() {
			list = append(list, value)
		}
	}
	return list
}

// refusal fails the test where an error is none of the API server that names the field, unless that is the whole spec.
func (r *rig) refusal(what string, path []string, value any, err error) {
	r.Helper()
	said := len(path) == 1 || slices.ContainsFunc(path[1:], func(s string) bool { return s != "[]" && strings.Contains(err.Error(), s) })
	if !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) || !said {
		r.Errorf("%s = %.60v: the refusal does not name the field: %v", what, value, err)
	}
}

// leaf is one field of a schema, in an object in which arrays have one element.
type leaf struct {
	path   []string
	schema apiextensionsv1.JSONSchemaProps
}

func leaves(s apiextensionsv1.JSONSchemaProps, path ...string) (all []leaf) {
	if len(path) > 0 {
		all = append(all, leaf{slices.Clone(path), s})
	}
	if s.Items != nil && s.Items.Schema != nil {
		all = append(all, leaves(*s.Items.Schema, append(path, "[]")...)...)
	}
	for name, p := range s.Properties {
		all = append(all, leaves(p, append(slices.Clone(path), name)...)...)
	}
	slices.SortFunc(all, func(a, b leaf) int { return slices.Compare(a.path, b.path) })
	return all
}

// with is a copy of an object with another value at a path.
func with(o any, path []string, value any) any {
	if len(path) == 0 {
		return value
	}
	if path[0] == "[]" {
		list, _ := o.([]any)
		if len(list) == 0 {
			list = []any{map[string]any{}}
		}
		list = slices.Clone(list)
		list[0] = with(list[0], path[1:], value)
		return list
	}
	copied := map[string]any{}
	if m, ok := o.(map[string]any); ok {
		for k, v := range m {
			copied[k] = v
		}
	}
	copied[path[0]] = with(copied[path[0]], path[1:], value)
	return copied
}

// TestHostileObjects: an object that the API server stores and that no client can read would blind
// all of them, as a field with a format takes a list, too. So each field of a decision and of what
// is published to an agent, generated from its schema with odd values, is refused with its name, or
// moves no limit out of its bounds and loses no declared limit. The same for each label and
// annotation that users write. Afterwards a good object counts again.
func TestHostileObjects(t *testing.T) {
	r := newRig(t)
	l := r.live()
	pod := l.raised("web")
	l.look(pod)
	accepted, refused := 0, 0
	sane := func(what string, value any) {
		t.Helper()
		if _, err := l.once(); err != nil {
			t.Errorf("%s = %.60v: %v", what, value, err)
		}
		if limit := r.limit(pod); limit < 110 || limit > 4000 {
			t.Errorf("%s = %.60v: limit %v", what, value, limit)
		}
		if pa := r.stored(pod); pa != nil && recorded(pa) && !kube.SameLimits(pa.Status.DeclaredLimits, []v1alpha1.ContainerLimit{app(500)}) {
			t.Errorf("%s = %.60v: declared %v", what, value, pa.Status.DeclaredLimits)
		}
	}
	try := func(o client.Object, what string, path []string, value any, patch map[string]any) (stored bool) {
		t.Helper()
		body, err := json.Marshal(patch)
		r.must(err)
		err = r.Client.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, body))
		if err == nil {
			accepted++
			sane(what, value)
			return true
		}
		refused++
		r.refusal(what, path, value, err)
		return false
	}
	for crd, o := range map[string]client.Object{
		"podallocations.allocation.mbcas.io":  r.stored(pod),
		"nodeallocations.allocation.mbcas.io": &v1alpha1.NodeAllocation{ObjectMeta: metav1.ObjectMeta{Name: r.kubelet.Node}},
	} {
		var whole map[string]any // the object as it is; nil: it may be another now
		for i, f := range leaves(r.definition(crd).Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"], "spec") {
			for _, value := range oddAt(i, f.schema) {
				if whole == nil {
					r.must(r.Client.Get(t.Context(), client.ObjectKeyFromObject(o), o))
					text, err := json.Marshal(o)
					r.must(err)
					r.must(json.Unmarshal(text, &whole))
				}
				changed := with(map[string]any{"spec": whole["spec"]}, f.path, value).(map[string]any)
				now := o.DeepCopyObject().(client.Object)
				if !try(now, crd+" "+strings.Join(f.path, "."), f.path, value, changed) {
					continue // it is as it was
				}
				whole = nil
				if pa := r.stored(pod); pa == nil || pa.Spec.Decision == nil || len(pa.Spec.Containers) == 0 {
					l.becomes(pod, "there", func(pa *v1alpha1.PodAllocation) bool { return pa != nil })
					r.publish(pod, "0.000", app(2000))
				}
			}
		}
	}
	if accepted < 6 || refused < 50 {
		t.Errorf("%d values accepted and %d refused: are they generated?", accepted, refused)
	}
	l.pass(time.Hour) // whatever back-off there is
	r.publish(pod, "0.000", app(1500))
	l.gets(pod, 1500)

	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.namespace}}
	hpa := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "odd"}}
	hpa.Spec.MaxReplicas = 1
	hpa.Spec.ScaleTargetRef = autoscalingv2.CrossVersionObjectReference{APIVersion: "x.io/v9", Kind: "Odd", Name: "odd"}
	pdb := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "odd"}}
	pdb.Spec.Selector = &metav1.LabelSelector{}
	for _, o := range []client.Object{hpa, pdb} {
		r.must(r.Client.Create(t.Context(), o))
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: r.config.Namespace, Name: kube.AgentLease(r.kubelet.Node)}}
	for _, c := range []struct {
		o     client.Object
		where string
		key   string
	}{
		{ns, "labels", kube.ModeLabel}, {pod, "labels", kube.ManagedKey}, {pod, "annotations", kube.ManagedKey},
		{pod, "annotations", kube.MaxCPUKey}, {hpa, "annotations", kube.AllowDecreaseKey}, {pdb, "annotations", kube.AllowDecreaseKey},
		{lease, "annotations", kube.MarketKey},
	} {
		for _, value := range []string{"", "x", "-1", "0", "1e30", "NaN", "TRUE", "Enforce", "{}", `{"price":"-1"}`, "\x01", strings.Repeat("9", 60)} {
			o := c.o.DeepCopyObject().(client.Object)
			body, err := json.Marshal(map[string]any{"metadata": map[string]any{c.where: map[string]string{c.key: value}}})
			r.must(err)
			if err := r.Client.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, body)); err != nil {
				continue // the API server bounds labels itself
			}
			sane(c.key, value)
		}
		body := `{"metadata":{"` + c.where + `":{"` + c.key + `":null}}}`
		if c.o == client.Object(ns) {
			body = `{"metadata":{"labels":{"` + kube.ModeLabel + `":"enforce"}}}`
		}
		r.merge(c.o, body)
	}
	l.pass(time.Hour)
	l.settlesAt(pod, 1200)
	l.settles(pod, v1alpha1.PhaseApplied, reasons.Settled)
	r.declaredIs(r.stored(pod), app(500))
}
