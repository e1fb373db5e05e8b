package controller

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

// TestPodLevelResourcesComeLater: from Kubernetes 1.36 a resize may give a running pod resources of its own. A pod that
// the market has lowered or raised by then returns to its declared limits and leaves the market, and its own resources stay.
func TestPodLevelResourcesComeLater(t *testing.T) {
	for name, changed := range map[string]func(*life) *corev1.Pod{
		"lowered": func(l *life) *corev1.Pod { return l.lowered("web") },
		"raised":  func(l *life) *corev1.Pod { return l.raised("web") },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			l := r.live()
			pod := changed(l)
			patch := client.RawPatch(types.StrategicMergePatchType, []byte(`{"spec":{"resources":{"limits":{"cpu":"3"}}}}`))
			if err := r.Client.SubResource("resize").Patch(t.Context(), pod.DeepCopy(), patch); err != nil {
				t.Skipf("optional: the API server takes no pod-level resources in a resize: %v", err)
			}
			l.becomes(pod, "left the market", func(pa *v1alpha1.PodAllocation) bool { return pa == nil })
			if got := kube.ByName(kube.Limits(r.read(pod)))["app"]; got != 500 {
				t.Errorf("limit %v, want 500m once the pod has resources of its own", got)
			}
			if got := r.read(pod).Spec.Resources; got == nil || got.Limits.Cpu().MilliValue() != 3000 {
				t.Errorf("its own resources are %+v", got)
			}
		})
	}
}

// whole runs a pod of two containers that share its own CPU limit of 500m.
func (r *rig) whole(name string) *corev1.Pod {
	r.Helper()
	pod := apiserver.Pod(r.namespace, name, apiserver.Container("app", "100m", ""), apiserver.Container("log", "50m", ""))
	pod.Spec.Resources = &corev1.ResourceRequirements{Limits: apiserver.Container("", "", "500m").Resources.Limits}
	pod = r.kubelet.Run(r, pod)
	if pod.Status.Resources == nil {
		r.Skip("optional: the API server takes no pod-level resources in a resize")
	}
	return pod
}

func own(m cpu.Milli) v1alpha1.ContainerLimit {
	return v1alpha1.ContainerLimit{Name: v1alpha1.PodLevel, CPULimit: m}
}

// TestPodLevelLimitIsManaged: a pod whose containers share its own limit is lowered and raised by that limit, which is
// recorded first, and returns to it when it leaves the market, in each way.
func TestPodLevelLimitIsManaged(t *testing.T) {
	for name, leave := range map[string]func(*rig, *life, *corev1.Pod){
		"the namespace is switched off": func(r *rig, _ *life, _ *corev1.Pod) { r.mode(r.namespace, kube.ModeOff) },
		"it is opted out":               func(r *rig, _ *life, pod *corev1.Pod) { r.label(pod, "false") },
		"the option is switched off":    func(_ *rig, l *life, _ *corev1.Pod) { l.Reconciler.Config.PodLevel = false },
		"a container is excluded": func(r *rig, _ *life, pod *corev1.Pod) {
			r.merge(pod, `{"metadata":{"annotations":{"`+kube.ExcludeContainersKey+`":"log"}}}`)
		},
		"a container gets a limit": func(r *rig, _ *life, pod *corev1.Pod) {
			patch := `{"spec":{"containers":[{"name":"log","resources":{"limits":{"cpu":"200m"}}}]}}`
			r.must(r.Client.SubResource("resize").Patch(r.Context(), pod.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, []byte(patch))))
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.config.PodLevel = true
			l := r.live()
			pod := r.whole("web")
			pa := l.settles(pod, v1alpha1.PhasePending, reasons.NoDecisionYet)
			r.declaredIs(pa, own(500))
			if told := r.toldOf(pod); told == nil || !kube.SameLimits(told.DeclaredLimits, []v1alpha1.ContainerLimit{own(500)}) {
				t.Fatalf("the agent is told %+v", told)
			}
			for _, to := range []cpu.Milli{200, 2000, 300} {
				l.becomes(pod, "followed", func(pa *v1alpha1.PodAllocation) bool {
					if r.limit(pod) != to {
						r.publish(pod, "0.500", own(to))
					}
					return r.limit(pod) == to && pa.Status.Phase == v1alpha1.PhaseApplied
				})
			}
			if got := r.read(pod); got.Spec.Resources.Requests.Cpu().MilliValue() != 150 || len(kube.Limits(got)) != 1 {
				t.Errorf("more than its own limit is changed: %+v", got.Spec)
			}
			leave(r, l, pod)
			l.becomes(pod, "left the market", func(pa *v1alpha1.PodAllocation) bool { return pa == nil })
			if got := kube.ByName(kube.Limits(r.read(pod)))[v1alpha1.PodLevel]; got != 500 {
				t.Errorf("its own limit is %v, want 500m", got)
			}
		})
	}
}

// TestPodLevelChangedByAnother: a pod-level limit that another client sets is the new declared one.
func TestPodLevelChangedByAnother(t *testing.T) {
	r := newRig(t)
	r.config.PodLevel = true
	l := r.live()
	pod := r.whole("web")
	l.settles(pod, v1alpha1.PhasePending, reasons.NoDecisionYet)
	r.publish(pod, "0.000", own(2000))
	l.settles(pod, v1alpha1.PhaseApplied, reasons.Settled)
	patch := client.RawPatch(types.StrategicMergePatchType, []byte(`{"spec":{"resources":{"limits":{"cpu":"700m"}}}}`))
	r.must(r.Client.SubResource("resize").Patch(t.Context(), pod.DeepCopy(), patch, client.FieldOwner("kubectl-edit")))
	l.becomes(pod, "held off", func(pa *v1alpha1.PodAllocation) bool {
		return pa != nil && pa.Status.Reason == string(reasons.ExternalChange) && kube.SameLimits(pa.Status.DeclaredLimits, []v1alpha1.ContainerLimit{own(700)})
	})
	r.limitIs(pod, 700, "as another client set it")
}

// TestPodLevelIsAnOption: without the option such a pod gets no record and no resize.
func TestPodLevelIsAnOption(t *testing.T) {
	r := newRig(t)
	l := r.live()
	pod := r.whole("web")
	l.newPod("marker")
	if pa := l.look(pod); pa != nil {
		t.Errorf("it has an allocation: %+v", pa.Status)
	}
	r.limitIs(pod, 500, "without the option")
}
