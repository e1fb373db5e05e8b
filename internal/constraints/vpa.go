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

// VPA is what decides whether a VerticalPodAutoscaler writes the CPU of a pod.
type VPA struct {
	Namespace, Name string
	Target          kube.Target
	// Mode is updatePolicy.updateMode; Recreate where unset, which is what the VPA does then.
	Mode string
	// CPU is true for the containers whose CPU it writes, by name; "*" are those without an entry.
	CPU map[string]bool
	// Boosts is true if it gives containers more CPU while they start, which it does in every mode.
	Boosts bool
}

// VPAOf reads a VerticalPodAutoscaler. A field that cannot be read counts as its default, which is
// to write CPU.
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
		resources, listed, _ := unstructured.NestedStringSlice(policy, "controlledResources")
		_, boosts, _ := unstructured.NestedFieldNoCopy(policy, "startupBoost", "cpu")
		v.Boosts = v.Boosts || boosts
		v.CPU[name] = mode != "Off" && (!listed || slices.Contains(resources, string(corev1.ResourceCPU)))
	}
	return v
}

// withBuiltInVersion is the target with the API version of its kind, if that is a built-in one: the
// VPA ignores the version that such a target names (pkg/target/fetcher.go of the Vertical Pod
// Autoscaler).
func withBuiltInVersion(t kube.Target) kube.Target {
	for _, version := range []string{"apps/v1", "batch/v1", "v1"} {
		if built := (kube.Target{APIVersion: version, Kind: t.Kind, Name: t.Name}); built.KnownByOwner() {
			return built
		}
	}
	return t
}

// WritesCPU says whether the VPA would change CPU requests or limits of the pod if the pod belonged
// to its target.
func (v VPA) WritesCPU(pod *corev1.Pod) bool {
	switch {
	case v.Boosts:
		return true
	case v.Mode == "Off":
		return false
	}
	for _, c := range kube.EachContainer(pod) {
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
