package controller

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
)

// TestNothingMovesAtTheNodesEnd: on a node that shuts down or is being drained nothing is resized.
func TestNothingMovesAtTheNodesEnd(t *testing.T) {
	r := newRig(t)
	l := r.live(0, false)
	pod, going := r.pod("web", "100m", "500m"), r.pod("going", "100m", "500m")
	node := func(change func(*corev1.Node)) {
		t.Helper()
		n := &corev1.Node{}
		r.must(r.Client.Get(r.Context(), types.NamespacedName{Name: r.kubelet.Node}, n))
		before := n.DeepCopy()
		change(n)
		status := n.DeepCopy()
		r.must(r.Client.Patch(r.Context(), n, client.MergeFrom(before)))
		r.must(r.Client.Status().Patch(r.Context(), status, client.MergeFrom(before)))
	}
	ready := func(status corev1.ConditionStatus, message string) func(*corev1.Node) {
		return func(n *corev1.Node) {
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, Reason: "Test", Message: message}}
		}
	}
	for _, c := range []struct {
		name        string
		reason      reasons.Reason
		enter, exit func()
	}{
		{
			"shutting down", reasons.NodeShuttingDown,
			func() { node(ready(corev1.ConditionFalse, "node is shutting down")) }, func() { node(ready(corev1.ConditionTrue, "")) },
		},
		{
			"about to be removed", reasons.NodeDraining,
			func() {
				node(func(n *corev1.Node) {
					n.Spec.Taints = []corev1.Taint{{Key: "ToBeDeletedByClusterAutoscaler", Effect: corev1.TaintEffectNoSchedule}}
				})
			}, func() { node(func(n *corev1.Node) { n.Spec.Taints = nil }) },
		},
		{
			"drained", reasons.NodeDraining,
			func() {
				node(func(n *corev1.Node) { n.Spec.Unschedulable = true })
				going.Status.Conditions = append(going.Status.Conditions, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI"})
				r.must(r.Client.Status().Update(r.Context(), going))
			}, func() { node(func(n *corev1.Node) { n.Spec.Unschedulable = false }) },
		},
	} {
		l.settlesAt(pod, 500)
		c.enter()
		r.publish(pod, "0.000", app(1000))
		l.settles(pod, v1alpha1.PhaseNotApplied, c.reason)
		if got := r.limit(pod); got != 500 {
			t.Errorf("%s: limit %v", c.name, got)
		}
		c.exit()
		l.settles(pod, v1alpha1.PhaseApplied, reasons.Settled)
	}
	node(func(n *corev1.Node) { n.Spec.Unschedulable = true }) // a cordon alone ends nothing
	going.Status.Phase = corev1.PodFailed                      // nor do the remains of what was evicted
	r.must(r.Client.Status().Update(r.Context(), going))
	r.publish(pod, "0.000", app(3000))
	l.settles(pod, v1alpha1.PhaseApplied, reasons.Settled)
}

// TestAllocatableIsFollowed: when the node gets smaller, limits above what it has left come down.
func TestAllocatableIsFollowed(t *testing.T) {
	r := newRig(t)
	r.start()
	pod := r.pod("web", "100m", "500m")
	r.at(pod, 4000)
	n := &corev1.Node{}
	r.must(r.Client.Get(r.Context(), types.NamespacedName{Name: r.kubelet.Node}, n))
	before := n.DeepCopy()
	n.Status.Allocatable[corev1.ResourceCPU] = resource.MustParse("3")
	r.must(r.Client.Status().Patch(r.Context(), n, client.MergeFrom(before)))
	r.until("lowered to what the node has left", func() (bool, any) { r.confirm(pod); return r.limit(pod) == 3000, r.limit(pod) })
}
