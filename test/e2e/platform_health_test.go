package e2e

import (
	"slices"
	"strings"
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

// contendedDeclared is the declared limit of each of them.
const contendedDeclared = cpu.Milli(300)

// openContended starts pods that, when they spin, want more than the node has: one that is like any other, one that a
// PodDisruptionBudget guards, and one whose readiness will fail.
func (p *platform) openContended(t *testing.T) {
	r := resources{"150m", contendedDeclared.String(), "32Mi"}
	p.deploy(t, contended, "other", r)
	p.deploy(t, contended, "guarded", r)
	p.deploy(t, contended, "frail", r, func(t *corev1.PodTemplateSpec) {
		probe := t.Spec.Containers[0].ReadinessProbe
		probe.FailureThreshold, probe.TimeoutSeconds = 2, 10 // a slow answer is no failure
	})
	one := intstr.FromInt32(1)
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: contended, Name: "guarded"}}
	budget.Spec.MinAvailable, budget.Spec.Selector = &one, &metav1.LabelSelector{MatchLabels: map[string]string{"app": "guarded"}}
	if err := p.Create(t.Context(), budget); err != nil {
		t.Fatal(err)
	}
}

func (p *platform) isLowered(q cpu.Milli) bool { return q <= p.ceiling*6/10 }

// contend lets these pods want more than the node has, from their ceilings on.
func (p *platform) contend(t *testing.T) {
	t.Helper()
	if p.contended == nil {
		p.contended = p.pods(t, contended)
		for _, pod := range p.contended {
			p.reaches(t, 90*time.Second, pod, "has the ceiling", func(q cpu.Milli) bool { return q == p.ceiling })
		}
	}
	for _, pod := range p.contended {
		spin(t, pod, 1)
	}
}

// noDisruptionNoDecrease: while CPU is scarce, a pod whose PodDisruptionBudget allows no disruption keeps at least its
// declared limit, while other pods are lowered.
func (p *platform) noDisruptionNoDecrease(t *testing.T) {
	p.contend(t)
	p.reaches(t, 3*time.Minute, p.contended["other"], "is lowered", p.isLowered)
	p.waitAllocation(t, 30*time.Second, p.contended["guarded"], "has the constraint of its budget", func(pa *v1alpha1.PodAllocation) bool { return noDecreaseFor(pa, reasons.NoDisruptionAllowed) })
	p.rounds(t, 15)
	if low := p.loweredBelow(t, contended, contendedDeclared); slices.ContainsFunc(low, func(s string) bool { return strings.HasPrefix(s, "guarded-") }) {
		t.Errorf("the guarded pod was lowered below its declared limit of %v: %v", contendedDeclared, low)
	}
}

// harmfulDecreaseIsRolledBack: a pod that is not Ready right after it was lowered gets back what it had before, and keeps it.
func (p *platform) harmfulDecreaseIsRolledBack(t *testing.T) {
	p.contend(t)
	frail := p.contended["frail"]
	p.reaches(t, 3*time.Minute, frail, "is lowered", p.isLowered)
	setLoad(t, frail, map[string]any{"threads": 1, "unhealthy": true})
	p.waitAllocation(t, time.Minute, frail, "records the harmful decrease", func(pa *v1alpha1.PodAllocation) bool { return pa.Status.Rollback.LastHarmfulDecreaseTime != nil })
	p.reaches(t, 30*time.Second, frail, "has its limit from before the decrease", func(q cpu.Milli) bool { return q == p.ceiling })
	p.event(t, frail, string(reasons.UnhealthyAfterDecrease))

	spin(t, frail, 1) // healthy again
	p.pods(t, contended)
	p.rounds(t, 15)
	p.waitAllocation(t, 30*time.Second, frail, "has no further decrease", func(pa *v1alpha1.PodAllocation) bool { return noDecreaseFor(pa, reasons.UnhealthyAfterDecrease) })
	if q, other := p.quota(t, frail), p.quota(t, p.contended["other"]); q != p.ceiling || !p.isLowered(other) {
		t.Errorf("it has %v, want the ceiling %v for a day; the other pod has %v, want less", q, p.ceiling, other)
	}
}

// reasonIsReported: the reason is there by the time that the agent has told again what it decides. Once its budget says that it may be
// lowered, it is.
func (p *platform) reasonIsReported(t *testing.T) {
	p.contend(t)
	p.waitAllocation(t, 2*time.Minute, p.contended["guarded"], "reports why it is not lowered", func(pa *v1alpha1.PodAllocation) bool {
		return pa.Status.Phase == v1alpha1.PhaseApplied && pa.Status.Reason == string(reasons.NoDisruptionAllowed)
	})
	kubectl(t, "-n", contended, "annotate", "poddisruptionbudget", "guarded", kube.AllowDecreaseKey+"=true")
	p.reaches(t, time.Minute, p.contended["guarded"], "is lowered", p.isLowered)
}
