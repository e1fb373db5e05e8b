package controller

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

// withProxy creates a running pod with the containers app, which declared 500m, and proxy, which declared 200m.
func (r *rig) withProxy(name string, annotations map[string]string) *corev1.Pod {
	r.Helper()
	pod := apiserver.Pod(r.namespace, name, apiserver.Container("app", "100m", "500m"), apiserver.Container("proxy", "50m", "200m"))
	pod.Spec.NodeName, pod.Annotations = r.kubelet.Node, annotations
	r.must(r.Client.Create(r.Context(), pod))
	return apiserver.WaitFor(r, r.Client, pod, "running", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
}

func proxy(m cpu.Milli) v1alpha1.ContainerLimit {
	return v1alpha1.ContainerLimit{Name: "proxy", CPULimit: m}
}

// TestExcludedContainers: a container that the owner of its pod excluded keeps its declared limit, also where an agent
// that does not know so decides otherwise, and returns to it where the owner excludes it later. A name that is wrong is
// told of once, and keeps no container from the market.
func TestExcludedContainers(t *testing.T) {
	r := newRig(t)
	l := r.live()
	limits := func(pod *corev1.Pod) (app, proxy cpu.Milli) {
		m := kube.ByName(kube.Limits(r.read(pod)))
		return m["app"], m["proxy"]
	}
	settles := func(pod *corev1.Pod, app, proxy cpu.Milli, when string) {
		t.Helper()
		r.until(when, func() (bool, any) {
			pa := l.look(pod)
			a, p := limits(pod)
			return a == app && p == proxy, pa
		})
	}
	pod := r.withProxy("web", map[string]string{kube.ExcludeContainersKey: "proxy, istio"})
	l.settles(pod, v1alpha1.PhasePending, reasons.NoDecisionYet)
	l.look(pod)
	if n := l.told(reasons.UnknownContainer); n != 1 {
		t.Errorf("told of istio %d times, want once", n)
	}
	if told := r.toldOf(pod); !kube.SameLimits(told.DeclaredLimits, []v1alpha1.ContainerLimit{app(500), proxy(200)}) {
		t.Errorf("the agent is told %v: an excluded container counts in the share of its pod", told.DeclaredLimits)
	}
	bounds := allocation.DemandPod(r.read(pod), r.toldOf(pod), 4000)
	if c := bounds.Containers[1]; c.Floor != 200 || c.Ceiling != 200 {
		t.Errorf("its agent decides about proxy between %v and %v", c.Floor, c.Ceiling)
	}
	r.publish(pod, "0.000", app(1500), proxy(600))
	settles(pod, 1500, 200, "an increase")
	r.decide(pod, capped(v1alpha1.BoundByPrice), app(1200), proxy(100))
	settles(pod, 1200, 200, "a decrease")

	later := r.withProxy("later", nil)
	l.settles(later, v1alpha1.PhasePending, reasons.NoDecisionYet)
	r.publish(later, "0.000", app(1500), proxy(600))
	settles(later, 1500, 600, "without the annotation")
	r.annotate(later, kube.ExcludeContainersKey, "proxy")
	settles(later, 1500, 200, "excluded later")
	r.annotate(later, kube.ExcludeContainersKey, "proxy,app")
	settles(later, 500, 200, "when all are excluded")
	r.until("the allocation is gone", func() (bool, any) { l.once(); pa := r.stored(later); return pa == nil, pa })
}
