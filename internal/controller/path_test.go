package controller

import (
	"testing"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/kube"
)

func TestAppliesADecision(t *testing.T) {
	r := newRig(t)
	r.start()
	pod := r.pod("web", "100m", "500m")
	pa := r.allocation(pod, "made", stands(v1alpha1.PhasePending, reasons.NoDecisionYet))
	if !kube.SameLimits(pa.Status.DeclaredLimits, []v1alpha1.ContainerLimit{app(500)}) {
		t.Fatalf("declared limits: %v, want app=500m", pa.Status.DeclaredLimits)
	}
	r.publish(pod, "0.000", app(2000))
	pa = r.allocation(pod, "applied", stands(v1alpha1.PhaseApplied, reasons.Settled))
	if got := r.limit(pod); got != 2000 || *pa.Status.AppliedCPULimit != 2000 || pa.Status.LastIncreaseTime == nil {
		t.Errorf("limit %v, status %+v", got, pa.Status)
	}
	r.publish(pod, "2.000", app(1000))
	r.allocation(pod, "lowered in steps", stands(v1alpha1.PhaseApplied, reasons.Settled))
	if got := r.limit(pod); got != 1000 {
		t.Errorf("limit %v, want 1000m", got)
	}
	if r.counter.resizes() != 3 {
		t.Errorf("%d resizes, want one up and two steps down: %v", r.counter.resizes(), r.counter.moves)
	}
}
