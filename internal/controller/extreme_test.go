package controller

import (
	"fmt"
	"math"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

// TestExtremeValues: a value of one tenant that the API server takes, and that no object of MBCAS
// can hold, keeps no other pod of the node from being known to its agent.
func TestExtremeValues(t *testing.T) {
	run := func(r *rig, namespace string, containers ...corev1.Container) *corev1.Pod {
		pod := apiserver.Pod(namespace, "web", containers...)
		pod.Labels = map[string]string{"app": "x", "pod-template-hash": "abc"}
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "x-abc", UID: "rs-x", Controller: new(true)}}
		return r.kubelet.Run(r, pod)
	}
	plain := apiserver.Container("app", "100m", "500m")
	scaled := func(r *rig, namespace string, target autoscalingv2.MetricTarget) *corev1.Pod {
		h := hpa(namespace, "x", kube.Target{APIVersion: "apps/v1", Kind: "Deployment", Name: "x"}, 80)
		h.Spec.Metrics[0].Resource.Target = target
		r.must(r.Client.Create(r.Context(), h))
		return run(r, namespace, plain)
	}
	var many []corev1.Container
	for i := range v1alpha1.MaxContainers + 1 {
		many = append(many, apiserver.Container(fmt.Sprint("c", i), "1m", "10m"))
	}
	for name, c := range map[string]struct {
		start func(r *rig, namespace string) *corev1.Pod
		out   bool // the pod itself is unmanaged
	}{
		"an HPA of 500Mi CPU": {start: func(r *rig, ns string) *corev1.Pod {
			return scaled(r, ns, autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: new(resource.MustParse("500Mi"))})
		}},
		"an HPA of the largest utilization": {start: func(r *rig, ns string) *corev1.Pod {
			return scaled(r, ns, autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: new(int32(math.MaxInt32))})
		}},
		"a LimitRange of 1M": {start: func(r *rig, ns string) *corev1.Pod {
			most := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1M")}
			o := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "x"}}
			o.Spec.Limits = []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer, Max: most}, {Type: corev1.LimitTypePod, Max: most}}
			r.must(r.Client.Create(r.Context(), o))
			return run(r, ns, plain)
		}},
		"a limit of 100k": {start: func(r *rig, ns string) *corev1.Pod { return run(r, ns, apiserver.Container("app", "100m", "100k")) }, out: true},
		"limits of 100k in sum": {start: func(r *rig, ns string) *corev1.Pod {
			return run(r, ns, apiserver.Container("a", "1m", "60k"), apiserver.Container("b", "1m", "60k"))
		}, out: true},
		"more containers than fit":  {start: func(r *rig, ns string) *corev1.Pod { return run(r, ns, many...) }, out: true},
		"as many containers as fit": {start: func(r *rig, ns string) *corev1.Pod { return run(r, ns, many[1:]...) }},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			l, namespace := r.live(), r.Namespace(t)
			r.mode(namespace, kube.ModeEnforce)
			odd := c.start(r, namespace)
			l.pass(time.Second)
			l.look(odd)
			beside := r.kubelet.Run(r, apiserver.Pod(r.Namespace(t), "beside", plain))
			r.mode(beside.Namespace, kube.ModeEnforce)
			l.settles(beside, v1alpha1.PhasePending, reasons.NoDecisionYet)
			l.pass(time.Second)
			l.look(beside)
			if r.publishedOf(beside) == nil || (r.publishedOf(odd) == nil) != c.out || (r.stored(odd) == nil) != c.out {
				t.Errorf("published: the pod beside it %v, the odd one %v, managed %v", r.publishedOf(beside) != nil, r.publishedOf(odd) != nil, r.stored(odd) != nil)
			}
			r.publish(beside, "0.000", app(900))
			l.gets(beside, 900)
			if len(l.wire.refused) > 0 {
				t.Errorf("the API server refuses %v", l.wire.refused)
			}
			for _, ns := range []string{namespace, beside.Namespace} { // what would keep the next controller busy
				for _, o := range []client.Object{&corev1.Pod{}, &v1alpha1.PodAllocation{}} {
					r.must(r.Client.DeleteAllOf(r.Context(), o, client.InNamespace(ns), client.GracePeriodSeconds(0)))
				}
			}
		})
	}
}
