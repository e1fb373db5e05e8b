package allocation

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/constraints"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/quota"
	"github.com/mbcas/mbcas/internal/round"
	"github.com/mbcas/mbcas/market"
)

// Node is what a round needs of the node.
func Node(n *corev1.Node) round.Node {
	node := round.Node{
		Capacity:    kube.Milli(n.Status.Capacity[corev1.ResourceCPU]),
		Allocatable: kube.Milli(n.Status.Allocatable[corev1.ResourceCPU]),
	}
	for _, c := range n.Status.Conditions {
		switch c.Type {
		case corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure:
			if c.Status == corev1.ConditionTrue {
				node.Pressures++
			}
		}
	}
	return node
}

// DemandPod is what a round needs of the pod. A pod of which the agent is told nothing is unmanaged:
// its usage counts, and it is never resized.
func DemandPod(pod *corev1.Pod, told *v1alpha1.NodePod, allocatable cpu.Milli) demand.Pod {
	p := demand.Pod{UID: string(pod.UID), Unmanaged: true, PublishDemand: kube.ShareSignal(pod)}
	p.PriorityPercent = int32(math.Round(100 * demand.PriorityMultiplier(kube.Priority(pod))))
	var declared map[string]cpu.Milli
	var bounds constraints.Bounds
	if told != nil && told.UID == pod.UID && len(told.DeclaredLimits) > 0 {
		p.Unmanaged = false
		declared = kube.ByName(told.DeclaredLimits)
		bounds = constraints.BoundsOf(pod, told.DeclaredLimits, allocatable, told.Constraints)
		p.Ceiling = bounds.Ceiling
		if t := told.Constraints; t != nil {
			p.IncreaseOnNeed = t.IncreaseOnNeed
			p.CoordinationPercent, p.DemandPercent = ptr.Deref(t.CoordinationPercent, 0), ptr.Deref(t.DemandPercent, 0)
		}
	}
	var requests cpu.Milli
	for _, c := range kube.Containers(pod) {
		if c.Spec.Name == v1alpha1.PodLevel && !kube.SharesLimit(pod) { // the containers count
			continue
		}
		p.Containers = append(p.Containers, demand.Container{
			Name: c.Spec.Name, ID: c.RuntimeID(), Request: c.Request(),
			Declared: declared[c.Spec.Name], Limit: c.Limit(),
			Bounds: bounds.Containers[c.Spec.Name],
		})
		requests += c.Request()
	}
	p.Budget = p.Weights.Budget(requests)
	return p
}

// BaseBudget is the pod's budget without a coordination factor: the requests of its containers with
// a declared limit, times the multiplier of its priority.
func BaseBudget(pod *corev1.Pod, declared []v1alpha1.ContainerLimit) market.Budget {
	limited, requests := kube.ByName(declared), cpu.Milli(0)
	for _, c := range kube.Containers(pod) {
		if limited[c.Spec.Name] > 0 {
			requests += c.Request()
		}
	}
	return demand.Budget(requests, kube.Priority(pod))
}

// QuotaClaim is a pod's claim on what a quota leaves, on a node of that size, where its agent is told these constraints.
// It may always have what its owner declared, and what other constraints demand at least.
func QuotaClaim(
	n *constraints.NamespaceObjects, pod *corev1.Pod, pa *v1alpha1.PodAllocation, told *v1alpha1.Constraints, size cpu.Milli,
) quota.Claim {
	declared := pa.Status.DeclaredLimits
	kept, _ := n.ConstraintsOf(pod, declared)
	kept.NoDecrease = "" // it may have been raised since
	floor, most := constraints.BoundsOf(pod, declared, size, &kept).Total()
	c := quota.Claim{Own: max(floor, kube.Total(declared)), Most: most, Budget: BaseBudget(pod, declared)}
	if d := pa.Spec.Decision; d != nil {
		c.Demand = d.Demand
		if p := kept.DemandPercent; p != nil { // as in the market, it only ever raises the demand
			c.Demand = c.Demand * cpu.Milli(max(100, *p)) / 100
		}
	}
	if told != nil && told.IncreaseOnNeed && told.Ceiling != nil {
		c.Last = *told.Ceiling
	}
	return c
}
