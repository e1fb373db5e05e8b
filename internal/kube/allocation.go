package kube

import (
	"math"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/round"
	"github.com/mbcas/mbcas/market"
)

// NewAllocation is the object for a pod, before anything is decided or recorded.
func NewAllocation(pod *corev1.Pod) *v1alpha1.PodAllocation {
	return &v1alpha1.PodAllocation{
		ObjectMeta: metav1.ObjectMeta{
			Name: string(pod.UID), Namespace: pod.Namespace,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}},
		},
		Spec: v1alpha1.PodAllocationSpec{NodeName: pod.Spec.NodeName, PodRef: PodRef(pod)},
	}
}

// Node is the node in the market's words.
func Node(n *corev1.Node) round.Node {
	node := round.Node{
		Capacity:    Milli(n.Status.Capacity[corev1.ResourceCPU]),
		Allocatable: Milli(n.Status.Allocatable[corev1.ResourceCPU]),
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

// Spec writes a decision into the part of a PodAllocation's spec that the agent owns.
func Spec(d round.Decision, n round.NodeDecision, observed time.Time) v1alpha1.PodAllocationSpec {
	limits := make([]v1alpha1.ContainerLimit, len(d.Containers))
	for i, c := range d.Containers {
		limits[i] = v1alpha1.ContainerLimit{Name: c.Name, CPULimit: c.Limit}
	}
	decision := &v1alpha1.Decision{
		Demand: d.Demand, Usage: d.Usage, Throttled: percent(d.Throttle),
		Budget: int64(d.Budget), Price: d.Price.String(), Floor: d.Floor, Ceiling: d.Ceiling,
		BoundBy: v1alpha1.BoundBy(d.Bound.String()), FloorsExceedSupply: n.FloorsExceedSupply,
		ObservedAt: metav1.NewMicroTime(observed),
	}
	if d.PressureKnown {
		p := percent(d.Pressure)
		decision.Pressure = &p
	}
	total := d.Limit
	return v1alpha1.PodAllocationSpec{DesiredCPULimit: &total, Containers: limits, Decision: decision}
}

func percent(share float64) int32 { return int32(math.Round(100 * max(0, min(1, share)))) }

// Published is what a PodAllocation holds, in the round's words. A decision that the controller finds too
// old to act on counts as never published, until it is written again: so it is said anew if it still holds,
// and only then.
func Published(pa *v1alpha1.PodAllocation) round.Published {
	if pa == nil || pa.Spec.Decision == nil {
		return round.Published{}
	}
	price, _ := strconv.ParseFloat(pa.Spec.Decision.Price, 64) // the API server checked the form
	p := round.Published{
		At: pa.Spec.Decision.ObservedAt.Time, Limits: byName(pa.Spec.Containers),
		Demand: pa.Spec.Decision.Demand, Price: market.Price(price),
	}
	if pa.Status.Reason == string(actuator.DecisionOld) && pa.Status.ObservedGeneration == pa.Generation {
		p.At = time.Time{}
	}
	return p
}

// State is the pod as the actuator sees it: spec limits, bounds, what is wanted, and when it was last
// moved. The caller adds what it knows beyond the two objects (Restore, InFlight, NoDecrease, RetryAt).
func State(pod *corev1.Pod, pa *v1alpha1.PodAllocation, allocatable cpu.Milli) actuator.Pod {
	p := actuator.Pod{UID: string(pod.UID)}
	wanted, bounds := byName(pa.Spec.Containers), Bounds(pod, pa.Status.DeclaredLimits, allocatable)
	declared := byName(pa.Status.DeclaredLimits)
	for _, l := range Limits(pod) {
		b, ok := bounds[l.Name]
		if !ok {
			continue // limited after the record was made: not ours to move
		}
		p.Containers = append(p.Containers, actuator.Container{
			Name: l.Name, Limit: l.CPULimit, Declared: declared[l.Name],
			Floor: b.Floor, Ceiling: b.Ceiling, Want: wanted[l.Name],
		})
	}
	if t := pa.Status.LastDecreaseTime; t != nil {
		p.LastDecrease = t.Time
	}
	if t := pa.Status.LastIncreaseTime; t != nil {
		p.LastIncrease = t.Time
	}
	return p
}
