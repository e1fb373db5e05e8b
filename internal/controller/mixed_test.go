package controller

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/eligibility"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

// oldNode is the same rig on a second node, whose kubelet cannot resize.
func (r *rig) oldNode(version string) *rig {
	r.Helper()
	old := *r
	old.kubelet = r.Kubelet(r.T, r.kubelet.Node+"-old")
	old.kubelet.SetVersion(r.T, version)
	old.hear()
	return &old
}

// TestMixedNodes has two nodes in one cluster, one of them with a kubelet that cannot resize: its pods get no allocation and no
// resize, and the reason says why; those of the other node follow. Once that kubelet is upgraded its pods follow as well.
func TestMixedNodes(t *testing.T) {
	r := newRig(t)
	old := r.oldNode("v1.31.14")
	there, here := old.pod("there", "100m", "500m"), r.pod("here", "100m", "500m")

	l := r.live(0, false)
	l.settlesAt(here, 2000)
	if got := r.limit(here); got != 2000 {
		t.Errorf("limit %v on the new node, want 2000m", got)
	}
	o := old.live(0, false)
	for range 3 {
		if pa := o.look(there); pa != nil {
			t.Fatalf("the pod of the old node has an allocation: %+v", pa.Status)
		}
	}
	if n := o.writes.count(); n != 0 {
		t.Errorf("%d writes for a node on which nothing can be resized: %v", n, o.writes.seen)
	}
	why, in := eligibility.Eligible(eligibility.Pod{Pod: there, Mode: kube.ModeEnforce, System: r.config.Namespace})
	if in || why != reasons.NodeCannotResize || !strings.Contains(why.Sentence(), "kubelet") {
		t.Errorf("out for %q (in: %v): %s; want %q", why, in, why.Sentence(), reasons.NodeCannotResize)
	}
	move := actuator.Move{UID: string(there.UID), Changes: []actuator.Change{{Container: "app", From: 500, To: 2000}}}
	if got := podresize.New(r.Client, "somebody").Apply(r.Context(), there, move); got.Outcome != podresize.NodeRefused {
		t.Errorf("the API server answers %v (%s), want %v: then it is no such kubelet", got.Outcome, got.Message, podresize.NodeRefused)
	}

	r.start()
	r.hear()
	old.hear()
	old.kubelet.SetVersion(t, r.Version(t))
	r.allocation(there, "made once the kubelet can resize", func(pa *v1alpha1.PodAllocation) bool { return len(pa.Status.DeclaredLimits) > 0 })
	r.publish(there, "0.000", app(2000))
	r.allocation(there, "applied", stands(v1alpha1.PhaseApplied, reasons.Settled))
	if got := r.limit(there); got != 2000 {
		t.Errorf("limit %v after the upgrade, want 2000m", got)
	}
	declaredIs(t, r.stored(there), app(500))
}

// TestKubeletIsRolledBack: a kubelet that can resize is replaced by one that cannot. A pod that was raised can't be lowered any
// more; it stays where it is, with the reason, and nothing is tried until its kubelet can resize again.
func TestKubeletIsRolledBack(t *testing.T) {
	r := newRig(t)
	l := r.live(0, false)
	pod := l.raised("web") // to 2000m
	r.kubelet.SetVersion(t, "v1.31.14")
	apiserver.WaitFor(t, r.Client, pod, "without resources in its status", func(p *corev1.Pod) bool {
		return p.Status.ContainerStatuses[0].Resources == nil
	})
	r.publish(pod, "0.500", app(1000))
	l.settles(pod, v1alpha1.PhaseNotApplied, reasons.NodeCannotResize)
	writes := l.writes.count()
	for range 3 {
		l.ahead += r.config.ActuationTimeout
		r.hearAt(time.Now().Add(l.ahead))
		l.look(pod)
	}
	if n := l.writes.count() - writes; n != 0 || r.limit(pod) != 2000 {
		t.Errorf("limit %v and %d writes (%v) where nothing can be done, want 2000m and none", r.limit(pod), n, l.writes.seen[writes:])
	}
	r.kubelet.SetVersion(t, r.Version(t))
	l.settles(pod, v1alpha1.PhaseApplied, reasons.Settled)
	if got := r.limit(pod); got != 1000 {
		t.Errorf("limit %v once the kubelet can resize again, want 1000m", got)
	}
	declaredIs(t, r.stored(pod), app(500))
}
