package doctor

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"

	"github.com/mbcas/mbcas/internal/cli/format"
	"github.com/mbcas/mbcas/internal/cli/snapshot"
	"github.com/mbcas/mbcas/internal/constraints"
	"github.com/mbcas/mbcas/internal/kube"
)

// diagnoseHPAs says what is done for autoscalers that look at the CPU use of pods: they compare it with the request, and it
// stops at the limit.
func diagnoseHPAs(f *findings, namespace string, n *snapshot.NamespaceObjects, pods []*corev1.Pod) {
	for i := range n.HPAs {
		h := &n.HPAs[i]
		if err := n.Unresolved[kube.HPATarget(h)]; err != nil {
			f.hidden(namespace, "HPA "+h.Name+" scales", err)
			continue
		}
		alone := constraints.Neighbourhood{HPAs: n.HPAs[i : i+1], Selectors: n.Selectors}
		watched := 0
		for _, p := range pods {
			if _, watches := alone.Terms(p, nil); watches {
				watched++
			}
		}
		text := fmt.Sprintf("HPA %s scales %s by CPU use: limits there stay where it can see load", h.Name, format.Plural(watched, "pod"))
		switch {
		case watched == 0:
		case h.Annotations[kube.AllowDecreaseKey] == "true":
			f.ok(namespace, "%s, and may be lowered to that (%s=true)", text, kube.AllowDecreaseKey)
		default:
			f.ok(namespace, "%s, and are not lowered, unless it is annotated %s=true", text, kube.AllowDecreaseKey)
		}
	}
}

// diagnoseBudgets counts the pods that are not lowered because no disruption of them is allowed.
func diagnoseBudgets(f *findings, namespace string, n *snapshot.NamespaceObjects, pods []*corev1.Pod) {
	var names []string
	still := map[*corev1.Pod]bool{}
	for i := range n.Budgets {
		alone := constraints.Neighbourhood{Budgets: []policyv1.PodDisruptionBudget{n.Budgets[i]}}
		holds := false
		for _, p := range pods {
			if terms, _ := alone.Terms(p, nil); terms.NoDecrease != "" {
				still[p], holds = true, true
			}
		}
		if holds {
			names = append(names, n.Budgets[i].Name)
		}
	}
	if len(names) == 0 {
		return
	}
	kind, verb := "PodDisruptionBudget", "allows"
	if len(names) > 1 {
		kind, verb = "PodDisruptionBudgets", "allow"
	}
	text := fmt.Sprintf("%s %s %s no disruption now: %d of %s not lowered", kind, format.Few(names), verb, len(still), format.Plural(len(pods), "pod"))
	if 2*len(still) <= len(pods) {
		f.ok(namespace, "%s", text)
		return
	}
	f.warn(namespace, text+", so the market has little room here",
		fmt.Sprintf("If a lower CPU limit does no harm there: kubectl annotate pdb -n %s %s %s=true", namespace, strings.Join(names, " "), kube.AllowDecreaseKey))
}

// diagnoseVPAs says which pods are left to VerticalPodAutoscalers, and where the two could still disturb each other.
func diagnoseVPAs(f *findings, c *Facts, namespace string, n *snapshot.NamespaceObjects, left, pods []*corev1.Pod) {
	for _, v := range n.VPAs {
		if err := n.Unresolved[v.Target]; err != nil {
			f.hidden(namespace, "VPA "+v.Name+" changes", err)
			continue
		}
		var taken, allocated, shared []*corev1.Pod
		for _, p := range left {
			if c.Objects.VPA(p) == v.Name {
				taken = append(taken, p)
				if c.Allocations[p.UID] != nil {
					allocated = append(allocated, p)
				}
			}
		}
		for _, p := range pods {
			if v.Target.Owns(p, n.Selectors[v.Target]) {
				shared = append(shared, p)
			}
		}
		if len(taken) > 0 {
			f.ok(namespace, "%s left to VPA %s, which writes CPU requests and limits", format.Are(len(taken), "pod"), v.Name)
		}
		if len(allocated) > 0 {
			f.warn(namespace, fmt.Sprintf("VPA %s writes the CPU of %s that MBCAS has not let go yet (%s)", v.Name, format.Plural(len(allocated), "pod"), format.Few(podNames(allocated))),
				"Wait some seconds; if it stays so, look at the controller's log.")
		}
		// Its updater evicts a pod with a resize that failed or hangs, without asking whose that is (VPA 1.8,
		// pkg/updater/restriction/pods_inplace_restriction.go). One that writes no CPU may still change memory.
		if v.Mode == "InPlaceOrRecreate" && len(shared) > 0 {
			f.warn(namespace, fmt.Sprintf("VPA %s leaves CPU alone and may resize %s in place (%s); it evicts a pod whose resize hangs, whoever asked for it", v.Name, format.Plural(len(shared), "managed pod"), format.Few(podNames(shared))),
				"Set its updateMode to Initial, or label these pods "+kube.ManagedKey+"=false.")
		}
	}
}
