package controller

import (
	"testing"
	"time"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

// TestARefusedRestoreBacksOff: in mode restore, a kubelet that refuses is asked again only after the back-off.
func TestARefusedRestoreBacksOff(t *testing.T) {
	r := newRig(t)
	l := r.live(0, false)
	pod := l.raised("web")
	r.kubelet.Answer(pod, apiserver.Refuse)
	r.mode(r.namespace, kube.ModeRestore)
	pa := l.settles(pod, v1alpha1.PhaseFailed, reasons.ResizeInfeasible)
	r.until("taken back", func() (bool, any) { l.look(pod); return r.limit(pod) == 2000, r.limit(pod) })
	if pa.Status.Retry.Failures != 1 || pa.Status.Retry.Time == nil {
		t.Errorf("status %+v, want one failure and a time to try again", pa.Status)
	}
	declaredIs(t, pa, app(500))
	r.kubelet.Answer(pod, apiserver.Obey)
	before := l.counter.resizes()
	for range 3 {
		l.ahead += r.config.Backoff / 4
		r.hearAt(time.Now().Add(l.ahead))
		l.look(pod)
	}
	if got := l.counter.resizes(); got != before || r.limit(pod) != 2000 {
		t.Errorf("%d resizes within the back-off, limit %v", got-before, r.limit(pod))
	}
	l.ahead += r.config.Backoff
	r.hearAt(time.Now().Add(l.ahead))
	pa = l.settles(pod, v1alpha1.PhaseRestored, reasons.Restoring)
	if r.limit(pod) != 500 || pa.Status.Retry.Failures != 0 {
		t.Errorf("limit %v after the back-off, status %+v", r.limit(pod), pa.Status)
	}
}
