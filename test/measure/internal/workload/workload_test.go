package workload

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/mbcas/mbcas/internal/testing/must"
	"github.com/mbcas/mbcas/test/internal/cgroup"
	"github.com/mbcas/mbcas/test/internal/guard"
	"github.com/mbcas/mbcas/test/measure/internal/recorder"
	"github.com/mbcas/mbcas/test/measure/internal/script"
	"github.com/mbcas/mbcas/test/measure/scripts"
)

func open(t *testing.T, name string) *script.Script {
	t.Helper()
	s, err := script.Open(scripts.Files, name)
	must.Succeed(t, err)
	return s
}

func TestOnlyLimitsDiffer(t *testing.T) {
	for _, w := range open(t, "demo").Workloads {
		with, without := Deployment(w, "n", true), Deployment(w, "n", false)
		limit, has := with.Spec.Template.Spec.Containers[0].Resources.Limits[corev1.ResourceCPU]
		if has != (w.Limit > 0) || limit.MilliValue() != int64(w.Limit) {
			t.Errorf("%s: limit %v, want %v", w.Name, &limit, w.Limit)
		}
		if w.Managed() {
			delete(with.Spec.Template.Spec.Containers[0].Resources.Limits, corev1.ResourceCPU)
		}
		if diff := cmp.Diff(with, without); diff != "" {
			t.Errorf("%s differs in more than its CPU limit:\n%s", w.Name, diff)
		}
	}
}

func TestUntouchedPods(t *testing.T) {
	want := map[string]corev1.PodQOSClass{
		"guaranteed": corev1.PodQOSGuaranteed, "besteffort": corev1.PodQOSBestEffort,
		"unlimited": corev1.PodQOSBurstable, "opted-out": corev1.PodQOSBurstable,
	}
	s := open(t, "demo")
	for _, w := range s.Workloads {
		qos := qos(Deployment(w, "n", true).Spec.Template.Spec.Containers[0].Resources)
		if w.Managed() {
			if qos != corev1.PodQOSBurstable || w.Limit <= w.Request {
				t.Errorf("%s is %s with limit %v: the market cannot manage it", w.Name, qos, w.Limit)
			}
			continue
		}
		if Deployment(w, "n", true).Spec.Template.Labels[guard.Untouched] == "" {
			t.Errorf("%s is not guarded", w.Name)
		}
		if qos != want[w.Name] {
			t.Errorf("%s is %s, want %s", w.Name, qos, want[w.Name])
		}
		delete(want, w.Name)
	}
	for name := range want {
		t.Errorf("%s is missing", name)
	}
	w, _ := s.Find("opted-out")
	if Deployment(w, "n", true).Spec.Template.Labels["mbcas.io/managed"] != "false" {
		t.Error("opted-out is not opted out")
	}
}

// qos is the class of a pod of one container.
func qos(r corev1.ResourceRequirements) corev1.PodQOSClass {
	if len(r.Requests) == 0 && len(r.Limits) == 0 {
		return corev1.PodQOSBestEffort
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		request, limit := r.Requests[name], r.Limits[name]
		if limit.IsZero() || request.Cmp(limit) != 0 {
			return corev1.PodQOSBurstable
		}
	}
	return corev1.PodQOSGuaranteed
}

func TestClassesDoNotPreempt(t *testing.T) {
	classes := 0
	for _, o := range fixtures(open(t, "demo")) {
		if class, ok := o.(*schedulingv1.PriorityClass); ok {
			classes++
			if class.PreemptionPolicy == nil || *class.PreemptionPolicy != corev1.PreemptNever {
				t.Errorf("%s preempts", class.Name)
			}
		}
	}
	if classes != 2 {
		t.Errorf("%d classes, want 2", classes)
	}
}

func TestOpenAndClose(t *testing.T) {
	for _, name := range []string{"demo", "quota", "hpa"} {
		s := open(t, name)
		w := Workload{
			Client: fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).Build(),
			Script: s, Recorder: recorder.New(s, cgroup.Node{}), Node: "n",
		}
		for range 2 {
			must.Succeed(t, w.Open(t.Context()))
			must.Succeed(t, w.SetMode(t.Context(), "enforce"))
		}
		var namespaces corev1.NamespaceList
		must.Succeed(t, w.Client.List(t.Context(), &namespaces))
		for _, ns := range namespaces.Items {
			if ns.Labels["mbcas.io/mode"] != "enforce" {
				t.Errorf("%s: mode of %s is %q, want enforce", name, ns.Name, ns.Labels["mbcas.io/mode"])
			}
		}
		must.Succeed(t, w.create(t.Context(), pods(s, "n", true)))
		must.Succeed(t, w.Close(t.Context()))
		for _, list := range []client.ObjectList{
			&corev1.NamespaceList{}, &appsv1.DeploymentList{}, &schedulingv1.PriorityClassList{},
			&autoscalingv2.HorizontalPodAutoscalerList{}, &corev1.ResourceQuotaList{},
		} {
			must.Succeed(t, w.Client.List(t.Context(), list))
			if n := apimeta.LenList(list); n != 0 {
				t.Errorf("%s: %T: %d are left", name, list, n)
			}
		}
	}
}

// TestNewPodFits: a new pod needs exactly the headroom of the quota.
func TestNewPodFits(t *testing.T) {
	s := open(t, "quota")
	if s.NewPods.Limit != s.Quota.LimitsCPU-s.Quota.Mark() {
		t.Errorf("limit %v, headroom %v", s.NewPods.Limit, s.Quota.LimitsCPU-s.Quota.Mark())
	}
	p := newPod(script.Workload{
		Name: NewPod, Namespace: s.NewPods.Namespace, Request: s.NewPods.Request, Limit: s.NewPods.Limit,
	}, "n", 3)
	limit := p.Spec.Containers[0].Resources.Limits.Cpu().MilliValue()
	want := map[string]string{recorder.App: NewPod, recorder.PartOf: recorder.PartOfValue}
	if p.Name != "new-pod-3" || !maps.Equal(p.Labels, want) || limit != 320 {
		t.Errorf("%+v", p)
	}
}
