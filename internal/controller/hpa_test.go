package controller

import (
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/kube"
)

func hpa(namespace, name string, target kube.Target, metrics ...autoscalingv2.MetricSpec) *autoscalingv2.HorizontalPodAutoscaler {
	h := &autoscalingv2.HorizontalPodAutoscaler{}
	h.Namespace, h.Name = namespace, name
	h.Spec.ScaleTargetRef = autoscalingv2.CrossVersionObjectReference{APIVersion: target.APIVersion, Kind: target.Kind, Name: target.Name}
	h.Spec.MaxReplicas, h.Spec.Metrics = 5, metrics
	return h
}

func onCPU(percent int32) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
		Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &percent},
	}}
}

// TestHPAPodsAreNotLowered: a pod that an HPA watches is raised to where the HPA can see its load, and is not lowered
// unless the HPA's owner allows it; then seldom, and not below that.
func TestHPAPodsAreNotLowered(t *testing.T) {
	r := newRig(t)
	r.start()
	low, high := r.ownedPod("web", "low", "200m", "220m"), r.ownedPod("web", "high", "200m", "900m")
	other := r.ownedPod("other", "other", "200m", "900m")
	web := hpa(r.namespace, "web", kube.Target{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}, onCPU(150))
	r.must(r.Client.Create(r.Context(), web))

	pa := r.allocation(low, "told its floor", func(pa *v1alpha1.PodAllocation) bool { return pa.Status.Constraints != nil })
	terms := pa.Status.Constraints // 200m x 150 % x 1.2
	if len(terms.Containers) != 1 || *terms.Containers[0].Floor != 360 || terms.FloorBy != "HorizontalPodAutoscaler/web" || terms.NoDecrease != string(reasons.ScaledByHPA) {
		t.Errorf("terms %+v", terms)
	}
	r.allocation(high, "made", func(pa *v1alpha1.PodAllocation) bool { return pa.Status.Constraints != nil })
	r.allocation(other, "made", stands(v1alpha1.PhasePending, reasons.NoDecisionYet))

	// The agent may not have seen the terms yet, so it decides as if there were none.
	for _, pod := range []*corev1.Pod{low, high, other} {
		r.decide(pod, v1alpha1.BoundByFloor, app(220))
	}
	r.allocation(low, "raised", stands(v1alpha1.PhaseApplied, reasons.ScaledByHPA))
	r.allocation(high, "left", stands(v1alpha1.PhaseApplied, reasons.ScaledByHPA))
	r.until("the other is lowered", func() (bool, any) { return r.limit(other) < 900, r.limit(other) })
	if l, h := r.limit(low), r.limit(high); l != 360 || h != 900 {
		t.Errorf("limits %v and %v, want 360m and 900m", l, h)
	}

	r.annotate(web, kube.AllowDecreaseKey, "true")
	r.allocation(high, "lowered once", stands(v1alpha1.PhaseNotApplied, reasons.StepLimited))
	if h := r.limit(high); h != 600 {
		t.Errorf("limit %v after a decrease, want one step down", h)
	}
}

// TestHPAOfACustomTarget: the pods of a scale target that is no built-in workload are those that its scale subresource selects.
func TestHPAOfACustomTarget(t *testing.T) {
	r := newRig(t)
	install(r, custom("rollouts", "example.mbcas.io", "Rollout", true))
	r.start()
	pod := r.ownedPod("shop", "shop", "200m", "900m")
	target := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"replicas": int64(1)}}}
	target.SetAPIVersion("example.mbcas.io/v1")
	target.SetKind("Rollout")
	target.SetNamespace(r.namespace)
	target.SetName("shop")
	status := map[string]any{"replicas": int64(1), "selector": "app=shop"}
	r.must(r.Client.Create(r.Context(), target))
	target.Object["status"] = status
	r.must(r.Client.Status().Update(r.Context(), target))
	r.must(r.Client.Create(r.Context(), hpa(r.namespace, "shop", kube.Target{APIVersion: "example.mbcas.io/v1", Kind: "Rollout", Name: "shop"}, onCPU(100))))
	pa := r.allocation(pod, "told its floor", func(pa *v1alpha1.PodAllocation) bool { return pa.Status.Constraints != nil })
	if *pa.Status.Constraints.Containers[0].Floor != 240 {
		t.Errorf("terms %+v", pa.Status.Constraints)
	}
}
