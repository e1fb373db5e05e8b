package controller

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

// unready sets the pod to not Ready: for a reason of the kubelet, or for none, as the node controller does.
func unready(p *corev1.Pod, at time.Time, reason string) {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == corev1.PodReady {
			c.Status, c.Reason, c.LastTransitionTime = corev1.ConditionFalse, reason, metav1.NewTime(at)
		}
	}
}

// hurt writes what befell the pod into its status.
func (r *rig) hurt(pod *corev1.Pod, how func(*corev1.Pod)) {
	r.Helper()
	got := &corev1.Pod{}
	r.must(r.Client.Get(r.Context(), client.ObjectKeyFromObject(pod), got))
	how(got)
	r.must(r.Client.Status().Update(r.Context(), got))
}

// down is a pod that declared 2000m and stands at 1000m, by the market's will.
func (l *life) down(name string) *corev1.Pod {
	l.Helper()
	l.Reconciler.Config.Actuator.DecreaseCooldown = 0
	pod := l.rig.pod(name, "100m", "2")
	l.settlesAt(pod, 2000)
	l.publish(pod, "0.500", app(1000))
	l.until("lowered", func() (bool, any) { l.look(pod); return l.limit(pod) == 1000, l.limit(pod) })
	l.settles(pod, v1alpha1.PhaseApplied, reasons.Settled)
	return pod
}

// TestAnUndoIsFinished: what a quota has no room for, or a kubelet defers, is given back later, and not forgotten.
func TestAnUndoIsFinished(t *testing.T) {
	r := newRig(t)
	fails := func(p *corev1.Pod) { unready(p, time.Now(), "ContainersNotReady") }
	done := func(l *life, pod *corev1.Pod) {
		l.Helper()
		l.until("all is given back", func() (bool, any) { pa := l.look(pod); return l.limit(pod) == 2000, pa.Status })
		l.becomes(pod, func(pa *v1alpha1.PodAllocation) bool {
			return pa.Status.Phase == v1alpha1.PhaseApplied && pa.Status.Rollback.Limits == nil && pa.Status.Rollback.LastHarmfulDecreaseTime != nil
		})
	}
	t.Run("deferred", func(t *testing.T) {
		r := r.in(t)
		l := r.live(0, false)
		pod := l.down("deferred")
		r.kubelet.Answer(pod, apiserver.Defer)
		r.hurt(pod, fails)
		l.settles(pod, v1alpha1.PhaseFailed, reasons.ResizeDeferred)
		l.until("taken back", func() (bool, any) { l.look(pod); return r.limit(pod) == 1000, r.limit(pod) })
		r.kubelet.Answer(pod, apiserver.Obey)
		l.ahead = r.config.Backoff + time.Second
		r.hearAt(time.Now().Add(l.ahead))
		done(l, pod)
		r.hear()
		r.must(r.Client.Delete(r.Context(), pod, client.GracePeriodSeconds(0))) // else it counts below
	})
	t.Run("short of quota", func(t *testing.T) {
		r := r.in(t)
		r.Controllers(t, "resourcequota-controller")
		l := r.live(0, false)
		pod := l.down("short")
		full := apiserver.Pod(r.namespace, "full", apiserver.Container("app", "100m", "1"))
		full.Labels = map[string]string{kube.ManagedKey: "false"}
		full = r.kubelet.Run(t, full)
		// The quota comes behind both pods: it may not count one that comes at the same time. It leaves a fifth of what was taken.
		q := &corev1.ResourceQuota{}
		q.Namespace, q.Name = r.namespace, "compute"
		q.Spec.Hard = corev1.ResourceList{corev1.ResourceLimitsCPU: resource.MustParse("2200m")}
		r.must(r.Client.Create(r.Context(), q))
		l.counts(q.Name, "2")
		r.hurt(pod, fails)
		l.settles(pod, v1alpha1.PhaseNotApplied, reasons.WaitingForQuota)
		if got := r.limit(pod); got != 1200 {
			t.Errorf("limit %v, want a part of what was taken", got)
		}
		said := false
		for sent := l.Events.(*events.FakeRecorder).Events; len(sent) > 0; {
			e := <-sent
			said = said || strings.Contains(e, " "+string(reasons.UnhealthyAfterDecrease)+" ") && strings.Contains(e, "as far as bounds and quotas allow")
		}
		if !said {
			t.Error("no event that leaves open how much is given back")
		}
		r.must(r.Client.Delete(r.Context(), full))
		done(l, pod)
	})
}

// TestARevertIsNoDecrease: taking a raise back that never took effect lowers nothing, even where the answer to it was lost.
func TestARevertIsNoDecrease(t *testing.T) {
	r := newRig(t)
	for name, lost := range map[string]int{"answered": 0, "answer-lost": 1} {
		t.Run(name, func(t *testing.T) {
			r := r.in(t)
			l := r.live(0, false)
			pod := r.pod(name, "100m", "500m")
			l.settles(pod, v1alpha1.PhasePending, reasons.NoDecisionYet)
			left := 0
			l.Resize = lostAnswer{l.counter, true, &left}
			r.kubelet.Answer(pod, apiserver.Defer)
			r.publish(pod, "0.000", app(2000))
			l.look(pod)
			left = lost
			l.settles(pod, v1alpha1.PhaseFailed, reasons.ResizeDeferred)
			r.until("taken back", func() (bool, any) { l.look(pod); return r.limit(pod) == 500, r.limit(pod) })
			r.hurt(pod, func(p *corev1.Pod) { unready(p, time.Now(), "ContainersNotReady") })
			l.look(pod)
			s := l.look(pod).Status
			if s.LastDecreaseTime != nil || s.Rollback.Limits != nil || s.Rollback.LastHarmfulDecreaseTime != nil {
				t.Errorf("a decrease is noted that never happened: %+v", s)
			}
			if s.Phase != v1alpha1.PhaseFailed || s.Reason != string(reasons.ResizeDeferred) || s.Retry.Failures != 1 || left != 0 {
				t.Errorf("%d answers left to lose, status %+v", left, s)
			}
		})
	}
}

// TestADecreaseThatHurtsIsTakenBack: a pod that is not Ready, or restarts, right after it was lowered gets its limits back.
func TestADecreaseThatHurtsIsTakenBack(t *testing.T) {
	r := newRig(t)
	for name, hurt := range map[string]func(*corev1.Pod){
		"not ready": func(p *corev1.Pod) { unready(p, time.Now(), "ContainersNotReady") },
		"restarted": func(p *corev1.Pod) {
			c := &p.Status.ContainerStatuses[0]
			c.RestartCount++
			c.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{FinishedAt: metav1.Now(), ExitCode: 137}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := r.in(t)
			l := r.live(0, false)
			l.Reconciler.Config.Actuator.DecreaseCooldown = 0
			pod := r.pod(strings.ReplaceAll(name, " ", "-"), "100m", "500m")
			l.settlesAt(pod, 2000)
			r.publish(pod, "0.500", app(1000)) // in two steps
			l.until("lowered", func() (bool, any) { l.look(pod); return r.limit(pod) == 1000, r.limit(pod) })
			l.settles(pod, v1alpha1.PhaseApplied, reasons.Settled)

			r.hurt(pod, hurt)
			l.until("back at where it was before", func() (bool, any) { l.look(pod); return r.limit(pod) == 2000, r.limit(pod) })
			pa := l.settles(pod, v1alpha1.PhaseNotApplied, reasons.UnhealthyAfterDecrease)
			if s := pa.Status; s.Rollback.LastHarmfulDecreaseTime == nil || s.Constraints == nil || s.Constraints.NoDecrease != string(reasons.UnhealthyAfterDecrease) || s.Rollback.Limits != nil || s.Rollback.WindowStart != nil {
				t.Errorf("status %+v", pa.Status)
			}
			if !strings.Contains(r.log.String(), `"purpose":"rollback"`) {
				t.Error("no audit line of the decrease that was taken back")
			}
			if n := l.told(reasons.UnhealthyAfterDecrease); n != 1 {
				t.Errorf("%d events that say so, want one", n)
			}
		})
	}
}
