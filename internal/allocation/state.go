package allocation

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/constraints"
	"github.com/mbcas/mbcas/internal/kube"
)

// State is the pod as the actuator sees it: spec limits, bounds, what is wanted, and when it was last
// moved. The caller adds what it knows beyond the two objects (Restore, InFlight, NoDecrease, RetryAt).
func State(pod *corev1.Pod, pa *v1alpha1.PodAllocation, allocatable cpu.Milli) actuator.Pod {
	p := actuator.Pod{UID: string(pod.UID)}
	wanted, bounds := kube.ByName(pa.Spec.Containers), constraints.BoundsOf(pod, pa.Status.DeclaredLimits, allocatable, pa.Status.Constraints)
	declared := kube.ByName(pa.Status.DeclaredLimits)
	var sum cpu.Milli
	var wants []v1alpha1.ContainerLimit
	var settable []cpu.Milli
	for _, c := range kube.Containers(pod) {
		name, limit := c.Spec.Name, c.Limit()
		b, ok := bounds.Containers[name]
		if !ok {
			continue // without a limit, or limited after the record was made: not ours to move
		}
		p.Containers = append(p.Containers, actuator.Container{
			Name: name, Limit: limit, Declared: declared[name],
			Floor: b.Floor, Ceiling: b.Ceiling, Desired: wanted[name],
		})
		want := wanted[name]
		switch {
		case want == 0:
			want = limit
		case want > limit:
			want = max(want, b.Settable)
		}
		sum += limit
		wants = append(wants, v1alpha1.ContainerLimit{Name: name, CPULimit: want.Clamp(b.Floor, b.Ceiling)})
		settable = append(settable, b.Settable)
	}
	for i, w := range bounds.WithinCeiling(wants) {
		c := &p.Containers[i]
		if c.Desired > 0 {
			c.Desired = w.CPULimit
			if w.CPULimit > c.Limit && w.CPULimit < settable[i] {
				c.Desired = c.Limit // that much does not fit
			}
		}
		if bounds.Ceiling > 0 && sum > bounds.Ceiling { // a pod above its ceiling comes down however little it is
			c.Ceiling = min(c.Ceiling, w.CPULimit)
		}
	}
	if t := pa.Status.LastDecreaseTime; t != nil {
		p.LastDecrease = t.Time
	}
	if t := pa.Status.LastIncreaseTime; t != nil {
		p.LastIncrease = t.Time
	}
	return p
}
