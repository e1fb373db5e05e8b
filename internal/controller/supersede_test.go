package controller

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/flowcontrol"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/restore"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
	"github.com/mbcas/mbcas/internal/testing/history"
	"github.com/mbcas/mbcas/internal/testing/schedule"
)

// lowering is a pod of 2000m whose decrease to 1340m its kubelet does not finish.
func (l *life) lowering(name string) *corev1.Pod {
	l.Helper()
	pod := l.raised(name)
	l.kubelet.Answer(pod, apiserver.Stall)
	l.publish(pod, "2.000", app(1000))
	l.gets(pod, 1340)
	for range 2 { // and no second one
		l.look(pod)
	}
	l.limitIs(pod, 1340, "while the decrease is in flight")
	return pod
}

// TestADecreaseIsFinishedFirst: with a kubelet before 1.34, and where a quota is short, an increase waits until the
// decrease has been carried out.
func TestADecreaseIsFinishedFirst(t *testing.T) {
	eachInMemory(t, map[string]func(*rig){
		"kubelet": func(r *rig) { r.kubelet.SetVersion(r, "v1.33.5") },
		"quota": func(r *rig) {
			q := r.quota("3500m")
			q.Status.Hard, q.Status.Used = q.Spec.Hard, corev1.ResourceList{corev1.ResourceLimitsCPU: kube.Quantity(500)}
			r.must(r.Client.Status().Update(r.Context(), q))
		},
	}, func(_ *testing.T, r *rig, prepare func(*rig)) {
		prepare(r)
		l := r.live()
		pod := l.lowering("web")
		l.publish(pod, "0.000", app(1900))
		l.look(pod)
		l.limitIs(pod, 1340, "before the decrease has been carried out")
		l.kubelet.Answer(pod, apiserver.Obey)
		l.gets(pod, 1900)
	})
}

// TestARefusedIncreaseLeavesTheDecrease: an increase that was to supersede a decrease, and was refused or not answered,
// backs off, and what is recorded is still the decrease. When that is done, the increase is tried again.
func TestARefusedIncreaseLeavesTheDecrease(t *testing.T) {
	eachInMemory(t, map[string]podresize.Outcome{
		"quota": podresize.QuotaExceeded, "policy": podresize.PolicyRefused, "unavailable": podresize.Unavailable,
	}, func(t *testing.T, r *rig, outcome podresize.Outcome) {
		l := r.live()
		pod := l.lowering("web")
		before, tries := l.stored(pod).Status, l.refuse(outcome)
		l.publish(pod, "0.000", app(3000))
		for range 3 {
			l.look(pod)
		}
		if s := l.stored(pod).Status; *tries != 1 || s.Phase != v1alpha1.PhasePending || s.Reason != string(reasons.ResizeInFlight) ||
			!s.LastAppliedTime.Equal(&before.LastAppliedTime) || s.Retry.Failures != 0 {
			t.Errorf("after %d tries: %+v, want one, and what was recorded of the decrease: %+v", *tries, s, before)
		}
		l.resizes.Resizer = l.counter
		l.kubelet.Answer(pod, apiserver.Obey)
		l.ahead += 2 * r.config.ServerBackoff
		l.gets(pod, 3000)
	})
}

// TestDecisionsComeBeforeStatuses: a decision that arrives while a node is dealt with is acted on before statuses
// of its pods are written.
func TestDecisionsComeBeforeStatuses(t *testing.T) {
	withController(t, func(t *testing.T, _ *rig, l *life) {
		web := l.raised("web")
		l.rig.pod("new", "100m", "500m") // its declared limits are recorded, and a status is written
		ledger := l.hold("/configmaps/" + restore.LedgerName(l.kubelet.Node))
		writes := func(suffix string) func() (bool, any) {
			n := l.requests("PATCH", suffix)
			return func() (bool, any) { now := l.requests("PATCH", suffix); return now > n, now }
		}
		recorded := writes("/configmaps/" + restore.LedgerName(l.kubelet.Node))
		done := make(chan error, 1)
		go func() {
			_, err := l.Reconcile(l.Context(), request(l.kubelet.Node))
			done <- err
		}()
		l.until("the ledger is written", recorded)
		l.publish(web, "0.000", app(3000))
		status := l.hold("/status")
		written := writes("/status")
		ledger()
		l.until("a status is written", written)
		if s, _, z := l.resizes.Standing(web.UID); s != flowcontrol.Waiting || z.Move.Changes[0].To != 3000 {
			t.Errorf("when a status is written, the newer decision is %v: %+v", s, z)
		}
		status()
		l.must(<-done)
	})
}

// TestTheBusyScheduleSupersedes: in the schedule whose every request meets every fault, a decrease is superseded.
func TestTheBusyScheduleSupersedes(t *testing.T) {
	lowered := map[string]bool{} // pods with a decrease in flight
	superseded := 0
	for _, e := range schedule.Run(system(), busy).Events {
		switch e.Kind {
		case history.Actuated:
			delete(lowered, e.Pod)
		case history.Resized:
			if lowered[e.Pod] && e.Limits["app"] > e.Before["app"] {
				superseded++
			}
			lowered[e.Pod] = e.Limits["app"] < e.Before["app"]
		}
	}
	if superseded != 1 {
		t.Errorf("%d decreases are superseded, want one", superseded)
	}
}
