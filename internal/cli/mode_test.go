package cli

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/internal/kube"
)

// TestMode: the label is set, replaced and removed.
func TestMode(t *testing.T) {
	c := newCluster(t, shop()...)
	for _, step := range []struct{ to, label string }{{"recommend", "recommend"}, {"enforce", "enforce"}, {"default", ""}} {
		c.prints(t, "mode lab "+step.to)
		var ns corev1.Namespace
		if err := c.Client.Get(t.Context(), client.ObjectKey{Name: "lab"}, &ns); err != nil || ns.Labels[kube.ModeLabel] != step.label {
			t.Errorf("after mode %s: label %q, %v", step.to, ns.Labels[kube.ModeLabel], err)
		}
	}
}
