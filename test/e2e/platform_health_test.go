package e2e

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kube"
)

// openScarce starts pods that, when they spin, want more than the node has: one that is like any other, one that a
// PodDisruptionBudget guards, and one whose readiness will fail.
func (p *platform) openScarce(t *testing.T) {
	r := resources{"150m", "300m", "32Mi"}
	p.deploy(t, scarce, "other", r)
	p.deploy(t, scarce, "guarded", r)
	p.deploy(t, scarce, "frail", r, func(t *corev1.PodTemplateSpec) {
		probe := t.Spec.Containers[0].ReadinessProbe
		probe.FailureThreshold, probe.TimeoutSeconds = 2, 10 // slow is not sick
	})
	one := intstr.FromInt32(1)
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: scarce, Name: "guarded"}}
	budget.Spec.MinAvailable, budget.Spec.Selector = &one, &metav1.LabelSelector{MatchLabels: map[string]string{"app": "guarded"}}
	if err := p.Create(t.Context(), budget); err != nil {
		t.Fatal(err)
	}
}

func (p *platform) isLow(q cpu.Milli) bool { return q <= p.ceiling*6/10 }

// contend lets these pods want more than the node has, from their ceilings on.
func (p *platform) contend(t *testing.T) {
	t.Helper()
	if p.scarce == nil {
		p.scarce = p.pods(t, scarce)
		for _, pod := range p.scarce {
			p.reaches(t, 90*time.Second, pod, "has the ceiling", func(q cpu.Milli) bool { return q == p.ceiling })
		}
	}
	for _, pod := range p.scarce {
		spin(t, pod, 1)
	}
}

// noDisruptionNoDecrease: while CPU is scarce, a pod whose budget allows no disruption stays where it is, though its neighbours are lowered.
func (p *platform) noDisruptionNoDecrease(t *testing.T) {
	p.contend(t)
	p.reaches(t, 3*time.Minute, p.scarce["other"], "is lowered", p.isLow)
	p.isThere(t, 30*time.Second, p.scarce["guarded"], "told of its budget", func(pa *v1alpha1.PodAllocation) bool { return keptFor(pa, reasons.NoDisruptionAllowed) })
	if q := p.quota(t, p.scarce["guarded"]); q != p.ceiling {
		t.Errorf("the guarded pod has %v, want the ceiling %v as before", q, p.ceiling)
	}
}

// decreaseThatHurts: a pod that is not Ready right after it was lowered gets back what it had before, and keeps it.
func (p *platform) decreaseThatHurts(t *testing.T) {
	p.contend(t)
	frail := p.scarce["frail"]
	p.reaches(t, 3*time.Minute, frail, "is lowered", p.isLow)
	plan(t, frail, map[string]any{"threads": 1, "sick": true})
	p.isThere(t, time.Minute, frail, "hurt", func(pa *v1alpha1.PodAllocation) bool { return pa.Status.Rollback.LastHarmfulDecreaseTime != nil })
	p.reaches(t, 30*time.Second, frail, "has its limit from before the decrease", func(q cpu.Milli) bool { return q == p.ceiling })
	p.event(t, frail, string(reasons.UnhealthyAfterDecrease))

	spin(t, frail, 1) // well again
	p.pods(t, scarce)
	p.rounds(t, 15)
	p.isThere(t, 30*time.Second, frail, "kept from another decrease", func(pa *v1alpha1.PodAllocation) bool { return keptFor(pa, reasons.UnhealthyAfterDecrease) })
	if q, other := p.quota(t, frail), p.quota(t, p.scarce["other"]); q != p.ceiling || !p.isLow(other) {
		t.Errorf("it has %v, want the ceiling %v for a day; beside it %v, want less", q, p.ceiling, other)
	}
}

// whoIsSparedSaysWhy: the reason is there by the time that the agent has told again what it decides. Once its budget says that it may be
// lowered, it is.
func (p *platform) whoIsSparedSaysWhy(t *testing.T) {
	p.contend(t)
	p.isThere(t, 2*time.Minute, p.scarce["guarded"], "says why it is not lowered", func(pa *v1alpha1.PodAllocation) bool {
		return pa.Status.Phase == v1alpha1.PhaseApplied && pa.Status.Reason == string(reasons.NoDisruptionAllowed)
	})
	kubectl(t, "-n", scarce, "annotate", "poddisruptionbudget", "guarded", kube.AllowDecreaseKey+"=true")
	p.reaches(t, time.Minute, p.scarce["guarded"], "is lowered", p.isLow)
}
