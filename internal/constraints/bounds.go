package constraints

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/kube"
)

// Bounds are the bounds of a pod's limits.
type Bounds struct {
	Containers map[string]demand.Bounds // of those with a declared limit
	// Ceiling is that of the pod's total limit; 0: none beyond those of its containers.
	Ceiling cpu.Milli
}

// Total are the bounds of the sum of the limits.
func (b Bounds) Total() (floor, ceiling cpu.Milli) {
	for _, c := range b.Containers {
		floor += c.Floor
		ceiling += c.Ceiling
	}
	if b.Ceiling > 0 {
		ceiling = min(ceiling, b.Ceiling)
	}
	return floor, ceiling
}

// BoundsOf are the bounds of a pod: its containers' requests, the node's allocatable CPU and the
// multiple of their declared limits, its own mbcas.io/max-cpu, which can only lower the ceiling, and
// the constraints; nil: none. Where they contradict each other:
//   - The node and the ceilings of the constraints come before their floors, as the API server
//     refuses what is above these ceilings.
//   - Where they leave no room for a limit above the request either, the containers keep the limits
//     that they have.
//   - A pod that must not be decreased keeps its present limit up to the declared one, or up to the
//     floor of a constraint where that is higher: what the market gave beyond these it may take
//     back.
//   - Such a pod is lowered to a ceiling all the same.
//   - The pod's own ceiling, and the multiple of declared limits, give way to every floor.
func BoundsOf(pod *corev1.Pod, declared []v1alpha1.ContainerLimit, allocatable cpu.Milli, constraints *v1alpha1.Constraints) Bounds {
	if constraints == nil {
		constraints = &v1alpha1.Constraints{}
	}
	b := Bounds{Containers: make(map[string]demand.Bounds, len(declared))}
	if own, _ := kube.MaxCPU(pod); own > 0 { // a pod whose annotation cannot be read is not eligible
		b.Ceiling = max(cpu.Quantum, own.RoundDown(cpu.Quantum))
	}
	list := withBounds(pod, declared, allocatable, constraints)
	if t := constraints.Ceiling; t != nil && *t >= cpu.Quantum {
		ceiling := t.RoundDown(cpu.Quantum)
		b.Ceiling = lowerCeiling(b.Ceiling, ceiling)
		fitFloors(list, ceiling)
	}
	floors := limitsOf(list, func(c demand.Container) cpu.Milli { return c.Floor })
	if b.Ceiling > 0 {
		b.Ceiling = max(b.Ceiling, total(floors))
	}
	if constraints.NoDecrease != "" {
		kept := limitsOf(list, func(c demand.Container) cpu.Milli {
			return min(c.Limit, max(c.Declared, c.Floor)).Clamp(c.Floor, c.Ceiling)
		})
		for i, l := range cpu.FitTotal(kept, floors, b.Ceiling) {
			list[i].Floor = l
		}
	}
	for _, c := range list {
		b.Containers[c.Name] = c.Bounds
	}
	return b
}

// withBounds are the containers with a declared limit, each with bounds of its own.
func withBounds(pod *corev1.Pod, declared []v1alpha1.ContainerLimit, allocatable cpu.Milli, constraints *v1alpha1.Constraints) []demand.Container {
	of := make(map[string]v1alpha1.ContainerConstraints, len(constraints.Containers))
	for _, t := range constraints.Containers {
		of[t.Name] = t
	}
	limits := kube.ByName(declared)
	var list []demand.Container
	for _, c := range kube.Containers(pod) {
		d, ok := limits[c.Spec.Name]
		if !ok || c.Limit() == 0 {
			continue
		}
		floor := cpu.Milli(0)
		if f := of[c.Spec.Name].Floor; f != nil {
			floor = f.RoundUp(cpu.Quantum)
		}
		raised := demand.RaiseCeiling(d, int(ptr.Deref(constraints.MaxRaise, demand.DefaultMaxRaise)))
		ceiling := min(allocatable.RoundDown(cpu.Quantum), max(floor, raised, demand.Settable(c.Request())))
		if m := of[c.Spec.Name].Ceiling; m != nil {
			ceiling = min(ceiling, m.RoundDown(cpu.Quantum))
		}
		bare := demand.Container{Name: c.Spec.Name, Request: c.Request(), Declared: d, Limit: c.Limit()}
		list = append(list, bare.Within(floor, ceiling))
	}
	return list
}

// fitFloors lowers floors until they fit the pod's ceiling together, none below its container's
// minimum. If even the minimums do not fit, each container keeps the limit that it has.
func fitFloors(list []demand.Container, ceiling cpu.Milli) {
	floors := limitsOf(list, func(c demand.Container) cpu.Milli { return c.Floor })
	minimums := limitsOf(list, func(c demand.Container) cpu.Milli { return c.Minimum })
	if total(minimums) > ceiling {
		for i := range list {
			list[i].Floor, list[i].Ceiling = list[i].Limit, list[i].Limit
		}
		return
	}
	for i, l := range cpu.FitTotal(floors, minimums, ceiling) {
		c := &list[i]
		c.Floor = l
		if c.Floor > c.Limit && c.Floor < c.Settable {
			c.Floor = c.Limit // an increase by so little cannot be set
		}
	}
}

func limitsOf(list []demand.Container, limit func(demand.Container) cpu.Milli) []cpu.Milli {
	limits := make([]cpu.Milli, len(list))
	for i, c := range list {
		limits[i] = limit(c)
	}
	return limits
}

func total(limits []cpu.Milli) (sum cpu.Milli) {
	for _, l := range limits {
		sum += l
	}
	return sum
}
