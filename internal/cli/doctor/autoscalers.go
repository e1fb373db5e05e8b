package doctor

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"

	"github.com/mbcas/mbcas/internal/cli/format"
	"github.com/mbcas/mbcas/internal/constraints"
	"github.com/mbcas/mbcas/internal/kube"
)

// checkHPAs says what MBCAS does for autoscalers that scale on CPU usage. They compare usage with
// the request, and usage cannot exceed the limit.
func checkHPAs(f *findings, s subject) {
	n := s.namespace
	for i := range n.objects.HPAs {
		h := &n.objects.HPAs[i]
		if err := n.objects.Unresolved[kube.HPATarget(h)]; err != nil {
			f.unresolved(n.name, "HPA "+h.Name+" scales", err)
			continue
		}
		only := constraints.NamespaceObjects{HPAs: n.objects.HPAs[i : i+1], Selectors: n.objects.Selectors}
		scaled := 0
		for _, p := range n.candidates {
			if _, constrains := only.ConstraintsOf(p, nil); constrains {
				scaled++
			}
		}
		text := fmt.Sprintf("HPA %s scales %s on CPU usage: their limits stay high enough for it to see load", h.Name,
			format.Plural(scaled, "pod"))
		switch {
		case scaled == 0:
		case h.Annotations[kube.AllowDecreaseKey] == "true":
			f.ok(n.name, "%s, and may decrease to that (%s=true)", text, kube.AllowDecreaseKey)
		default:
			f.ok(n.name, "%s, and do not decrease unless it is annotated %s=true", text, kube.AllowDecreaseKey)
		}
	}
}

// checkBudgets counts the pods whose limits do not decrease because no disruption is allowed.
func checkBudgets(f *findings, s subject) {
	n := s.namespace
	var names []string
	affected := map[*corev1.Pod]bool{}
	for i := range n.objects.PDBs {
		only := constraints.NamespaceObjects{PDBs: []policyv1.PodDisruptionBudget{n.objects.PDBs[i]}}
		applies := false
		for _, p := range n.candidates {
			if c, _ := only.ConstraintsOf(p, nil); c.NoDecrease != "" {
				affected[p], applies = true, true
			}
		}
		if applies {
			names = append(names, n.objects.PDBs[i].Name)
		}
	}
	if len(names) == 0 {
		return
	}
	kind, verb := "PodDisruptionBudget", "allows"
	if len(names) > 1 {
		kind, verb = "PodDisruptionBudgets", "allow"
	}
	text := fmt.Sprintf("%s %s %s no disruption now: the limits of %d of %s do not decrease",
		kind, format.Few(names), verb, len(affected), format.Plural(len(n.candidates), "pod"))
	if 2*len(affected) <= len(n.candidates) {
		f.ok(n.name, "%s", text)
		return
	}
	f.warn(n.name, text+", so the market has little room here",
		fmt.Sprintf("If a lower CPU limit does no harm there: kubectl annotate pdb -n %s %s %s=true", n.name,
			strings.Join(names, " "), kube.AllowDecreaseKey))
}

// checkVPAs says which pods MBCAS leaves to VerticalPodAutoscalers, and where the two may still
// interfere.
func checkVPAs(f *findings, s subject) {
	n := s.namespace
	for _, v := range n.objects.VPAs {
		if err := n.objects.Unresolved[v.Target]; err != nil {
			f.unresolved(n.name, "VPA "+v.Name+" changes", err)
			continue
		}
		var written, allocated, shared []*corev1.Pod
		for _, p := range n.vpaPods {
			if s.Objects.VPA(p) == v.Name {
				written = append(written, p)
				if s.Allocations[p.UID] != nil {
					allocated = append(allocated, p)
				}
			}
		}
		for _, p := range n.candidates {
			if v.Target.Owns(p, n.objects.Selectors[v.Target]) {
				shared = append(shared, p)
			}
		}
		if len(written) > 0 {
			f.ok(n.name, "%s left to VPA %s, which writes CPU requests and limits", format.Are(len(written), "pod"),
				v.Name)
		}
		if len(allocated) > 0 {
			f.warn(n.name, fmt.Sprintf("VPA %s writes the CPU of %s that MBCAS still manages (%s)",
				v.Name, format.Plural(len(allocated), "pod"), format.Few(podNames(allocated))),
				"Wait some seconds; if it stays so, check the controller's log.")
		}
		// Its updater evicts a pod whose resize failed or hangs, also a resize by MBCAS (VPA 1.8,
		// pkg/updater/restriction/pods_inplace_restriction.go). A VPA that writes no CPU may still
		// change memory.
		if v.Mode == "InPlaceOrRecreate" && len(shared) > 0 {
			f.warn(n.name, fmt.Sprintf("VPA %s does not write CPU and may resize %s in place (%s); it evicts a "+
				"pod whose resize hangs, including resizes by MBCAS",
				v.Name, format.Plural(len(shared), "managed pod"), format.Few(podNames(shared))),
				"Set its updateMode to Initial, or label these pods "+kube.ManagedKey+"=false.")
		}
	}
}
