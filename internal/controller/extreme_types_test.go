package controller

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/constraints"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/restore"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
	"github.com/mbcas/mbcas/internal/testing/atlength"
	"github.com/mbcas/mbcas/internal/testing/memapi"
	"github.com/mbcas/mbcas/internal/testing/must"
)

// pairsOf are pods of which two values are multiplied or summed, and both are extreme.
func pairsOf(base *corev1.Pod) (all []extreme) {
	for i, a := range extremeAmounts {
		for j, b := range append(extremeAmounts, "") {
			pod := base.DeepCopy()
			what := fmt.Sprintf("limits of %s and %s", a, b)
			if pod.Spec.Containers[0] = apiserver.Container("app", "", a); b == "" {
				what = fmt.Sprintf("a limit of %s and a boost", a)
				pod.Annotations = map[string]string{kube.StartupBoostKey: fmt.Sprint(kube.MaxStartupBoost)}
			} else if pod.Spec.Containers[1] = apiserver.Container("side", "", b); i > j {
				continue
			}
			all = append(all, extreme{what, pod})
		}
	}
	return all
}

// tenant writes objects of one kind with extreme values.
type tenant struct {
	*life
	namespace string
	change    bool // what exists is changed
	written   int
	beside    []*corev1.Pod // one for each value that was written
}

// kindOfTenant is an object that tenants write, and the keys that the controller reads of its annotations and labels.
type kindOfTenant struct {
	base client.Object
	keys []string
}

// kindsOfTenants are the kinds that tenants write and the controller reads. Each object has an element in each list.
func kindsOfTenants() map[string]kindOfTenant {
	one := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	pod := apiserver.Pod("", "x", apiserver.Container("app", "100m", "500m"), apiserver.Container("side", "100m", "500m"))
	proxy := apiserver.Container("proxy", "10m", "100m")
	proxy.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	pod.Spec.InitContainers = []corev1.Container{proxy}
	target := kube.Target{APIVersion: "apps/v1", Kind: "Deployment", Name: "x"}
	utilization, average, container := hpa("", "x", target, 80), hpa("", "x", target, 80), hpa("", "x", target, 80)
	average.Spec.Metrics[0].Resource.Target = autoscalingv2.MetricTarget{
		Type: autoscalingv2.AverageValueMetricType, AverageValue: new(resource.MustParse("1")),
	}
	container.Spec.Metrics[0] = autoscalingv2.MetricSpec{
		Type: autoscalingv2.ContainerResourceMetricSourceType, ContainerResource: &autoscalingv2.ContainerResourceMetricSource{
			Name: corev1.ResourceCPU, Container: "app", Target: utilization.Spec.Metrics[0].Resource.Target,
		},
	}
	ranges := &corev1.LimitRange{Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{
		{Type: corev1.LimitTypeContainer, Max: one}, {Type: corev1.LimitTypePod, Max: one},
	}}}
	quota := &corev1.ResourceQuota{Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{
		corev1.ResourceLimitsCPU: resource.MustParse("9"), corev1.ResourceRequestsCPU: resource.MustParse("9"),
	}}}
	budget := &policyv1.PodDisruptionBudget{Spec: policyv1.PodDisruptionBudgetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}},
	}}
	signal := &v1alpha1.DemandSignal{Spec: v1alpha1.DemandSignalSpec{
		TargetRef: v1alpha1.ObjectRef{APIVersion: target.APIVersion, Kind: target.Kind, Name: target.Name}, MinPercent: 100, MaxPercent: 200,
		Metric: v1alpha1.SignalMetric{Type: v1alpha1.ExternalMetric, External: &v1alpha1.MetricTarget{
			Metric: v1alpha1.MetricID{Name: "latency"}, Target: v1alpha1.SignalObjective{Type: "Value", Value: new(resource.MustParse("1"))},
		}},
	}}
	vpa := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"targetRef":    map[string]any{"apiVersion": target.APIVersion, "kind": target.Kind, "name": target.Name},
		"updatePolicy": map[string]any{"updateMode": "Off", "minReplicas": int64(1)},
		"resourcePolicy": map[string]any{"containerPolicies": []any{map[string]any{
			"containerName": "app", "mode": "Auto", "minAllowed": map[string]any{"cpu": "1"}, "maxAllowed": map[string]any{"cpu": "1"},
			"controlledResources": []any{"cpu"},
		}}},
	}}}
	vpa.SetGroupVersionKind(constraints.VPAKind)
	allow := []string{kube.AllowDecreaseKey}
	return map[string]kindOfTenant{
		"Pod":       {pod, []string{kube.ManagedKey, kube.MaxCPUKey, kube.MaxRaiseKey, kube.StartupBoostKey}},
		"Namespace": {&corev1.Namespace{}, []string{kube.MaxRaiseKey, kube.StartupBoostKey, kube.BelowDeclaredKey}},
		"HPA":       {utilization, allow}, "HPA of an average": {average, nil}, "HPA of a container": {container, nil},
		"PodDisruptionBudget": {budget, allow}, "LimitRange": {ranges, nil}, "ResourceQuota": {quota, nil},
		"VerticalPodAutoscaler": {vpa, nil}, "DemandSignal": {signal, nil},
	}
}

// TestExtremesOfEachType: whatever value of a tenant the API server takes, at each place of each kind that the controller reads, when
// the object is made or changed: a pod beside it is published, raised, recorded and restored in time, and the API server refuses
// nothing that the controller writes.
func TestExtremesOfEachType(t *testing.T) {
	if !atlength.On() {
		t.Skip("optional: at length")
	}
	for name, kind := range kindsOfTenants() {
		for how, change := range map[string]bool{"made": false, "changed": true} {
			if _, is := kind.base.(*corev1.Namespace); is && !change {
				continue // it is there already
			}
			t.Run(name+" "+how, func(t *testing.T) {
				w := newTenant(t, change)
				if _, is := kind.base.(*corev1.Namespace); change && !is {
					w.must(w.rig.Client.Create(t.Context(), w.own(kind.base)))
				}
				all := extremesOf(kind.base, kind.keys...)
				if pod, is := kind.base.(*corev1.Pod); is {
					all = append(all, pairsOf(pod)...)
				}
				for _, e := range all {
					if e.differs(kind.base) {
						w.tries(e)
					}
				}
				if t.Logf("%d values", w.written); w.written < 10 {
					t.Error("the API server took fewer than ten values")
				}
			})
		}
	}
}

// TestKindsOfTenants: each kind that the controller may list is one of tenants, of which extreme values are tried, or one of the cluster
// and of MBCAS.
func TestKindsOfTenants(t *testing.T) {
	var role rbacv1.ClusterRole
	data, err := os.ReadFile("../../config/rbac/controller_role.yaml")
	must.Succeed(t, errors.Join(err, yaml.Unmarshal(bytes.Split(data, []byte("\n---\n"))[0], &role)))
	known := map[string]bool{"nodes": true, "podallocations": true, "nodeallocations": true, "*": true} // "*": series of metrics
	for name, kind := range kindsOfTenants() {
		gvk := kind.base.GetObjectKind().GroupVersionKind()
		if gvk.Kind == "" {
			gvks, _, err := memapi.Scheme.ObjectKinds(kind.base)
			must.Succeed(t, err)
			gvk = gvks[0]
		}
		plural, _ := meta.UnsafeGuessKindToResource(gvk)
		if known[plural.Resource] = true; name == "" {
			t.Error("a kind without a name")
		}
	}
	listed := 0
	for _, rule := range role.Rules {
		for _, r := range rule.Resources {
			if !slices.Contains(rule.Verbs, "list") {
				continue
			}
			if listed++; !known[r] {
				t.Errorf("the controller lists %s, and no extreme value of it is tried", r)
			}
		}
	}
	if listed < 10 {
		t.Errorf("%d kinds are listed", listed)
	}
}

func newTenant(t *testing.T, change bool) *tenant {
	t.Helper()
	r := newRig(t)
	w := &tenant{life: r.live(), namespace: r.Namespace(t), change: change}
	r.install(apiserver.CustomResource("verticalpodautoscalers", constraints.VPAKind.Group, constraints.VPAKind.Kind, false))
	w.mode(w.namespace, kube.ModeEnforce)
	w.lookups.vpas, w.lookups.percentages = w, w.percentages
	for name, containers := range map[string][]corev1.Container{ // with which the value is multiplied, or summed
		"web":  {apiserver.Container("app", "100m", "500m")},
		"tiny": {apiserver.Container("app", "1m", "10m")},
		"huge": {apiserver.Container("app", "99999", "99999.999")},
		"vast": {apiserver.Container("app", vast, vast), apiserver.Container("side", vast, vast)},
	} {
		pod := apiserver.Pod(w.namespace, name, containers...)
		pod.Labels = map[string]string{"app": "x", "pod-template-hash": "abc"}
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "x-abc", UID: "rs-x", Controller: new(true)}}
		w.kubelet.Run(t, pod)
	}
	return w
}

// List reads the VPAs of a namespace.
func (w *tenant) List(ctx context.Context, namespace string) (all []constraints.VPA, unknown string, err error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(constraints.VPAKind)
	err = w.rig.Client.List(ctx, list, client.InNamespace(namespace))
	for i := range list.Items {
		all = append(all, constraints.VPAOf(&list.Items[i]))
	}
	return all, "", err
}

// percentages are the highest ones that the DemandSignals of a namespace can ask for.
func (w *tenant) percentages(namespace string) (asks []constraints.Signal, known bool) {
	list := &v1alpha1.DemandSignalList{}
	w.must(w.rig.Client.List(w.Context(), list, client.InNamespace(namespace)))
	for _, d := range list.Items {
		ref := d.Spec.TargetRef
		asks = append(asks, constraints.Signal{
			Name: d.Name, Target: kube.Target{APIVersion: ref.APIVersion, Kind: ref.Kind, Name: ref.Name}, Percent: d.Spec.MaxPercent,
		})
	}
	return asks, true
}

// own is an object of the tenant's namespace.
func (w *tenant) own(o client.Object) client.Object {
	o = o.DeepCopyObject().(client.Object)
	o.SetNamespace(w.namespace)
	o.SetName("x")
	switch o := o.(type) {
	case *corev1.Namespace:
		o.Name, o.Namespace = w.namespace, ""
	case *corev1.Pod:
		o.Spec.NodeName = w.kubelet.Node
	}
	return o
}

// tries writes an object with an extreme value, and shows that a pod beside it is served, unless the API server refuses the value.
func (w *tenant) tries(e extreme) {
	w.Helper()
	o := w.own(e.object)
	var err error
	if w.change {
		err = retry.RetryOnConflict(retry.DefaultBackoff, func() error { return w.update(o.DeepCopyObject().(client.Object)) })
	} else {
		err = w.rig.Client.Create(w.Context(), o)
	}
	switch {
	case err == nil:
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsForbidden(err), errors.Is(err, errImmutable):
		return // the API server does not take the value
	default:
		w.Fatalf("%s: %v", e.what, err)
	}
	w.written++
	w.serves(e.what)
	if !w.change {
		w.must(w.rig.Client.Delete(w.Context(), o, client.GracePeriodSeconds(0)))
	}
}

// errImmutable is a change that no API server takes.
var errImmutable = errors.New("a pod's containers are immutable")

func (w *tenant) update(o client.Object) error {
	w.Helper()
	stored := o.DeepCopyObject().(client.Object)
	w.must(w.rig.Client.Get(w.Context(), client.ObjectKeyFromObject(o), stored))
	switch o := o.(type) {
	case *corev1.Namespace:
		changed := stored.(*corev1.Namespace)
		changed.Annotations = o.Annotations
		maps.Copy(changed.Labels, o.Labels)
		return w.rig.Client.Update(w.Context(), changed)
	case *corev1.Pod:
		return w.resize(stored.(*corev1.Pod), o)
	}
	o.SetResourceVersion(stored.GetResourceVersion())
	return w.rig.Client.Update(w.Context(), o)
}

// resize has a pod as another one is, as far as a pod can be changed.
func (w *tenant) resize(pod, as *corev1.Pod) error {
	pod.Annotations, pod.Labels = as.Annotations, as.Labels
	if err := w.rig.Client.Update(w.Context(), pod); err != nil {
		return err
	}
	if len(as.Spec.Containers) != len(pod.Spec.Containers) || len(as.Spec.InitContainers) != len(pod.Spec.InitContainers) {
		return errImmutable
	}
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].Resources = as.Spec.Containers[i].Resources
	}
	for i := range pod.Spec.InitContainers {
		pod.Spec.InitContainers[i].Resources = as.Spec.InitContainers[i].Resources
	}
	return w.rig.Client.SubResource("resize").Update(w.Context(), pod)
}

// serves shows that the pods beside those of the tenant are served when the controller looks at the node once: a new one is published
// and recorded, the one before it raised, and the one before that restored.
func (w *tenant) serves(what string) {
	w.Helper()
	w.pass(time.Second)
	pod := w.kubelet.Run(w.T, apiserver.Pod(w.life.namespace, fmt.Sprint("beside-", w.written), apiserver.Container("app", "100m", "500m")))
	w.beside = append(w.beside, pod)
	n := len(w.beside)
	if n > 1 {
		w.publish(w.beside[n-2], "0.000", app(900))
	}
	if n > 2 {
		w.label(w.beside[n-3], "false")
	}
	pa := w.look(pod)
	if e, _ := restore.ReadEntry(w.rig.ledger(), pod.UID); w.publishedOf(pod) == nil || pa == nil ||
		!kube.SameLimits(e.Limits, pa.Status.DeclaredLimits) || kube.Total(e.Limits) != 500 {
		w.Fatalf("%s: of a new pod beside it: the ledger has %v, its allocation is %+v, published %v", what, e, pa, w.publishedOf(pod))
	}
	if n > 1 && w.limit(w.beside[n-2]) != 900 {
		w.Errorf("%s: a pod beside it has %s, want 900m", what, w.limit(w.beside[n-2]))
	}
	if n > 2 {
		w.limitIs(w.beside[n-3], 500, what+", restored")
		w.must(w.rig.Client.Delete(w.Context(), w.beside[n-3], client.GracePeriodSeconds(0)))
	}
	if len(w.wire.refused) > 0 {
		w.Errorf("%s: the API server refuses %v", what, w.wire.refused)
		w.wire.refused = nil
	}
}
