// Package constraints derives what Kubernetes objects demand of one pod: the floors and ceilings of
// its limits, whether its limits may decrease, and whether the API server refuses every resize of
// it. Sources are HPAs, VPAs, PodDisruptionBudgets, LimitRanges, ResourceQuotas, DemandSignals, the
// node and the pod itself. Everything here is a pure function of objects.
package constraints

import (
	"cmp"
	"fmt"
	"slices"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/kube"
)

// NamespaceObjects are the objects of one namespace that constrain its pods.
type NamespaceObjects struct {
	// KeepsDeclared is the name of the namespace if it forbids limits below the declared ones; "": it
	// allows them.
	KeepsDeclared string
	MaxRaise      int // of its pods, as far as these say none; 0: the default
	HPAs          []autoscalingv2.HorizontalPodAutoscaler
	VPAs          []VPA
	PDBs          []PDB // those that allow no disruption
	LimitRanges   []corev1.LimitRange
	Quotas        []corev1.ResourceQuota
	Signals       []Signal // of DemandSignals
	// Selectors are those of the targets whose pods are found by label selector and not by owner.
	Selectors map[kube.Target]labels.Selector
	// LookupErrors are the targets whose selector could not be read, and why.
	LookupErrors map[kube.Target]string
}

// Signal is the current value of a DemandSignal.
type Signal struct {
	Name    string // of the DemandSignal
	Target  kube.Target
	Percent int32 // by which the demand of the target's pods is multiplied
}

// SelectedTargets are the targets whose pods are found by label selector, each once.
func (n *NamespaceObjects) SelectedTargets() []kube.Target {
	var targets []kube.Target
	add := func(t kube.Target) {
		if !t.KnownByOwner() && !slices.Contains(targets, t) {
			targets = append(targets, t)
		}
	}
	for _, s := range n.Signals {
		add(s.Target)
	}
	for i := range n.HPAs {
		add(kube.HPATarget(&n.HPAs[i]))
	}
	for _, v := range n.VPAs {
		add(v.Target)
	}
	return targets
}

// FailedLookup describes an autoscaler that may manage the pod, because the selector of its target
// could not be read; "" where there is none. Autoscalers that change nothing about the pod's CPU
// are left out.
func (n *NamespaceObjects) FailedLookup(pod *corev1.Pod) string {
	for _, v := range n.VPAs {
		if why := n.LookupErrors[v.Target]; why != "" && v.WritesCPU(pod) {
			return fmt.Sprintf("the pods of VerticalPodAutoscaler %s, by its target %s: %s", v.Name, v.Target, why)
		}
	}
	for i := range n.HPAs {
		h := &n.HPAs[i]
		if why := n.LookupErrors[kube.HPATarget(h)]; why != "" && len(hpaFloors(h, pod)) > 0 {
			return fmt.Sprintf("the pods of HorizontalPodAutoscaler %s, by its target %s: %s", h.Name, kube.HPATarget(h), why)
		}
	}
	return ""
}

// VPAFor is the name of the VerticalPodAutoscaler that writes the pod's CPU; false where there is
// none.
func (n *NamespaceObjects) VPAFor(pod *corev1.Pod) (string, bool) {
	for _, v := range n.VPAs {
		if v.WritesCPU(pod) && v.Target.Owns(pod, n.Selectors[v.Target]) {
			return v.Name, true
		}
	}
	return "", false
}

// Refusal is the reason why the API server refuses every resize of the pod, with a message; ""
// where it does not.
func (n *NamespaceObjects) Refusal(pod *corev1.Pod) (reasons.Reason, string) {
	if r, message := LimitRangeRefusal(pod, n.LimitRanges); r != "" {
		return r, message
	}
	for i := range n.Quotas {
		q := &n.Quotas[i]
		if !QuotaSelects(q, pod) {
			continue
		}
		if c, value := MissingValue(q, pod); c != "" {
			return reasons.QuotaNeedsLimits, "ResourceQuota " + q.Name + " requires " + value + " of container " + c
		}
	}
	return "", ""
}

// ConstraintsOf are the constraints of a pod with these declared limits. ResourceQuotas are not
// among them: what a quota leaves is for all pods of the namespace together. scaledByHPA is true
// for a pod that an HPA scales by its CPU usage.
func (n *NamespaceObjects) ConstraintsOf(
	pod *corev1.Pod, declared []v1alpha1.ContainerLimit,
) (c v1alpha1.Constraints, scaledByHPA bool) {
	b := builder{floors: map[string]cpu.Milli{}, ceilings: map[string]cpu.Milli{}}
	for i := range n.HPAs {
		h := &n.HPAs[i]
		if target := kube.HPATarget(h); !target.Owns(pod, n.Selectors[target]) {
			continue
		}
		floors := hpaFloors(h, pod)
		if len(floors) == 0 {
			continue
		}
		scaledByHPA = true
		b.addFloors(floors, "HorizontalPodAutoscaler/"+h.Name)
		if h.Annotations[kube.AllowDecreaseKey] != "true" {
			b.noDecrease = reasons.ScaledByHPA
		}
	}
	if b.noDecrease == "" && slices.ContainsFunc(n.PDBs, func(p PDB) bool { return p.selects(pod) }) {
		b.noDecrease = reasons.NoDisruptionAllowed
	}
	for i := range n.LimitRanges {
		r := &n.LimitRanges[i]
		b.addLimitRange(limitRangeBoundsOf(pod, r), declared, "LimitRange/"+r.Name)
	}
	if n.KeepsDeclared != "" {
		b.addFloors(kube.ByName(declared), "Namespace/"+n.KeepsDeclared)
	}
	for _, s := range n.Signals {
		if s.Target.Owns(pod, n.Selectors[s.Target]) {
			b.addSignal(s)
		}
	}
	c = b.build(declared)
	if raise, _ := kube.MaxRaise(pod, cmp.Or(n.MaxRaise, demand.DefaultMaxRaise)); raise != demand.DefaultMaxRaise {
		c.MaxRaise = ptr.To(int32(raise))
	}
	return c, scaledByHPA
}
