package constraints

import (
	"slices"
	"strings"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kube"
)

// builder collects constraints, and the names of the objects that set them.
type builder struct {
	floors, ceilings map[string]cpu.Milli
	ceiling          cpu.Milli
	floorBy          []string
	ceilingBy        []string
	noDecrease       reasons.Reason
	demandPercent    int32
	demandBy         []string
}

// addSignal adds a DemandSignal. The highest of several counts.
func (b *builder) addSignal(s Signal) {
	if s.Percent <= 100 || s.Percent < b.demandPercent {
		return
	}
	if s.Percent > b.demandPercent {
		b.demandPercent, b.demandBy = s.Percent, nil
	}
	b.demandBy = append(b.demandBy, "DemandSignal/"+s.Name)
}

// addFloors adds floors by container.
func (b *builder) addFloors(floors map[string]cpu.Milli, by string) {
	if len(floors) == 0 {
		return
	}
	for name, f := range floors {
		b.floors[name] = max(b.floors[name], f)
	}
	b.floorBy = append(b.floorBy, by)
}

// addLimitRange adds the bounds of a LimitRange. The minimum of the pod is divided like the
// declared limits.
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

// build is the result, for the containers with a declared limit and in the order of these limits. A floor that
// no object of MBCAS can hold, and no node reaches, is lowered to what it can hold.
func (b *builder) build(declared []v1alpha1.ContainerLimit) v1alpha1.Constraints {
	all := v1alpha1.Constraints{NoDecrease: string(b.noDecrease), FloorBy: joinNames(b.floorBy), CeilingBy: joinNames(b.ceilingBy)}
	if b.ceiling > 0 {
		all.Ceiling = &b.ceiling
	}
	if b.demandPercent > 0 {
		all.DemandPercent, all.DemandBy = &b.demandPercent, joinNames(b.demandBy)
	}
	for _, d := range declared {
		c := v1alpha1.ContainerConstraints{Name: d.Name}
		if f := min(b.floors[d.Name], cpu.Largest); f > 0 {
			c.Floor = &f
		}
		if m := b.ceilings[d.Name]; m > 0 {
			c.Ceiling = &m
		}
		if c.Floor != nil || c.Ceiling != nil {
			all.Containers = append(all.Containers, c)
		}
	}
	return all
}

// joinNames lists names of objects for a field of the API, which has a maximum length.
func joinNames(list []string) string {
	slices.Sort(list)
	s := strings.Join(slices.Compact(list), ", ")
	const maxLength = 512
	return s[:min(len(s), maxLength)]
}
