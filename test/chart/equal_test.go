package chart_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
)

// helmLabels are what the chart adds to the labels of each object.
var helmLabels = map[string]any{
	"app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/version": "dev", "helm.sh/chart": "mbcas-0.0.0-dev",
}

// expected is what the chart renders where kustomize makes these objects. The differences are all here: Helm's
// labels, no Namespace, CRDs that stay, and a Job before the removal.
func expected(made []object, labels map[string]any) map[string]object {
	want := map[string]object{}
	for _, o := range made {
		if o["kind"] == "Namespace" {
			continue
		}
		o = clone(o)
		metadata := at(o, "metadata").(map[string]any)
		all, _ := metadata["labels"].(map[string]any)
		if all == nil {
			all = map[string]any{}
		}
		maps.Copy(all, labels)
		metadata["labels"] = all
		if o["kind"] == "CustomResourceDefinition" {
			metadata["annotations"].(map[string]any)["helm.sh/resource-policy"] = "keep"
		}
		want[key(o)] = o
	}
	return want
}

// key tells objects apart.
func key(o object) string {
	return fmt.Sprint(o["apiVersion"], " ", o.name(), " ", at(o, "metadata", "namespace"))
}

// differences are those between what is expected and what the chart renders, but for the hook.
func differences(want map[string]object, got []object) (faults []string) {
	seen, hooks := map[string]bool{}, 0
	for _, o := range got {
		k := key(o)
		switch w, ok := want[k]; {
		case at(o, "metadata", "annotations", "helm.sh/hook") != nil:
			hooks++
		case seen[k]:
			faults = append(faults, k+" is rendered twice")
		case !ok:
			faults = append(faults, k+" is rendered, and kustomize makes no such object")
		default:
			faults = append(faults, unequal(k, map[string]any(w), map[string]any(o))...)
		}
		seen[k] = true
	}
	for k := range want {
		if !seen[k] {
			faults = append(faults, k+" is not rendered")
		}
	}
	if hooks != 1 {
		faults = append(faults, fmt.Sprintf("%d hooks are rendered, want the Job that restores", hooks))
	}
	slices.Sort(faults)
	return faults
}

// unequal are the places where two values differ.
func unequal(path string, want, got any) (faults []string) {
	if reflect.DeepEqual(want, got) {
		return nil
	}
	w, ok := want.(map[string]any)
	g, ok2 := got.(map[string]any)
	if !ok || !ok2 {
		return []string{fmt.Sprintf("%s is %v, want %v", path, got, want)}
	}
	for k := range maps.Keys(w) {
		faults = append(faults, unequal(path+"."+k, w[k], g[k])...)
	}
	for k := range maps.Keys(g) {
		if _, ok := w[k]; !ok {
			faults = append(faults, fmt.Sprintf("%s.%s is %v, want none", path, k, g[k]))
		}
	}
	return faults
}

// clone is a copy that shares nothing.
func clone(o object) object { return runtime.DeepCopyJSON(o) }

// pairs are values, and components of config that make the same.
var pairs = map[string]struct{ set, components string }{
	"defaults":          {"", ""},
	"enforce":           {"mode=enforce", "enforce"},
	"users":             {"users.role=true", "plugin-users"},
	"three replicas":    {"controller.replicas=3", "shards"},
	"images by hand":    {"image.pullPolicy=Never,controller.replicas=1", "loaded-images"},
	"the local overlay": {"image.pullPolicy=Never,controller.replicas=1,mode=enforce", "loaded-images enforce"},
	"all of them":       {"mode=enforce,users.role=true,controller.replicas=3", "enforce plugin-users shards"},
}

// TestTheChartIsTheKustomization: what helm template renders is what kustomize makes of config, object by object and
// field by field. So what the tests of config show of those objects, on a real API server, is true of the chart.
func TestTheChartIsTheKustomization(t *testing.T) {
	for name, c := range pairs {
		t.Run(name, func(t *testing.T) {
			want := expected(built(t, strings.Fields(c.components)...), helmLabels)
			if len(want) < 40 {
				t.Fatalf("kustomize makes %d objects, want at least 40", len(want))
			}
			for _, fault := range differences(want, rendered(t, "--set", c.set)) {
				t.Error(fault)
			}
		})
	}
}

// TestEveryLeafCounts: the comparison above sees each change of what the chart renders: a leaf that is another or is
// missing, and an object that is missing, doubled or new.
func TestEveryLeafCounts(t *testing.T) {
	got, want := rendered(t, "--set", "users.role=true"), expected(built(t, "plugin-users"), helmLabels)
	everyLeafCounts(t, want, got, 3000)
}

// everyLeafCounts changes what is rendered in each of those ways, in at least so many mutants.
func everyLeafCounts(t *testing.T, want map[string]object, got []object, least int) {
	t.Helper()
	mutants := 0
	try := func(what string, want map[string]object, mutant ...object) {
		if mutants++; len(differences(want, mutant)) == 0 {
			t.Errorf("not seen: %s", what)
		}
	}
	hook := got[slices.IndexFunc(got, func(o object) bool { return strings.HasPrefix(o.name(), "hook ") })]
	for i, o := range got {
		try("no "+o.name(), want, slices.Delete(slices.Clone(got), i, i+1)...)
		if strings.HasPrefix(o.name(), "hook ") {
			continue
		}
		try("two of "+o.name(), want, append(slices.Clone(got), o)...)
		changed := clone(o) // objects are compared one by one, so the others may be left out
		alone := map[string]object{key(o): want[key(o)]}
		if d := differences(alone, []object{changed, hook}); len(d) > 0 {
			t.Fatalf("%s differs without a change: %v", o.name(), d)
		}
		leaves(o.name(), map[string]any(changed), func(path string) { try(path, alone, changed, hook) })
	}
	extra := clone(got[0])
	extra["metadata"].(map[string]any)["name"] = "another"
	try("a new object", want, append(slices.Clone(got), extra)...)
	if mutants < least {
		t.Errorf("%d mutants, want at least %d", mutants, least)
	}
	t.Logf("%d mutants", mutants)
}

// leaves changes each leaf below a value in turn, and takes it away, with a call for each.
func leaves(path string, v any, changed func(path string)) {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			leaf(path+"."+k, e, func(e any) { v[k] = e }, func() { delete(v, k) }, changed)
		}
	case []any:
		for i, e := range v {
			leaf(fmt.Sprintf("%s[%d]", path, i), e, func(e any) { v[i] = e }, nil, changed)
		}
	}
}

func leaf(path string, v any, set func(any), remove func(), changed func(string)) {
	switch v := v.(type) {
	case map[string]any, []any:
		leaves(path, v, changed)
	default:
		set(fmt.Sprint(v, "x"))
		changed(path + " is another")
		if remove != nil {
			remove()
			changed(path + " is missing")
		}
		set(v)
	}
}
