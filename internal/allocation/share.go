package allocation

import (
	"math"

	corev1 "k8s.io/api/core/v1"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kube"
)

// Share is what a pod demands, against what its budget buys.
type Share struct {
	// Demand is the CPU that the containers with a limit would use without one, up to the pod's ceiling.
	Demand cpu.Milli
	// Deficit is the part of it beyond what the budget buys at the node's price, or beyond the request where that is
	// more; 0 while the price does not cap the pod.
	Deficit cpu.Milli
	// Certain is the CPU that the pod gets at any price if it demands it: the request of these containers, 10m at least.
	Certain cpu.Milli
}

// ShareOf is the share of a pod by its last published decision; zero where there is none.
func ShareOf(pod *corev1.Pod, pa *v1alpha1.PodAllocation) (s Share) {
	d, declared := pa.Spec.Decision, kube.ByName(pa.Status.DeclaredLimits)
	if d == nil {
		return s
	}
	for _, c := range kube.Containers(pod) {
		if declared[c.Spec.Name] > 0 {
			s.Certain += c.Request()
		}
	}
	s.Certain = max(s.Certain, cpu.Quantum)
	s.Demand = min(d.Demand, d.Ceiling)
	if d.Price > 0 && (d.BoundBy == v1alpha1.BoundByPrice || d.BoundBy == v1alpha1.BoundByFloor) {
		line := cpu.Milli(math.Round(min(float64(d.Budget)/float64(d.Price), float64(d.Ceiling))))
		s.Deficit = max(0, s.Demand-max(line, s.Certain))
	}
	return s
}
