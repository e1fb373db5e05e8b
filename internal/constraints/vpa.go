package constraints

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mbcas/mbcas/internal/kube"
)

// VPAKind is the kind of VerticalPodAutoscalers. It is a custom resource, which a cluster may lack.
var VPAKind = schema.GroupVersionKind{Group: "autoscaling.k8s.io", Version: "v1", Kind: "VerticalPodAutoscaler"}

// VPA is a VerticalPodAutoscaler as far as it matters here.
type VPA struct {
	Namespace, Name string
	Target          kube.Target
	// Mode is updatePolicy.updateMode; Recreate where unset, which is what the VPA does then.
	Mode string
	// CPU says for which containers it writes CPU: by name, and "*" for those that are not named.
	CPU map[string]bool
	// Boosts: it gives containers more CPU while they start, in every mode.
	Boosts bool
}

// VPAOf reads a VerticalPodAutoscaler. What cannot be read counts as left to its default, which is to write.
func VPAOf(o *unstructured.Unstructured) VPA {
	text := func(fields ...string) string {
		s, _, _ := unstructured.NestedString(o.Object, fields...)
		return s
	}
	v := VPA{
		Namespace: o.GetNamespace(), Name: o.GetName(),
		Target: kube.Target{
			APIVersion: text("spec", "targetRef", "apiVersion"), Kind: text("spec", "targetRef", "kind"), Name: text("spec", "targetRef", "name"),
		},
		Mode: text("spec", "updatePolicy", "updateMode"),
		CPU:  map[string]bool{"*": true},
	}
	if v.Mode == "" {
		v.Mode = "Recreate"
	}
	v.Target = withBuiltInVersion(v.Target)
	_, v.Boosts, _ = unstructured.NestedFieldNoCopy(o.Object, "spec", "startupBoost", "cpu")
	policies, _, _ := unstructured.NestedSlice(o.Object, "spec", "resourcePolicy", "containerPolicies")
	for _, p := range policies {
		policy, ok := p.(map[string]any)
		if !ok {
			continue
		}
		name, _, _ := unstructured.NestedString(policy, "containerName")
		mode, _, _ := unstructured.NestedString(policy, "mode")
		resources, told, _ := unstructured.NestedStringSlice(policy, "controlledResources")
		_, boosts, _ := unstructured.NestedFieldNoCopy(policy, "startupBoost", "cpu")
		v.Boosts = v.Boosts || boosts
		v.CPU[name] = mode != "Off" && (!told || slices.Contains(resources, string(corev1.ResourceCPU)))
	}
	return v
}

// canonical is the target with the API version that its kind has: the VPA goes by the kind alone where that is a built-in one
// (pkg/target/fetcher.go of the Vertical Pod Autoscaler), whatever version is named, and even if none is.
func withBuiltInVersion(t kube.Target) kube.Target {
	for _, version := range []string{"apps/v1", "batch/v1", "v1"} {
		if built := (kube.Target{APIVersion: version, Kind: t.Kind, Name: t.Name}); built.KnownByOwner() {
			return built
		}
	}
	return t
}

// WritesCPU says whether the VPA changes CPU requests or limits of the pod, should the pod be of its target.
func (v VPA) WritesCPU(pod *corev1.Pod) bool {
	switch {
	case v.Boosts:
		return true
	case v.Mode == "Off":
		return false
	}
	for _, c := range kube.Containers(pod) {
		writes, named := v.CPU[c.Spec.Name]
		if !named {
			writes = v.CPU["*"]
		}
		if writes {
			return true
		}
	}
	return false
}
