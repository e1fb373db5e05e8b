package kube

import (
	"math"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/round"
	"github.com/mbcas/mbcas/internal/sense"
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
func Spec(d round.Decision, w demand.Weights, n round.NodeDecision, observed time.Time) v1alpha1.PodAllocationSpec {
	limits := make([]v1alpha1.ContainerLimit, len(d.Containers))
	for i, c := range d.Containers {
		limits[i] = v1alpha1.ContainerLimit{Name: c.Name, CPULimit: c.Limit}
	}
	decision := &v1alpha1.Decision{
		Demand: d.Demand, Usage: d.Usage, Throttled: percent(d.ThrottleRatio),
		Budget: int64(d.Budget), PriorityPercent: w.PriorityPercent,
		Price: d.Price.String(), Floor: d.Floor, Ceiling: d.Ceiling,
		BoundBy: v1alpha1.BoundBy(d.Bound.String()), FloorsExceedSupply: n.FloorsExceedSupply,
		ObservedAt: metav1.NewMicroTime(observed),
	}
	if w.FairnessPercent > 0 {
		decision.FairnessPercent = &w.FairnessPercent
	}
	if d.PressureKnown {
		p := percent(d.Pressure)
		decision.Pressure = &p
	}
	if s := d.Stalls; s != nil {
		decision.MemoryPressure, decision.IOPressure = percentOf(s.Memory), percentOf(s.IO)
	}
	total := d.Limit
	return v1alpha1.PodAllocationSpec{DesiredCPULimit: &total, Containers: limits, Decision: decision}
}

// percentOf is nil for a share that is not known.
func percentOf(s sense.Ratio) *int32 {
	if !s.Known {
		return nil
	}
	p := percent(s.Value)
	return &p
}

func percent(share float64) int32 { return int32(math.Round(100 * max(0, min(1, share)))) }

// Published is what a PodAllocation holds, in the round's words. A decision that the controller finds too
// old to act on counts as never published, until it is written again: so it is said anew if it still holds,
// and only then.
func Published(pa *v1alpha1.PodAllocation) round.Published {
	if pa == nil || pa.Spec.Decision == nil {
		return round.Published{}
	}
	p := round.Published{
		At: pa.Spec.Decision.ObservedAt.Time, Limits: byName(pa.Spec.Containers),
		Demand: pa.Spec.Decision.Demand, Price: Price(pa.Spec.Decision),
	}
	if pa.Status.Reason == string(reasons.DecisionTooOld) && pa.Status.ObservedGeneration == pa.Generation {
		p.At = time.Time{}
	}
	return p
}

// Price is the price of a decision.
func Price(d *v1alpha1.Decision) market.Price {
	price, _ := strconv.ParseFloat(d.Price, 64) // the API server checked the form
	return market.Price(price)
}

// State is the pod as the actuator sees it: spec limits, bounds, what is wanted, and when it was last
// moved. The caller adds what it knows beyond the two objects (Restore, InFlight, NoDecrease, RetryAt).
func State(pod *corev1.Pod, pa *v1alpha1.PodAllocation, allocatable cpu.Milli) actuator.Pod {
	p := actuator.Pod{UID: string(pod.UID)}
	wanted, bounds := byName(pa.Spec.Containers), BoundsOf(pod, pa.Status.DeclaredLimits, allocatable, pa.Status.Terms)
	declared := byName(pa.Status.DeclaredLimits)
	var sum cpu.Milli
	var wants, floors []part
	var least []cpu.Milli // that a container may be raised to
	for _, c := range containers(pod) {
		name, limit := c.spec.Name, c.limit()
		b, ok := bounds.Containers[name]
		if !ok {
			continue // without a limit, or limited after the record was made: not ours to move
		}
		p.Containers = append(p.Containers, actuator.Container{
			Name: name, Limit: limit, Declared: declared[name],
			Floor: b.Floor, Ceiling: b.Ceiling, Desired: wanted[name],
		})
		raise, want := demand.Floor(c.request(), 0), wanted[name]
		switch {
		case want == 0:
			want = limit
		case want > limit:
			want = max(want, raise)
		}
		sum += limit
		wants, floors, least = append(wants, part{name, want.Clamp(b.Floor, b.Ceiling)}), append(floors, part{name, b.Floor}), append(least, raise)
	}
	for i, w := range fit(wants, floors, bounds.Ceiling) {
		c := &p.Containers[i]
		if c.Desired > 0 {
			c.Desired = w.limit
			if w.limit > c.Limit && w.limit < least[i] {
				c.Desired = c.Limit // that much does not fit
			}
		}
		if bounds.Ceiling > 0 && sum > bounds.Ceiling { // a pod above its ceiling comes down however little it is
			c.Ceiling = min(c.Ceiling, w.limit)
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
