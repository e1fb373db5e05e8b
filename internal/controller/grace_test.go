package controller

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
)

// TestNoDecreaseAtTheStart: with the graces that ship, a pod that is not Ready, has just started or has just restarted is not lowered, and
// says which of these it is; once that has passed it is.
func TestNoDecreaseAtTheStart(t *testing.T) {
	r := newRig(t)
	c := DefaultConfig()
	r.config.StartGrace, r.config.RestartGrace = c.StartGrace, c.RestartGrace
	r.start()
	running := func(p *corev1.Pod) *corev1.ContainerStatus { return &p.Status.ContainerStatuses[0] }
	for name, k := range map[string]struct {
		pod  func(*corev1.Pod)
		want reasons.Reason
	}{
		"started": {func(p *corev1.Pod) { running(p).State.Running.StartedAt = metav1.Now() }, reasons.PodStarting},
		"restarted": {func(p *corev1.Pod) {
			running(p).RestartCount = 1
			running(p).State.Running.StartedAt = metav1.NewTime(time.Now().Add(-c.StartGrace - time.Second)) // a start that long ago is over
		}, reasons.RecentlyRestarted},
		"unready": {func(p *corev1.Pod) {
			running(p).State.Running.StartedAt = metav1.NewTime(time.Now().Add(-time.Hour))
			for i := range p.Status.Conditions {
				if c := &p.Status.Conditions[i]; c.Type == corev1.PodReady {
					c.Status = corev1.ConditionFalse
				}
			}
		}, reasons.PodNotReady},
		"settled": {func(p *corev1.Pod) {
			running(p).RestartCount = 3
			running(p).State.Running.StartedAt = metav1.NewTime(time.Now().Add(-time.Hour))
		}, reasons.Settled},
	} {
		t.Run(name, func(t *testing.T) {
			r := r.in(t)
			pod := r.pod(name, "200m", "900m")
			got := &corev1.Pod{}
			r.must(r.Client.Get(t.Context(), client.ObjectKeyFromObject(pod), got))
			k.pod(got)
			r.must(r.Client.Status().Update(t.Context(), got))
			r.allocation(pod, "made", func(*v1alpha1.PodAllocation) bool { return true })
			r.decide(pod, v1alpha1.BoundByPrice, app(700))
			pa := r.allocation(pod, string(k.want), func(pa *v1alpha1.PodAllocation) bool {
				return pa.Status.Reason == string(k.want)
			})
			want := int64(900)
			if k.want == reasons.Settled {
				want = 700
			}
			if got := r.limit(pod); int64(got) != want {
				t.Errorf("limit %v, want %dm; %+v", got, want, pa.Status)
			}
		})
	}
}

// TestNoDisruptionNoDecrease: while a PodDisruptionBudget allows no disruption, as the real controller counts it, no pod of it is lowered.
func TestNoDisruptionNoDecrease(t *testing.T) {
	r := newRig(t)
	r.Controllers(t, "disruption-controller")
	r.start()
	one := r.ownedPod("web", "one", "200m", "900m")
	budget := &policyv1.PodDisruptionBudget{}
	budget.Namespace, budget.Name = r.namespace, "web"
	least, web := intstr.FromInt32(1), metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	budget.Spec.MinAvailable, budget.Spec.Selector = &least, &web
	r.must(r.Client.Create(r.Context(), budget))
	pa := r.allocation(one, "told", func(pa *v1alpha1.PodAllocation) bool { return pa.Status.Constraints != nil })
	if pa.Status.Constraints.NoDecrease != string(reasons.NoDisruptionAllowed) {
		t.Errorf("terms %+v", pa.Status.Constraints)
	}
	r.decide(one, v1alpha1.BoundByFloor, app(700))
	r.allocation(one, "left", stands(v1alpha1.PhaseApplied, reasons.NoDisruptionAllowed))
	if got := r.limit(one); got != 900 {
		t.Errorf("limit %v, want 900m", got)
	}
	r.ownedPod("web", "two", "200m", "900m") // now one of them may go
	r.until("lowered", func() (bool, any) { r.confirm(one); return r.limit(one) == 700, r.stored(one).Status })
}
