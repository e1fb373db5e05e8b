package nodeallocation

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
)

// tighter are the pods as they are told, with what of these others only tightens their constraints.
func tighter(told, others []v1alpha1.NodePod) []v1alpha1.NodePod {
	pods := slices.Clone(told)
	for i := range pods {
		p := &pods[i]
		at := slices.IndexFunc(others, func(o v1alpha1.NodePod) bool { return o.UID == p.UID })
		if at >= 0 {
			p.Constraints = tightened(p.Constraints, others[at].Constraints)
		}
	}
	return pods
}

// tightened are constraints with the NoDecrease of others, and those ceilings of theirs that are lower.
func tightened(told, others *v1alpha1.Constraints) *v1alpha1.Constraints {
	if others == nil {
		others = &v1alpha1.Constraints{}
	}
	c := v1alpha1.Constraints{}
	if told != nil {
		c = *told.DeepCopy()
	}
	c.NoDecrease = cmp.Or(c.NoDecrease, others.NoDecrease)
	if ptr.Deref(others.MaxRaise, demand.DefaultMaxRaise) < ptr.Deref(c.MaxRaise, demand.DefaultMaxRaise) {
		c.MaxRaise = others.MaxRaise
	}
	lowered := lower(&c.Ceiling, others.Ceiling)
	for _, o := range others.Containers {
		at := slices.IndexFunc(c.Containers, func(c v1alpha1.ContainerConstraints) bool { return c.Name == o.Name })
		if at < 0 {
			if o.Ceiling == nil {
				continue
			}
			at = len(c.Containers)
			c.Containers = append(c.Containers, v1alpha1.ContainerConstraints{Name: o.Name})
		}
		lowered = lower(&c.Containers[at].Ceiling, o.Ceiling) || lowered
	}
	if lowered {
		c.CeilingBy = others.CeilingBy
	}
	if told == nil && equality.Semantic.DeepEqual(c, v1alpha1.Constraints{}) {
		return nil
	}
	return &c
}

// lower lowers a ceiling, and says whether it did; nil: there is none.
func lower(ceiling **cpu.Milli, to *cpu.Milli) bool {
	if to == nil || *ceiling != nil && **ceiling <= *to {
		return false
	}
	*ceiling = to
	return true
}
