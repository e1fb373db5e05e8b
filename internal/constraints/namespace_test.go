package constraints

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/podtest"
)

// TestFailedLookup: an autoscaler that would change a pod's CPU may manage the pod if the selector of
// its target could not be read.
func TestFailedLookup(t *testing.T) {
	custom := kube.Target{APIVersion: "example.org/v1", Kind: "Rollout", Name: "shop"}
	hpa := func(m autoscalingv2.MetricSpec) autoscalingv2.HorizontalPodAutoscaler {
		h := autoscalingv2.HorizontalPodAutoscaler{}
		h.Name, h.Spec.Metrics = "h", []autoscalingv2.MetricSpec{m}
		h.Spec.ScaleTargetRef = autoscalingv2.CrossVersionObjectReference{APIVersion: custom.APIVersion, Kind: custom.Kind, Name: custom.Name}
		return h
	}
	onCPU, onMemory := hpa(ofPod(corev1.ResourceCPU, utilization(80))), hpa(ofPod(corev1.ResourceMemory, utilization(80)))
	writes := VPA{Name: "v", Target: custom, Mode: "Recreate", CPU: map[string]bool{"*": true}}
	off := writes
	off.Mode = "Off"
	failed := map[kube.Target]string{custom: "no answer"}
	for reason, c := range map[string]struct {
		n    NamespaceObjects
		want string
	}{
		"an HPA on CPU":         {NamespaceObjects{HPAs: []autoscalingv2.HorizontalPodAutoscaler{onCPU}, LookupErrors: failed}, "the pods of HorizontalPodAutoscaler h, by its target Rollout/shop: no answer"},
		"a VPA":                 {NamespaceObjects{VPAs: []VPA{writes}, LookupErrors: failed}, "the pods of VerticalPodAutoscaler v, by its target Rollout/shop: no answer"},
		"an HPA on memory":      {NamespaceObjects{HPAs: []autoscalingv2.HorizontalPodAutoscaler{onMemory}, LookupErrors: failed}, ""},
		"a VPA that is off":     {NamespaceObjects{VPAs: []VPA{off}, LookupErrors: failed}, ""},
		"both were read":        {NamespaceObjects{HPAs: []autoscalingv2.HorizontalPodAutoscaler{onCPU}, VPAs: []VPA{writes}}, ""},
		"only a DemandSignal's": {NamespaceObjects{Signals: []Signal{{Target: custom}}, LookupErrors: failed}, ""},
		"another target":        {NamespaceObjects{VPAs: []VPA{writes}, LookupErrors: map[kube.Target]string{kube.Target{APIVersion: "example.org/v1", Kind: "Rollout", Name: "x"}: "no answer"}}, ""},
	} {
		if got := c.n.FailedLookup(podtest.Shop()); got != c.want {
			t.Errorf("%s: %q, want %q", reason, got, c.want)
		}
	}
}

// TestConstraintsOf puts together the constraints of several objects.
func TestConstraintsOf(t *testing.T) {
	pod := podtest.Owned("apps/v1", "StatefulSet", "db", map[string]string{"app": "db"})
	target := autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db"}
	hpa := func(name string, metrics ...autoscalingv2.MetricSpec) autoscalingv2.HorizontalPodAutoscaler {
		return autoscalingv2.HorizontalPodAutoscaler{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: autoscalingv2.HorizontalPodAutoscalerSpec{ScaleTargetRef: target, Metrics: metrics},
		}
	}
	pdb := policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "db"},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}},
	}
	allowing, withoutSelector := pdb, pdb
	allowing.Status.DisruptionsAllowed, withoutSelector.Spec.Selector = 1, nil
	lenient, lenientHPA := pdb, hpa("b", ofPod(corev1.ResourceCPU, utilization(100)))
	lenient.Annotations = map[string]string{kube.AllowDecreaseKey: "true"}
	lenientHPA.Annotations = lenient.Annotations
	m := func(m cpu.Milli) *cpu.Milli { return &m }
	floors := []v1alpha1.ContainerConstraints{{Name: "app", Floor: m(120)}, {Name: "proxy", Floor: m(60)}}
	for name, c := range map[string]struct {
		n           NamespaceObjects
		want        v1alpha1.Constraints
		scaledByHPA bool
	}{
		"nothing": {},
		"hpa on memory": {
			n: NamespaceObjects{HPAs: []autoscalingv2.HorizontalPodAutoscaler{hpa("a", ofPod(corev1.ResourceMemory, utilization(80)))}},
		},
		"hpa": {
			NamespaceObjects{HPAs: []autoscalingv2.HorizontalPodAutoscaler{hpa("a", ofPod(corev1.ResourceCPU, utilization(100)))}, PDBs: budgets(pdb)},
			v1alpha1.Constraints{Containers: floors, FloorBy: "HorizontalPodAutoscaler/a", NoDecrease: "ScaledByHPA"}, true,
		},
		"hpa that allows decreases": {
			NamespaceObjects{HPAs: []autoscalingv2.HorizontalPodAutoscaler{lenientHPA}},
			v1alpha1.Constraints{Containers: floors, FloorBy: "HorizontalPodAutoscaler/b"}, true,
		},
		"hpa and a budget": {
			NamespaceObjects{HPAs: []autoscalingv2.HorizontalPodAutoscaler{lenientHPA}, PDBs: budgets(pdb)},
			v1alpha1.Constraints{Containers: floors, FloorBy: "HorizontalPodAutoscaler/b", NoDecrease: "NoDisruptionAllowed"}, true,
		},
		"a namespace that keeps declared limits": {
			NamespaceObjects{KeepsDeclared: "shop", HPAs: []autoscalingv2.HorizontalPodAutoscaler{lenientHPA}},
			v1alpha1.Constraints{
				Containers: []v1alpha1.ContainerConstraints{{Name: "app", Floor: m(500)}, {Name: "proxy", Floor: m(200)}},
				FloorBy:    "HorizontalPodAutoscaler/b, Namespace/shop",
			}, true,
		},
		"budgets that do not matter": {n: NamespaceObjects{PDBs: budgets(allowing, withoutSelector, lenient)}},
		"limit ranges that no node reaches": {
			NamespaceObjects{LimitRanges: append(
				podtest.LimitRanges(item{Min: amounts("cpu", "1M"), Max: amounts("cpu", "500Mi"), MaxLimitRequestRatio: amounts("cpu", "1M")}),
				podtest.LimitRanges(item{Max: amounts("cpu", "3"), MaxLimitRequestRatio: amounts("cpu", "9223372036854775807")})...,
			)},
			v1alpha1.Constraints{
				Containers: []v1alpha1.ContainerConstraints{
					{Name: "app", Floor: m(cpu.Largest), Ceiling: m(3000)}, {Name: "proxy", Floor: m(cpu.Largest), Ceiling: m(3000)},
				},
				FloorBy: "LimitRange/limits", CeilingBy: "LimitRange/limits",
			}, false,
		},
		"limit ranges": {
			NamespaceObjects{LimitRanges: append(
				podtest.LimitRanges(item{Min: amounts("cpu", "45m"), Max: amounts("cpu", "1.5"), MaxLimitRequestRatio: amounts("cpu", "12.5")}),
				corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "pods"}, Spec: corev1.LimitRangeSpec{Limits: []item{
					{Type: corev1.LimitTypePod, Min: amounts("cpu", "300m"), Max: amounts("cpu", "4"), MaxLimitRequestRatio: amounts("cpu", "10")},
					{Type: corev1.LimitTypePersistentVolumeClaim, Max: amounts("storage", "1Gi")},
				}}},
			)},
			v1alpha1.Constraints{
				// Of the 300m that the pod has at least, 5/7 and 2/7, in whole quanta.
				Containers: []v1alpha1.ContainerConstraints{{Name: "app", Floor: m(220), Ceiling: m(1250)}, {Name: "proxy", Floor: m(90), Ceiling: m(625)}},
				// Ten times what the init container requests is more than the most.
				Ceiling: m(4000), FloorBy: "LimitRange/limits, LimitRange/pods", CeilingBy: "LimitRange/limits, LimitRange/pods",
			}, false,
		},
	} {
		got, scaledByHPA := c.n.ConstraintsOf(pod, kube.Limits(pod))
		if diff := cmp.Diff(c.want, got); diff != "" || scaledByHPA != c.scaledByHPA {
			t.Errorf("%s: scaledByHPA %v\n%s", name, scaledByHPA, diff)
		}
	}
}

func TestRefusal(t *testing.T) {
	n := NamespaceObjects{Quotas: []corev1.ResourceQuota{{ObjectMeta: metav1.ObjectMeta{Name: "compute"}, Spec: corev1.ResourceQuotaSpec{Hard: amounts("limits.cpu", "9")}}}}
	if r, message := n.Refusal(podtest.Shop()); r != reasons.QuotaNeedsLimits || message != "ResourceQuota compute requires limits.cpu of container exporter" {
		t.Errorf("%v %q", r, message)
	}
	n.Quotas[0].Spec.Scopes = []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeTerminating}
	if r, message := n.Refusal(podtest.Shop()); r != "" {
		t.Errorf("a quota that does not select the pod refuses it: %v %q", r, message)
	}
	n.LimitRanges = podtest.LimitRanges(item{Default: amounts("cpu", "1")})
	if r, _ := n.Refusal(podtest.Shop()); r != reasons.AdmissionWouldMutate {
		t.Errorf("%v", r)
	}
}

func TestVPAFor(t *testing.T) {
	vpa := VPA{Name: "db", Mode: "Recreate", CPU: map[string]bool{"*": true}, Target: kube.Target{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db"}}
	n := NamespaceObjects{VPAs: []VPA{vpa}}
	if name, ok := n.VPAFor(podtest.Owned("apps/v1", "StatefulSet", "db", nil)); !ok || name != "db" {
		t.Errorf("%q %v", name, ok)
	}
	if name, ok := n.VPAFor(podtest.Shop()); ok {
		t.Errorf("a pod without an owner is written by VPA %s", name)
	}
}

// TestSignalsMultiplyDemand: a pod of web with labels app=shop.
func TestSignalsMultiplyDemand(t *testing.T) {
	web, rollout := kube.Target{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}, kube.Target{APIVersion: "example.com/v1", Kind: "Rollout", Name: "shop"}
	yes := true
	pod := podtest.Shop()
	pod.Labels = map[string]string{"app": "shop", "pod-template-hash": "abc"}
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-abc", Controller: &yes}}
	for name, tt := range map[string]struct {
		asks    []Signal
		percent int32 // 0: none
		by      string
	}{
		"no match":          {nil, 0, ""},
		"one":               {[]Signal{{"a", web, 150}}, 150, "DemandSignal/a"},
		"for as much as is": {[]Signal{{"a", web, 100}}, 0, ""},
		"without a say":     {[]Signal{{"a", web, 0}}, 0, ""},
		"the most of three": {[]Signal{{"a", web, 150}, {"b", web, 300}, {"c", web, 120}}, 300, "DemandSignal/b"},
		"two as much":       {[]Signal{{"b", web, 150}, {"a", web, 150}, {"c", web, 120}}, 150, "DemandSignal/a, DemandSignal/b"},
		"for another":       {[]Signal{{"a", kube.Target{APIVersion: "apps/v1", Kind: "Deployment", Name: "other"}, 150}}, 0, ""},
		"by its labels":     {[]Signal{{"a", rollout, 170}}, 170, "DemandSignal/a"},
		"by labels of none": {[]Signal{{"a", kube.Target{APIVersion: "example.com/v1", Kind: "Rollout", Name: "none"}, 170}}, 0, ""},
		"beside another's":  {[]Signal{{"a", kube.Target{APIVersion: "apps/v1", Kind: "Deployment", Name: "other"}, 300}, {"b", web, 110}}, 110, "DemandSignal/b"},
	} {
		n := NamespaceObjects{Signals: tt.asks, Selectors: map[kube.Target]labels.Selector{rollout: labels.SelectorFromSet(labels.Set{"app": "shop"})}}
		constraints, scaledByHPA := n.ConstraintsOf(pod, []v1alpha1.ContainerLimit{{Name: "app", CPULimit: 500}})
		if ptr.Deref(constraints.DemandPercent, 0) != tt.percent || constraints.DemandBy != tt.by || scaledByHPA {
			t.Errorf("%s: %d %% by %q", name, ptr.Deref(constraints.DemandPercent, 0), constraints.DemandBy)
		}
	}
	if n := (NamespaceObjects{Signals: []Signal{{"a", web, 150}}}); true {
		if constraints, _ := n.ConstraintsOf(&corev1.Pod{}, nil); constraints.DemandPercent != nil {
			t.Errorf("an unmatched pod: %+v", constraints)
		}
	}
}
