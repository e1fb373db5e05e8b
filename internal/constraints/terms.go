// Package constraints derives, from the Kubernetes objects of a namespace and of the node, within which bounds the limits of one pod stay
// and whether it may be lowered or resized at all. It holds no client: everything here is a pure function of objects.
package constraints

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kube"
)

// Neighbourhood is what the objects of a namespace say about its pods.
type NamespaceObjects struct {
	HPAs        []autoscalingv2.HorizontalPodAutoscaler
	VPAs        []VPA
	PDBs        []policyv1.PodDisruptionBudget
	LimitRanges []corev1.LimitRange
	Quotas      []corev1.ResourceQuota
	Signals     []Signal // of DemandSignals
	// Selectors are those of the targets whose pods are not known by their owners.
	Selectors map[kube.Target]labels.Selector
	// Untold are those that could not be asked for their pods, and why.
	LookupErrors map[kube.Target]string
}

// Ask is what a DemandSignal has the demand of its target's pods taken for, in percent.
type Signal struct {
	Name    string // of the DemandSignal
	Target  kube.Target
	Percent int32
}

// Scaled are the targets whose pods are not known by their owners, each once.
func (n *NamespaceObjects) SelectedTargets() []kube.Target {
	var targets []kube.Target
	add := func(t kube.Target) {
		if !t.KnownByOwner() && !slices.Contains(targets, t) {
			targets = append(targets, t)
		}
	}
	for _, a := range n.Signals {
		add(a.Target)
	}
	for i := range n.HPAs {
		add(kube.HPATarget(&n.HPAs[i]))
	}
	for _, v := range n.VPAs {
		add(v.Target)
	}
	return targets
}

// Unsure says of which autoscaler the pod may be, whose target could not be asked for its pods; "" where there is none that would make a
// difference to it.
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

// VPA names the VerticalPodAutoscaler that writes the pod's CPU; false where none does.
func (n *NamespaceObjects) VPAFor(pod *corev1.Pod) (string, bool) {
	for _, v := range n.VPAs {
		if v.WritesCPU(pod) && v.Target.Owns(pod, n.Selectors[v.Target]) {
			return v.Name, true
		}
	}
	return "", false
}

// Bars says why the API server refuses every resize of the pod, in a word and with what stands in the way; "" where it does not.
func (n *NamespaceObjects) Refusal(pod *corev1.Pod) (reasons.Reason, string) {
	if r, said := LimitRangeRefusal(pod, n.LimitRanges); r != "" {
		return r, said
	}
	for i := range n.Quotas {
		q := &n.Quotas[i]
		if !QuotaSelects(q, pod) {
			continue
		}
		if c, value := MissingValue(q, pod); c != "" {
			return reasons.QuotaNeedsLimits, "ResourceQuota " + q.Name + " wants " + value + " of container " + c
		}
	}
	return "", ""
}

// Terms are what the namespace asks of decisions about the pod, whose declared limits are given. Quotas are not among them: what they
// leave is for all pods of the namespace together. cautious says that an HPA watches the pod, so that it is lowered seldom if at all.
func (n *NamespaceObjects) ConstraintsOf(pod *corev1.Pod, declared []v1alpha1.ContainerLimit) (terms v1alpha1.Constraints, cautious bool) {
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
		cautious = true
		b.addFloors(floors, "HorizontalPodAutoscaler/"+h.Name)
		if h.Annotations[kube.AllowDecreaseKey] != "true" {
			b.noDecrease = reasons.ScaledByHPA
		}
	}
	for i := range n.PDBs {
		p := &n.PDBs[i]
		if b.noDecrease == "" && selectsPod(p, pod) && allowsNoDisruption(p) && p.Annotations[kube.AllowDecreaseKey] != "true" {
			b.noDecrease = reasons.NoDisruptionAllowed
		}
	}
	for i := range n.LimitRanges {
		r := &n.LimitRanges[i]
		b.addLimitRange(limitRangeBoundsOf(pod, r), declared, "LimitRange/"+r.Name)
	}
	for _, a := range n.Signals {
		if a.Target.Owns(pod, n.Selectors[a.Target]) {
			b.addSignal(a)
		}
	}
	return b.build(declared), cautious
}

// termsBuilder collects bounds, and who sets them.
type builder struct {
	floors, ceilings map[string]cpu.Milli
	ceiling          cpu.Milli
	floorBy          []string
	ceilingBy        []string
	noDecrease       reasons.Reason
	demandPercent    int32 // in percent
	demandBy         []string
}

// ask takes over what a DemandSignal asks for: of several the most counts.
func (b *builder) addSignal(a Signal) {
	if a.Percent <= 100 || a.Percent < b.demandPercent {
		return
	}
	if a.Percent > b.demandPercent {
		b.demandPercent, b.demandBy = a.Percent, nil
	}
	b.demandBy = append(b.demandBy, "DemandSignal/"+a.Name)
}

func (b *builder) addFloors(floors map[string]cpu.Milli, by string) {
	if len(floors) == 0 {
		return
	}
	for name, f := range floors {
		b.floors[name] = max(b.floors[name], f)
	}
	b.floorBy = append(b.floorBy, by)
}

// within takes over the bounds of a LimitRange. A least total is divided as the declared limits are.
func (b *builder) addLimitRange(r limitRangeBounds, declared []v1alpha1.ContainerLimit, by string) {
	if sum := kube.Total(declared); r.floor > 0 && sum > 0 {
		for _, d := range declared {
			part := cpu.FromCores(r.floor.Cores() * d.CPULimit.Cores() / sum.Cores()).RoundUp(cpu.Quantum)
			r.floors[d.Name] = max(r.floors[d.Name], part)
		}
	}
	b.addFloors(r.floors, by)
	for name, c := range r.ceilings {
		b.ceilings[name] = lowerCeiling(b.ceilings[name], c)
	}
	b.ceiling = lowerCeiling(b.ceiling, r.ceiling)
	if len(r.ceilings) > 0 || r.ceiling > 0 {
		b.ceilingBy = append(b.ceilingBy, by)
	}
}

// terms are the bounds of the containers with a declared limit, in the order of those.
func (b *builder) build(declared []v1alpha1.ContainerLimit) v1alpha1.Constraints {
	t := v1alpha1.Constraints{NoDecrease: string(b.noDecrease), FloorBy: joinNames(b.floorBy), CeilingBy: joinNames(b.ceilingBy)}
	if b.ceiling > 0 {
		t.Ceiling = &b.ceiling
	}
	if b.demandPercent > 0 {
		t.DemandPercent, t.DemandBy = &b.demandPercent, joinNames(b.demandBy)
	}
	for _, d := range declared {
		c := v1alpha1.ContainerConstraints{Name: d.Name}
		if f := b.floors[d.Name]; f > 0 {
			c.Floor = &f
		}
		if m := b.ceilings[d.Name]; m > 0 {
			c.Ceiling = &m
		}
		if c.Floor != nil || c.Ceiling != nil {
			t.Containers = append(t.Containers, c)
		}
	}
	return t
}

// names are the names of objects in a sentence, within the bounds of the API.
func joinNames(list []string) string {
	set := map[string]bool{}
	for _, s := range list {
		set[s] = true
	}
	s := strings.Join(slices.Sorted(maps.Keys(set)), ", ")
	const most = 512
	if len(s) > most {
		s = s[:most]
	}
	return s
}
