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

// contendedDeclared is the declared limit of each of the contended pods. It exceeds the share of each
// when all three spin, so that only a constraint keeps a pod from falling below it.
const contendedDeclared = cpu.Milli(600)

// openContended starts pods that, when they spin, want more than the node has: two that are alike
// except that a PodDisruptionBudget guards one of them, and one whose readiness will fail.
func (p *platform) openContended(t *testing.T) {
	r := resources{"150m", contendedDeclared.String(), "32Mi"}
	p.deploy(t, contended, "other", r)
	p.deploy(t, contended, "guarded", r)
	p.deploy(t, contended, "frail", r, func(t *corev1.PodTemplateSpec) {
		probe := t.Spec.Containers[0].ReadinessProbe
		probe.FailureThreshold, probe.TimeoutSeconds = 2, 10 // a slow answer is no failure
	})
	p.create(t, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: contended, Name: "guarded"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: new(intstr.FromInt32(1)),
			Selector:     &metav1.LabelSelector{MatchLabels: map[string]string{"app": "guarded"}},
		},
	})
}

func belowDeclared(q cpu.Milli) bool { return q < contendedDeclared }

// contend lets these pods want more than the node has, each from most of it on.
func (p *platform) contend(t *testing.T) {
	t.Helper()
	if p.contended == nil {
		p.contended = p.pods(t, contended)
		for _, pod := range p.contended {
			p.raise(t, 90*time.Second, pod)
		}
	}
	for _, pod := range p.contended {
		p.spin(t, pod, 1)
	}
}

// calm ends what contend began.
func (p *platform) calm(t *testing.T) {
	t.Helper()
	for _, pod := range p.contended {
		p.spin(t, pod, 0)
	}
}

// noDisruptionNoDecrease: while CPU is scarce, a pod whose PodDisruptionBudget allows no disruption keeps
// at least its declared limit, while the same pod without a budget is lowered below it.
func (p *platform) noDisruptionNoDecrease(t *testing.T) {
	p.contend(t)
	guarded := p.contended["guarded"]
	p.reaches(t, 3*time.Minute, p.contended["other"], "is below its declared limit", belowDeclared)
	p.hasNoDecrease(t, guarded, reasons.NoDisruptionAllowed)
	p.reaches(t, 3*time.Minute, guarded, "is lowered as far as it may be", func(q cpu.Milli) bool {
		return q < contendedDeclared*12/10 // within the controller's dead band
	})
	p.rounds(t, 15)
	p.onlyIsLowered(t, contended, contendedDeclared, "other", "guarded")
}

// harmfulDecreaseIsRolledBack: a pod that is not Ready right after it was lowered gets back its declared
// limit, and keeps at least that while other pods are lowered below theirs.
func (p *platform) harmfulDecreaseIsRolledBack(t *testing.T) {
	p.contend(t)
	frail := p.contended["frail"]
	p.reaches(t, 3*time.Minute, frail, "is below its declared limit", belowDeclared)
	p.setLoad(t, frail, 8080, map[string]any{"threads": 1, "unhealthy": true})
	p.waitAllocation(t, time.Minute, frail, "records the harmful decrease", func(pa *v1alpha1.PodAllocation) bool {
		return !pa.Status.Rollback.LastHarmfulDecreaseTime.IsZero()
	})
	p.reaches(t, 30*time.Second, frail, "has its declared limit", func(q cpu.Milli) bool { return !belowDeclared(q) })
	p.event(t, frail, string(reasons.UnhealthyAfterDecrease))

	p.spin(t, frail, 1) // healthy again
	p.pods(t, contended)
	p.rounds(t, 15)
	p.hasNoDecrease(t, frail, reasons.UnhealthyAfterDecrease)
	if q, other := p.quota(t, frail), p.quota(t, p.contended["other"]); belowDeclared(q) || !belowDeclared(other) {
		t.Errorf("it has %v, want at least %v; the other pod has %v, want less than that", q, contendedDeclared, other)
	}
}

// reasonIsReported: the reason is there by the time that the agent has told again what it decides. Once
// the budget says that the pod may be lowered, it is.
func (p *platform) reasonIsReported(t *testing.T) {
	p.contend(t)
	guarded := p.contended["guarded"]
	p.waitAllocation(t, 2*time.Minute, guarded, "reports why it is not lowered", func(pa *v1alpha1.PodAllocation) bool {
		return pa.Status.Phase == v1alpha1.PhaseApplied && pa.Status.Reason == string(reasons.NoDisruptionAllowed)
	})
	p.onlyIsLowered(t, contended, contendedDeclared, "other", "guarded")
	kubectl(t, "-n", contended, "annotate", "poddisruptionbudget", "guarded", kube.AllowDecreaseKey+"=true")
	p.reaches(t, time.Minute, guarded, "is below its declared limit", belowDeclared)
}
