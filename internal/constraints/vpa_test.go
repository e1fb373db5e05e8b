package constraints

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/podtest"
)

func TestVPAWritesCPU(t *testing.T) {
	policies := func(list ...any) map[string]any {
		return map[string]any{"resourcePolicy": map[string]any{"containerPolicies": list}}
	}
	policy := func(name string, more ...any) map[string]any {
		p := map[string]any{"containerName": name}
		for i := 0; i < len(more); i += 2 {
			p[more[i].(string)] = more[i+1]
		}
		return p
	}
	for name, c := range map[string]struct {
		spec map[string]any
		want bool
	}{
		"by default":              {map[string]any{}, true},
		"off":                     {map[string]any{"updatePolicy": map[string]any{"updateMode": "Off"}}, false},
		"at creation":             {map[string]any{"updatePolicy": map[string]any{"updateMode": "Initial"}}, true},
		"in place":                {map[string]any{"updatePolicy": map[string]any{"updateMode": "InPlaceOrRecreate"}}, true},
		"a mode of the future":    {map[string]any{"updatePolicy": map[string]any{"updateMode": "Quantum"}}, true},
		"memory alone":            {policies(policy("*", "controlledResources", []any{"memory"})), false},
		"memory alone of one":     {policies(policy("app", "controlledResources", []any{"memory"})), true},
		"one container, by name":  {policies(policy("*", "mode", "Off"), policy("proxy", "mode", "Auto")), true},
		"all containers off":      {policies(policy("*", "mode", "Off")), false},
		"all of them off by name": {policies(policy("app", "mode", "Off"), policy("exporter", "mode", "Off"), policy("proxy", "mode", "Off")), false},
		"requests only":           {policies(policy("*", "controlledValues", "RequestsOnly")), true},
		"off, with a boost":       {map[string]any{"updatePolicy": map[string]any{"updateMode": "Off"}, "startupBoost": map[string]any{"cpu": map[string]any{"type": "Factor"}}}, true},
		"a boost of one":          {policies(policy("*", "mode", "Off"), policy("app", "mode", "Off", "startupBoost", map[string]any{"cpu": map[string]any{"type": "Factor"}})), true},
		"cannot be read":          {map[string]any{"resourcePolicy": "what"}, true},
	} {
		c.spec["targetRef"] = map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
		v := VPAOf(&unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "v", "namespace": "shop"}, "spec": c.spec}})
		if got := v.WritesCPU(podtest.Shop()); got != c.want {
			t.Errorf("%s: writes %v, want %v (%+v)", name, got, c.want, v)
		}
		if v.Name != "v" || v.Target != (kube.Target{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}) {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

func TestVPAGoesByTheKind(t *testing.T) {
	for version, want := range map[string]string{"": "apps/v1", "extensions/v1beta1": "apps/v1", "apps/v1": "apps/v1"} {
		ref := map[string]any{"kind": "Deployment", "name": "web", "apiVersion": version}
		v := VPAOf(&unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"targetRef": ref}}})
		if v.Target.APIVersion != want {
			t.Errorf("a Deployment of %q counts as %q", version, v.Target.APIVersion)
		}
	}
	for kind, want := range map[string]string{"CronJob": "batch/v1", "ReplicationController": "v1", "Rollout": "argoproj.io/v1alpha1"} {
		ref := map[string]any{"kind": kind, "name": "web", "apiVersion": "argoproj.io/v1alpha1"}
		if v := VPAOf(&unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"targetRef": ref}}}); v.Target.APIVersion != want {
			t.Errorf("a %s counts as of %q, want %q", kind, v.Target.APIVersion, want)
		}
	}
}
