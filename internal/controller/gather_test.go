package controller

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestLeaving: what has ended is not on its way out.
func TestLeaving(t *testing.T) {
	now := metav1.Now()
	condition := corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "TerminationByKubelet"}
	for name, c := range map[string]struct {
		change func(*corev1.Pod)
		want   bool
	}{
		"runs":       {func(*corev1.Pod) {}, false},
		"is evicted": {func(p *corev1.Pod) { p.Status.Conditions = append(p.Status.Conditions, condition) }, true},
		"is deleted": {func(p *corev1.Pod) { p.DeletionTimestamp = &now }, true},
		"was evicted": {func(p *corev1.Pod) {
			p.Status.Phase, p.Status.Conditions = corev1.PodFailed, []corev1.PodCondition{condition}
		}, false},
		"has ended, and goes": {func(p *corev1.Pod) { p.Status.Phase, p.DeletionTimestamp = corev1.PodSucceeded, &now }, false},
	} {
		p := running("web", 500, false)
		c.change(p)
		if got := leaving(*p); got != c.want {
			t.Errorf("a pod that %s: leaving %v, want %v", name, got, c.want)
		}
	}
}
