// Package allocation translates between PodAllocations, pods and nodes on one side and the types of
// rounds and of lifecycle on the other. It also defines the wire types of /debug/round.
package allocation

import (
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/lifecycle"
	"github.com/mbcas/mbcas/internal/round"
	"github.com/mbcas/mbcas/internal/sense"
	"github.com/mbcas/mbcas/market"
)

// Key is where a pod's allocation is.
func Key(pod *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: string(pod.UID)}
}

// ByKey are allocations by Key.
func ByKey(list []v1alpha1.PodAllocation) map[types.NamespacedName]*v1alpha1.PodAllocation {
	all := make(map[types.NamespacedName]*v1alpha1.PodAllocation, len(list))
	for i := range list {
		all[types.NamespacedName{Namespace: list[i].Namespace, Name: list[i].Name}] = &list[i]
	}
	return all
}

// New is the object for a pod, before anything is decided or recorded.
func New(pod *corev1.Pod) *v1alpha1.PodAllocation {
	return &v1alpha1.PodAllocation{
		ObjectMeta: metav1.ObjectMeta{
			Name: string(pod.UID), Namespace: pod.Namespace,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}},
		},
		Spec: v1alpha1.PodAllocationSpec{NodeName: pod.Spec.NodeName, PodRef: kube.PodRef(pod)},
	}
}

// NewNode is the object for a node, before it names any pod.
func NewNode(name string, uid types.UID) *v1alpha1.NodeAllocation {
	return &v1alpha1.NodeAllocation{ObjectMeta: metav1.ObjectMeta{
		Name:            name,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: name, UID: uid}},
	}}
}

// NodePod is what the agent is told about a pod with that PodAllocation.
func NodePod(pa *v1alpha1.PodAllocation, declared lifecycle.Limits, c v1alpha1.Constraints) v1alpha1.NodePod {
	p := v1alpha1.NodePod{UID: types.UID(pa.Name), AllocationUID: pa.UID, DeclaredLimits: ContainerLimits(declared)}
	if !equality.Semantic.DeepEqual(c, v1alpha1.Constraints{}) {
		p.Constraints = &c
	}
	return p
}

// DecisionSpec is a decision as the part of a PodAllocation's spec that the agent owns.
func DecisionSpec(d round.Decision, w demand.Weights, n round.NodeDecision, observed time.Time) v1alpha1.PodAllocationSpec {
	limits := make([]v1alpha1.ContainerLimit, len(d.Containers))
	for i, c := range d.Containers {
		limits[i] = v1alpha1.ContainerLimit{Name: c.Name, CPULimit: c.Limit}
	}
	decision := &v1alpha1.Decision{
		Demand: d.Demand, Usage: d.Usage, ThrottledPercent: percent(d.ThrottleRatio),
		Budget: int64(d.Budget), PriorityPercent: w.PriorityPercent,
		Price: d.Price, Floor: min(d.Floor, cpu.Largest), Ceiling: min(d.Ceiling, cpu.Largest),
		BoundBy: v1alpha1.BoundBy(d.Bound.String()), FloorsExceedSupply: n.FloorsExceedSupply,
		RevokedForSeconds: int32(math.Ceil(d.RevokedFor.Seconds())),
		ObservedAt:        metav1.NewMicroTime(observed), CPUPressurePercent: percentOf(d.Pressure),
	}
	if w.CoordinationPercent > 0 {
		decision.CoordinationPercent = &w.CoordinationPercent
	}
	if s := d.Stalls; s != nil {
		decision.MemoryPressurePercent, decision.IOPressurePercent = percentOf(s.Memory), percentOf(s.IO)
	}
	return v1alpha1.PodAllocationSpec{DesiredCPULimit: new(d.Limit), Containers: limits, Decision: decision}
}

// percentOf is nil for an unknown ratio.
func percentOf(s sense.Ratio) *int32 {
	if !s.Known {
		return nil
	}
	return new(percent(s.Value))
}

func percent(share float64) int32 { return int32(math.Round(100 * max(0, min(1, share)))) }

// Published is the decision that a PodAllocation holds.
func Published(pa *v1alpha1.PodAllocation) round.Published {
	if pa == nil || pa.Spec.Decision == nil {
		return round.Published{}
	}
	d := pa.Spec.Decision
	return round.Published{
		At: d.ObservedAt.Time, Limits: kube.ByName(pa.Spec.Containers), Demand: d.Demand, Price: d.Price,
		Bound: bounds[d.BoundBy], ThrottleRatio: float64(d.ThrottledPercent) / 100,
	}
}

// bounds are what binds a limit, as a round has it.
var bounds = map[v1alpha1.BoundBy]market.Bound{
	v1alpha1.BoundByNothing: market.ByNothing, v1alpha1.BoundByPrice: market.ByPrice,
	v1alpha1.BoundByFloor: market.ByFloor, v1alpha1.BoundByCeiling: market.ByCeiling,
}
