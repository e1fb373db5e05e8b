package cli

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/constraints"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

// The plaza is a namespace with objects of every kind that constrains limits.

// owned is a pod of a workload, with the labels app=NAME and pod-template-hash=abc.
func owned(kind, workload, name string, containers ...corev1.Container) *corev1.Pod {
	p, yes := apiserver.RunningPod("plaza", name, containers...), true
	p.Labels = map[string]string{"app": workload, "pod-template-hash": "abc"}
	owner := metav1.OwnerReference{APIVersion: "apps/v1", Kind: kind, Name: workload, UID: types.UID("uid-of-" + workload), Controller: &yes}
	if kind == "Deployment" {
		owner.Kind, owner.Name = "ReplicaSet", workload+"-abc"
	}
	p.OwnerReferences = []metav1.OwnerReference{owner}
	return p
}

func milli(m cpu.Milli) *cpu.Milli { return &m }

// constrained notes the pod's constraints for told.
func constrained(t v1alpha1.Constraints) func(*v1alpha1.PodAllocation) {
	return func(pa *v1alpha1.PodAllocation) {
		text, err := json.Marshal(t)
		if err != nil {
			panic(err)
		}
		pa.Annotations = map[string]string{"constraints": string(text)}
	}
}

// told are the NodeAllocations for the constraints that these objects note.
func told(objects []client.Object) []client.Object {
	nodes, list := map[string]*v1alpha1.NodeAllocation{}, []client.Object(nil)
	for _, o := range objects {
		pa, ok := o.(*v1alpha1.PodAllocation)
		if !ok || pa.Annotations["constraints"] == "" {
			continue
		}
		n := nodes[pa.Spec.NodeName]
		if n == nil {
			n = allocation.NewNode(pa.Spec.NodeName, "node")
			nodes[n.Name], list = n, append(list, n)
		}
		p := v1alpha1.NodePod{UID: pa.Spec.PodRef.UID, DeclaredLimits: pa.Status.DeclaredLimits}
		if err := json.Unmarshal([]byte(pa.Annotations["constraints"]), &p.Constraints); err != nil {
			panic(err)
		}
		n.Spec.Pods = append(n.Spec.Pods, p)
	}
	return list
}

func applied(reason reasons.Reason) func(*v1alpha1.PodAllocation) {
	return status(v1alpha1.PhaseApplied, string(reason), reason.Sentence())
}

// cpuHPA is an HPA of a Deployment that looks at CPU use.
func cpuHPA(name string, percent int32, annotations map[string]string) *autoscalingv2.HorizontalPodAutoscaler {
	h := &autoscalingv2.HorizontalPodAutoscaler{}
	h.Namespace, h.Name, h.Annotations = "plaza", name, annotations
	h.Spec.ScaleTargetRef = autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: name}
	h.Spec.Metrics = []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
		Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &percent},
	}}}
	return h
}

// vpaOf is a VerticalPodAutoscaler of a target in some mode, for CPU and memory or for the
// resources that are named.
func vpaOf(name string, target kube.Target, mode string, resources ...any) *unstructured.Unstructured {
	spec := map[string]any{
		"targetRef":    map[string]any{"apiVersion": target.APIVersion, "kind": target.Kind, "name": target.Name},
		"updatePolicy": map[string]any{"updateMode": mode},
	}
	if len(resources) > 0 {
		spec["resourcePolicy"] = map[string]any{"containerPolicies": []any{map[string]any{"containerName": "*", "controlledResources": resources}}}
	}
	v := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	v.SetGroupVersionKind(constraints.VPAKind)
	v.SetNamespace("plaza")
	v.SetName(name)
	return v
}

func quotaOf(name, of, hard, used string) *corev1.ResourceQuota {
	q := &corev1.ResourceQuota{}
	q.Namespace, q.Name = "plaza", name
	q.Spec.Hard = corev1.ResourceList{corev1.ResourceName(of): resource.MustParse(hard)}
	q.Status.Hard, q.Status.Used = q.Spec.Hard, corev1.ResourceList{corev1.ResourceName(of): resource.MustParse(used)}
	return q
}

// plaza is the shop with the plaza beside it.
func plaza() []client.Object {
	app := func(request, limit string) corev1.Container { return apiserver.Container("app", request, limit) }
	web, api := owned("Deployment", "web", "web-abc-1", app("200m", "900m")), owned("Deployment", "api", "api-abc-1", app("200m", "240m"))
	sum, frail := owned("Job", "sum", "sum-1", app("100m", "600m")), owned("StatefulSet", "frail", "frail-0", app("100m", "800m"))
	db := owned("StatefulSet", "db", "db-0", app("200m", "1000m"), apiserver.Container("proxy", "50m", "250m"), apiserver.Container("log", "60m", ""))
	tuned, cache := owned("StatefulSet", "tuned", "tuned-0", app("100m", "300m")), owned("StatefulSet", "cache", "cache-0", app("100m", "300m"))
	roll := owned("Rollout", "roll", "roll-abc-1", app("100m", "300m"))
	roll.OwnerReferences[0].APIVersion = "example.org/v1"

	decision := func(d v1alpha1.Decision) v1alpha1.Decision {
		d.ThrottledPercent, d.CPUPressurePercent, d.PriorityPercent, d.Ceiling, d.ObservedAt = 90, percentOf(20), max(100, d.PriorityPercent), max(d.Ceiling, 600), *ago(3 * time.Second)
		return d
	}
	ns := &corev1.Namespace{}
	ns.Name, ns.Labels = "plaza", map[string]string{kube.ModeLabel: "enforce"}
	within := &corev1.LimitRange{}
	within.Namespace, within.Name = "plaza", "within"
	within.Spec.Limits = []corev1.LimitRangeItem{{Type: corev1.LimitTypePod, Max: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3")}}}
	budget := &policyv1.PodDisruptionBudget{}
	budget.Namespace, budget.Name = "plaza", "db"
	budget.Spec.Selector = metav1.SetAsLabelSelector(map[string]string{"app": "db"})
	return append(shop(), ns, web, api, sum, frail, db, tuned, cache, roll,
		cpuHPA("web", 150, nil), cpuHPA("api", 100, map[string]string{kube.AllowDecreaseKey: "true"}), cpuHPA("orphan", 50, nil),
		vpaOf("tuned", kube.Target{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "tuned"}, "Recreate"),
		vpaOf("web", kube.Target{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}, "Off"),
		quotaOf("all", "limits.cpu", "8", "5"), within, budget,
		allocated(web, both(decided(900, "app", decision(v1alpha1.Decision{
			Demand: 850, Usage: 700, Budget: 200, Price: 0.961, Floor: 900, Ceiling: 4000, BoundBy: v1alpha1.BoundByFloor,
		})), applied(reasons.ScaledByHPA), declared("app", 500, time.Hour), constrained(v1alpha1.Constraints{
			Containers: []v1alpha1.ContainerConstraints{{Name: "app", Floor: milli(360)}}, FloorBy: "HorizontalPodAutoscaler/web", NoDecrease: string(reasons.ScaledByHPA),
		}))),
		allocated(api, both(decided(240, "app", decision(v1alpha1.Decision{
			Demand: 850, Usage: 239, Budget: 200, Price: 0.961, Floor: 240, Ceiling: 4000, BoundBy: v1alpha1.BoundByFloor,
		})), applied(reasons.Settled), declared("app", 500, time.Hour), constrained(v1alpha1.Constraints{
			Containers: []v1alpha1.ContainerConstraints{{Name: "app", Floor: milli(240)}}, FloorBy: "HorizontalPodAutoscaler/api",
		}))),
		allocated(sum, both(decided(600, "app", decision(v1alpha1.Decision{
			Demand: 1100, Usage: 598, MemoryPressurePercent: percentOf(64), IOPressurePercent: percentOf(12), Budget: 100,
			Floor: 110, Ceiling: 600, BoundBy: v1alpha1.BoundByCeiling,
		})), applied(reasons.Settled), declared("app", 300, 40*time.Second), constrained(v1alpha1.Constraints{
			Ceiling: milli(600), CeilingBy: "LimitRange/within, ResourceQuota/all", IncreaseOnNeed: true,
		}))),
		allocated(frail, both(decided(800, "app", decision(v1alpha1.Decision{
			Demand: 790, Usage: 640, Budget: 100, Price: 0.961, Floor: 800, Ceiling: 4000, BoundBy: v1alpha1.BoundByFloor,
		})), applied(reasons.UnhealthyAfterDecrease), declared("app", 500, 10*time.Minute), constrained(v1alpha1.Constraints{NoDecrease: string(reasons.UnhealthyAfterDecrease)}), func(pa *v1alpha1.PodAllocation) {
			pa.Status.Rollback.LastHarmfulDecreaseTime = *ago(10 * time.Minute)
		})),
		allocated(db, both(decided(1000, "app", decision(v1alpha1.Decision{
			Demand: 1300, Usage: 1249, Budget: 750, PriorityPercent: 200, CoordinationPercent: percentOf(150), Price: 0.600, Floor: 1250, Ceiling: 3000, BoundBy: v1alpha1.BoundByPrice,
		})), func(pa *v1alpha1.PodAllocation) {
			pa.Spec.DesiredCPULimit, pa.Spec.Containers = milli(1250), append(pa.Spec.Containers, v1alpha1.ContainerLimit{Name: "proxy", CPULimit: 250})
		}, applied(reasons.NoDisruptionAllowed), constrained(v1alpha1.Constraints{
			Containers: []v1alpha1.ContainerConstraints{{Name: "app", Floor: milli(200), Ceiling: milli(2000)}, {Name: "proxy", Floor: milli(100)}},
			Ceiling:    milli(3000), FloorBy: "LimitRange/small, LimitRange/within", CeilingBy: "LimitRange/small, LimitRange/within",
			NoDecrease: string(reasons.NoDisruptionAllowed), CoordinationPercent: percentOf(150), DemandPercent: percentOf(120), DemandBy: "DemandSignal/db-latency",
		}))),
		allocated(cache, applied(reasons.Settled)), allocated(roll, status(v1alpha1.PhasePending, "NoDecisionYet", "not yet")),
	)
}

// TestConstraints shows the output for pods whose limits other objects constrain, in
// testdata/constraints-*.txt.
func TestConstraints(t *testing.T) {
	for name, args := range map[string]string{
		"constraints-hpa":      "explain web-abc-1",
		"constraints-rollback": "explain frail-0", "constraints-many": "explain db-0", "constraints-vpa": "explain tuned-0",
		"constraints-json": "explain sum-1 -o json", "constraints-list": "list -o wide", "constraints-doctor": "doctor",
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, plaza()...)
			c.golden(t, name, args+" -n plaza")
		})
	}
}

// TestDeclaredLimitsAreFloors: what the plugin says of a namespace that forbids limits below the declared
// ones, in testdata/constraints-declared.txt.
func TestDeclaredLimitsAreFloors(t *testing.T) {
	objects := shop()
	edit(t, objects, "shop", func(n *corev1.Namespace) {
		n.Annotations = map[string]string{kube.BelowDeclaredKey: kube.BelowDeclaredNever, kube.MaxRaiseKey: "4"}
	})
	pod := owned("Deployment", "kept", "kept-abc-1", apiserver.Container("app", "100m", "500m"))
	pod.Namespace = "shop"
	objects = append(objects, pod, allocated(pod, both(decided(500, "app", v1alpha1.Decision{
		Demand: 1100, Usage: 498, ThrottledPercent: 90, Budget: 100, PriorityPercent: 100, Price: 0.961, Floor: 500, Ceiling: 4000,
		BoundBy: v1alpha1.BoundByFloor, ObservedAt: *ago(3 * time.Second),
	}), applied(reasons.Settled), declared("app", 500, time.Hour), constrained(v1alpha1.Constraints{
		Containers: []v1alpha1.ContainerConstraints{{Name: "app", Floor: milli(500)}}, FloorBy: "Namespace/shop",
	}))))
	c := newCluster(t, objects...)
	doctor, _, _ := c.run(t, "doctor")
	explain, list := c.prints(t, "explain kept-abc-1 -n shop"), c.prints(t, "list -n shop -o wide")
	var kept []string
	for _, line := range strings.Split(doctor+list, "\n") {
		if strings.Contains(line, "declared ones") || strings.Contains(line, "kept-abc-1") || strings.Contains(line, "CONSTRAINTS") {
			kept = append(kept, line)
		}
	}
	golden(t, "constraints-declared", strings.Join(kept, "\n")+"\n\n"+explain)
}

// TestScarce: doctor and list where constraints leave little room, and some objects cannot be read.
func TestScarce(t *testing.T) {
	objects := plaza()
	edit(t, objects, "db", func(b *policyv1.PodDisruptionBudget) {
		b.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"sum", "frail"}}}}
	})
	edit(t, objects, "all", func(q *corev1.ResourceQuota) {
		q.Status.Used = corev1.ResourceList{corev1.ResourceLimitsCPU: resource.MustParse("7900m")}
	})
	fresh := quotaOf("fresh", "limits.cpu", "8", "0")
	fresh.Status = corev1.ResourceQuotaStatus{}
	few := quotaOf("few", "limits.cpu", "2", "1900m")
	few.Spec.Scopes = []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeTerminating}
	job := owned("Job", "once", "once-1", apiserver.Container("app", "100m", "300m"))
	job.Spec.ActiveDeadlineSeconds = new(int64(60))
	tuned := owned("StatefulSet", "tuned", "tuned-1", apiserver.Container("app", "100m", "300m"))
	rollout := kube.Target{APIVersion: "example.org/v1", Kind: "Rollout", Name: "roll"}
	scaled := cpuHPA("roll", 70, nil)
	scaled.Spec.ScaleTargetRef = autoscalingv2.CrossVersionObjectReference{APIVersion: rollout.APIVersion, Kind: rollout.Kind, Name: rollout.Name}
	byMemory := cpuHPA("memory", 70, nil)
	byMemory.Spec.ScaleTargetRef = scaled.Spec.ScaleTargetRef
	byMemory.Spec.ScaleTargetRef.Name, byMemory.Spec.Metrics[0].Resource.Name = "memory", corev1.ResourceMemory
	away := vpaOf("away", rollout, "Recreate")
	away.SetNamespace("lab")
	also := &policyv1.PodDisruptionBudget{}
	also.Namespace, also.Name, also.Spec.Selector = "plaza", "web", metav1.SetAsLabelSelector(map[string]string{"app": "web"})
	objects = append(objects, also, fresh, few, job, tuned, scaled, allocated(tuned, applied(reasons.Settled)),
		vpaOf("cache", kube.Target{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "cache"}, "InPlaceOrRecreate", "memory"),
		// The pods of these targets are not looked up.
		vpaOf("asleep", kube.Target{APIVersion: rollout.APIVersion, Kind: rollout.Kind, Name: "asleep"}, "Off"), away, byMemory,
		vpaOf("roll", rollout, "Initial"), vpaOf("vague", kube.Target{Kind: "Rollout", Name: "web"}, "Recreate"))

	c := newCluster(t, objects...).in("plaza")
	c.may = func(_, _, r string) bool { return r != "verticalpodautoscalers" }
	c.scale = func(o client.Object) (string, error) {
		return "", apierrors.NewForbidden(schema.GroupResource{Group: "example.org", Resource: "rollouts"}, o.GetName(), errors.New(`User "dev" cannot get resource "rollouts/scale"`))
	}
	doctor, _, _ := c.run(t, "doctor", "-q")
	list := c.prints(t, "list -l app=once")
	golden(t, "constraints-scarce", "$ kubectl mbcas doctor -q\n"+doctor+"\n$ kubectl mbcas list -n plaza -l app=once\n"+list)
}

// TestCustomTargets: the pods of a custom target are those that its scale subresource selects.
func TestCustomTargets(t *testing.T) {
	target := vpaOf("roll", kube.Target{APIVersion: "example.org/v1", Kind: "Rollout", Name: "roll"}, "Recreate")
	for selector, want := range map[string]bool{"app=roll": true, "app=web": false, "": false} {
		c := newCluster(t, append(plaza(), target)...).in("plaza")
		c.scale = func(client.Object) (string, error) { return selector, nil }
		stdout := c.prints(t, "explain roll-abc-1")
		if left := strings.Contains(stdout, "VerticalPodAutoscaler roll)"); left != want || strings.Contains(stdout, "not known") {
			t.Errorf("selector %q: left to the VPA %v, want %v\n%s", selector, left, want, stdout)
		}
	}
	c := newCluster(t, append(plaza(), target)...).in("plaza") // without such a Rollout
	if stdout := c.prints(t, "list"); strings.Contains(stdout, "not known") {
		t.Errorf("no such target:\n%s", stdout)
	}
}

// TestVPAsForbidden: if VerticalPodAutoscalers may not be listed, a note says so and the rest is shown.
func TestVPAsForbidden(t *testing.T) {
	c := newCluster(t, plaza()...).in("plaza")
	c.refuse(&unstructured.UnstructuredList{},
		apierrors.NewForbidden(schema.GroupResource{Resource: "verticalpodautoscalers"}, "", errors.New("no")))
	c.prints(t, "list", "7 of 8 pods", "Note: The VerticalPodAutoscalers are unknown: list verticalpodautoscalers:")
}

// TestOptedOutOfVPA: a pod that its owner opted out is reported as that, also if a VPA writes its CPU.
func TestOptedOutOfVPA(t *testing.T) {
	objects := plaza()
	edit(t, objects, "tuned-0", func(p *corev1.Pod) { p.Labels[kube.ManagedKey] = "false" })
	newCluster(t, objects...).in("plaza").prints(t, "explain tuned-0", "(OptedOut).")
}

// TestConstraintsAreUnknown: a user without access to NodeAllocations is told so, and is told the rest.
func TestConstraintsAreUnknown(t *testing.T) {
	c := newCluster(t, plaza()...).in("plaza")
	c.refuse(&v1alpha1.NodeAllocation{},
		apierrors.NewForbidden(v1alpha1.GroupVersion.WithResource("nodeallocations").GroupResource(), "node-1", errors.New("no")))
	c.prints(t, "explain web-abc-1", "What constrains the pod is unknown", `"node-1" is forbidden`, "declared")
}
