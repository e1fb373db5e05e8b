package controller

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

// TestRepairsPodQuotas: where the Lease says that the own cgroup of a pod has another quota, a limit of the pod changes by a
// quantum and returns. What the Lease says of another generation of the pod counts for nothing.
func TestRepairsPodQuotas(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		l := r.live()
		pod := l.raised("web")
		before := r.read(pod).Generation
		for _, c := range []struct{ said, resizes int64 }{{before - 1, 0}, {before, 2}, {before, 0}} {
			generation := r.read(pod).Generation
			var m allocation.NodeMarket
			m.Quotas.Add(pod.UID, allocation.Quota{Generation: c.said, CPU: 500})
			r.renews(l.Reconciler.Now(), m)
			l.settles(pod, v1alpha1.PhaseApplied, reasons.Settled)
			r.limitIs(pod, 2000, "when its quota is right")
			if n := r.read(pod).Generation - generation; n != c.resizes {
				t.Errorf("said of generation %d at %d: %d resizes, want %d", c.said, generation, n, c.resizes)
			}
		}
		if n := strings.Count(r.audit.String(), `"purpose":"repair","reason":"PodQuotaDiffers"`); n != 2 {
			t.Errorf("%d audit lines, want 2: %s", n, r.audit.String())
		}
	})
}

// TestStepsBack: a container that cannot start after a raise gets the limit from before it, and is raised again once it
// runs.
func TestStepsBack(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		l := r.live()
		pod := l.raised("web")
		l.settlesAt(pod, 3000)
		r.kubelet.Answer(pod, apiserver.Ignore)
		r.harm(pod, func(s *corev1.PodStatus) {
			c := &s.ContainerStatuses[0]
			c.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "RunContainerError"}}
			c.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{FinishedAt: metav1.Now(), ExitCode: 128, Reason: "StartError"}
			c.Started = new(false)
		})
		l.gets(pod, 2000)
		r.kubelet.Answer(pod, apiserver.Obey)
		l.pass(time.Second)
		l.settles(pod, v1alpha1.PhaseNotApplied, reasons.ContainerNotRunning)
		r.limitIs(pod, 2000, "while it waits")
		if !strings.Contains(r.audit.String(), `"purpose":"stepback","reason":"StartFailed"`) {
			t.Errorf("no audit line: %s", r.audit.String())
		}
		r.harm(pod, func(s *corev1.PodStatus) {
			c := &s.ContainerStatuses[0]
			c.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}
			c.Started, c.RestartCount = new(true), 1
		})
		l.pass(time.Second)
		l.gets(pod, 3000)
	})
}
