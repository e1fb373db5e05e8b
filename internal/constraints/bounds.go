package constraints

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/kube"
)

// Bounds are within what a pod's limits stay.
type Bounds struct {
	Containers map[string]Bound // of those with a declared limit
	// Ceiling is that of the pod's total limit; 0: none beyond those of its containers.
	Ceiling cpu.Milli
}

// Bound is the floor and ceiling of one container's limit.
type Bound struct{ Floor, Ceiling cpu.Milli }

// BoundsOf are the bounds of a pod: its containers' requests and the node's allocatable CPU, its own mbcas.io/max-cpu, which can
// only lower the ceiling, and the terms; nil: none. Where they contradict each other:
//   - The node and the terms' ceilings come before the floors that others ask for, as the API server refuses what is above them.
//   - Where they leave no room for a limit above the request either, the containers are left as they are.
//   - A pod that must not be decreased keeps its present limit up to the declared one, or up to the floor that is asked for
//     where that is higher: what the market gave beyond these it may take back.
//   - Such a pod is lowered to a ceiling all the same.
//   - The pod's own ceiling gives way to every floor.
func BoundsOf(pod *corev1.Pod, declared []v1alpha1.ContainerLimit, allocatable cpu.Milli, terms *v1alpha1.Constraints) Bounds {
	if terms == nil {
		terms = &v1alpha1.Constraints{}
	}
	b := Bounds{Containers: make(map[string]Bound, len(declared))}
	if own, _ := kube.MaxCPU(pod); own > 0 { // a pod whose annotation cannot be read is not eligible
		b.Ceiling = own.RoundDown(cpu.Quantum)
	}
	most := cpu.Milli(0)
	if t := terms.Ceiling; t != nil {
		most = t.RoundDown(cpu.Quantum)
		b.Ceiling = lower(b.Ceiling, most)
	}
	list := bounded(pod, declared, allocatable, terms)
	floors, stuck := floorsOf(list, most)
	kept := make([]v1alpha1.ContainerLimit, len(list))
	for i, c := range list {
		bound := Bound{Floor: floors[i].CPULimit}
		if _, bound.Ceiling = c.Bounds(); stuck {
			bound.Ceiling = c.Limit
		}
		b.Containers[c.Name] = bound
		limit := min(c.Limit, max(c.Declared, bound.Floor)).Clamp(bound.Floor, bound.Ceiling)
		kept[i] = v1alpha1.ContainerLimit{Name: c.Name, CPULimit: limit}
	}
	if b.Ceiling > 0 {
		b.Ceiling = max(b.Ceiling, kube.Total(floors))
	}
	if terms.NoDecrease != "" {
		for _, p := range fit(kept, floors, b.Ceiling) {
			bound := b.Containers[p.Name]
			bound.Floor = p.CPULimit
			b.Containers[p.Name] = bound
		}
	}
	return b
}

// bounded are the containers with a declared limit, with what bounds each of them by itself.
func bounded(pod *corev1.Pod, declared []v1alpha1.ContainerLimit, allocatable cpu.Milli, terms *v1alpha1.Constraints) []demand.Container {
	asked := make(map[string]v1alpha1.ContainerConstraints, len(terms.Containers))
	for _, t := range terms.Containers {
		asked[t.Name] = t
	}
	limits := kube.ByName(declared)
	var list []demand.Container
	for _, c := range kube.Containers(pod) {
		d, ok := limits[c.Spec.Name]
		if !ok || c.Limit() == 0 {
			continue
		}
		b := demand.Container{Name: c.Spec.Name, Request: c.Request(), Declared: d, Limit: c.Limit(), Ceiling: allocatable.RoundDown(cpu.Quantum)}
		if f := asked[b.Name].Floor; f != nil {
			b.Least = f.RoundUp(cpu.Quantum)
		}
		if t := asked[b.Name].Ceiling; t != nil {
			b.Ceiling = min(b.Ceiling, t.RoundDown(cpu.Quantum))
		}
		list = append(list, b)
	}
	return list
}

// floorsOf are the floors of the containers, together within most; 0: there is no bound. stuck says that the lowest limits that can
// be set are not, so that the containers are left as they are.
func floorsOf(list []demand.Container, most cpu.Milli) (floors []v1alpha1.ContainerLimit, stuck bool) {
	floors, lowest, limits := make([]v1alpha1.ContainerLimit, len(list)), make([]v1alpha1.ContainerLimit, len(list)), make([]v1alpha1.ContainerLimit, len(list))
	for i, c := range list {
		floor, _ := c.Bounds()
		floors[i], lowest[i], limits[i] = v1alpha1.ContainerLimit{Name: c.Name, CPULimit: floor}, v1alpha1.ContainerLimit{Name: c.Name, CPULimit: c.Lowest()}, v1alpha1.ContainerLimit{Name: c.Name, CPULimit: c.Limit}
	}
	switch {
	case most == 0 || kube.Total(floors) <= most:
		return floors, false
	case kube.Total(lowest) > most:
		return limits, true
	}
	floors = fit(floors, lowest, most)
	for i, c := range list {
		if f := floors[i].CPULimit; f > c.Limit && f < demand.Floor(c.Request, 0) {
			floors[i].CPULimit = c.Limit // that much does not fit
		}
	}
	return floors, false
}

// WithinCeiling are limits for the pod's containers, scaled down to its ceiling where they exceed it together.
func (b Bounds) WithinCeiling(limits []v1alpha1.ContainerLimit) []v1alpha1.ContainerLimit {
	floors := make([]v1alpha1.ContainerLimit, len(limits))
	for i, l := range limits {
		floors[i] = v1alpha1.ContainerLimit{Name: l.Name, CPULimit: b.Containers[l.Name].Floor}
	}
	return fit(limits, floors, b.Ceiling)
}

// fit takes from each part the same share of what it has above its floor, so that together they are within the
// ceiling; 0: there is none. The floors stand in the order of the parts and are not above them.
func fit(parts, floors []v1alpha1.ContainerLimit, ceiling cpu.Milli) []v1alpha1.ContainerLimit {
	sum, least := kube.Total(parts), kube.Total(floors)
	if ceiling == 0 || sum <= ceiling {
		return parts
	}
	fitted := make([]v1alpha1.ContainerLimit, len(parts))
	for i, p := range parts {
		above := (p.CPULimit - floors[i].CPULimit).Cores() * (ceiling - least).Cores() / (sum - least).Cores()
		fitted[i] = v1alpha1.ContainerLimit{Name: p.Name, CPULimit: floors[i].CPULimit + max(0, cpu.FromCores(above)).RoundDown(cpu.Quantum)}
	}
	return fitted
}
