package controller

import (
	"testing"
	"time"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
)

// TestASecondFightEndsIt: somebody who changes limits again after we moved them again within an hour is left alone with the pod for a day.
func TestASecondFightEndsIt(t *testing.T) {
	r := newRig(t)
	l := r.live(0, false)
	pod := r.pod("web", "100m", "500m")
	l.settlesAt(pod, 2000)
	r.resizeAs("somebody", pod, "700m")
	l.settles(pod, v1alpha1.PhaseNotApplied, reasons.ExternalChange)
	r.resizeAs("somebody", pod, "800m") // the same hand again: no fight, as we have not moved since
	l.settles(pod, v1alpha1.PhaseNotApplied, reasons.ExternalChange)

	l.ahead = r.config.ExternalChangeHoldOff + time.Minute
	r.hearAt(time.Now().Add(l.ahead))
	r.publish(pod, "0.000", app(2000))
	l.settles(pod, v1alpha1.PhaseApplied, reasons.Settled)
	r.resizeAs("somebody", pod, "700m")
	pa := l.settles(pod, v1alpha1.PhaseNotApplied, reasons.ConflictingWriter)
	if wait := pa.Status.Retry.Time.Sub(time.Now().Add(l.ahead)); wait < 23*time.Hour {
		t.Errorf("left alone for %v, want a day", wait)
	}
	r.publish(pod, "0.000", app(2000))
	l.look(pod)
	if got := r.limit(pod); got != 700 {
		t.Errorf("limit %v, want 700m as somebody else wants it", got)
	}
}
