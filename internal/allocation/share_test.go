package allocation

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/market"
)

// sharing is a pod of one container with a request and a declared limit of 2 cores, and its decision.
func sharing(request cpu.Milli, d *v1alpha1.Decision) (*corev1.Pod, *v1alpha1.PodAllocation) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "app", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: kube.Quantity(request)},
			Limits:   corev1.ResourceList{corev1.ResourceCPU: kube.Quantity(2000)},
		},
	}, {Name: "unlimited", Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: kube.Quantity(700)},
	}}}}}
	pa := &v1alpha1.PodAllocation{Spec: v1alpha1.PodAllocationSpec{Decision: d}}
	pa.Status.DeclaredLimits = []v1alpha1.ContainerLimit{{Name: "app", CPULimit: 2000}}
	return pod, pa
}

// TestShareOf: a deficit is what the price alone keeps from a pod.
func TestShareOf(t *testing.T) {
	for name, c := range map[string]struct {
		request cpu.Milli
		d       v1alpha1.Decision
		want    Share
	}{
		"no price": {200, v1alpha1.Decision{Demand: 900, Ceiling: 4000, BoundBy: v1alpha1.BoundByNothing}, Share{900, 0, 200}},
		"capped": {200, v1alpha1.Decision{Demand: 900, Budget: 200, Price: 0.5, Ceiling: 4000, BoundBy: v1alpha1.BoundByPrice},
			Share{900, 500, 200}},
		"uncapped within the cap band": {200, v1alpha1.Decision{Demand: 430, Budget: 200, Price: 0.5, Ceiling: 4000,
			BoundBy: v1alpha1.BoundByNothing}, Share{430, 0, 200}},
		"at its floor the budget buys less than the request": {200, v1alpha1.Decision{Demand: 900, Budget: 200, Price: 2, Ceiling: 4000,
			BoundBy: v1alpha1.BoundByFloor}, Share{900, 700, 200}},
		"at its ceiling without a price": {200, v1alpha1.Decision{Demand: 900, Ceiling: 600, BoundBy: v1alpha1.BoundByCeiling},
			Share{600, 0, 200}},
		"beyond its ceiling it demands nothing": {200, v1alpha1.Decision{Demand: 900, Budget: 200, Price: 0.5, Ceiling: 600,
			BoundBy: v1alpha1.BoundByPrice}, Share{600, 200, 200}},
		"without a request": {0, v1alpha1.Decision{Demand: 900, Budget: 2, Price: 1, Ceiling: 4000, BoundBy: v1alpha1.BoundByFloor},
			Share{900, 890, 10}},
	} {
		if got := ShareOf(sharing(c.request, &c.d)); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	if got := ShareOf(sharing(200, nil)); got != (Share{}) {
		t.Errorf("without a decision: %+v", got)
	}
}

// TestDeficitNeedsMoreThanTheRequest: whatever the market decides, a pod that demands no more than its request has no
// deficit, and no deficit exceeds the demand. What docs/design says of scale-in builds on it.
func TestDeficitNeedsMoreThanTheRequest(t *testing.T) {
	bounds := []v1alpha1.BoundBy{v1alpha1.BoundByNothing, v1alpha1.BoundByPrice, v1alpha1.BoundByFloor, v1alpha1.BoundByCeiling}
	rapid.Check(t, func(t *rapid.T) {
		milli := func(what string) cpu.Milli { return cpu.Milli(rapid.IntRange(0, 4000).Draw(t, what)) }
		request := milli("request")
		s := ShareOf(sharing(request, &v1alpha1.Decision{
			Demand: milli("demand"), Ceiling: milli("ceiling"), Budget: int64(milli("budget")),
			Price: market.Price(rapid.Float64Range(0, 8).Draw(t, "price")), BoundBy: rapid.SampledFrom(bounds).Draw(t, "bound"),
		}))
		if s.Demand <= request && s.Deficit > 0 || s.Deficit > s.Demand || s.Deficit < 0 {
			t.Fatalf("%+v with a request of %v", s, request)
		}
	})
}
