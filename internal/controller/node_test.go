package controller

import (
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/eligibility"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/lifecycle"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

// TestNode: the states of a node in which nothing on it is resized. That nothing is resized in these:
// TestKeepsTheRules (internal/lifecycle).
func TestNode(t *testing.T) {
	ready := func(status corev1.ConditionStatus, message string) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Status.Conditions[0].Status, n.Status.Conditions[0].Message = status, message }
	}
	under := func(kind corev1.NodeConditionType) func(*corev1.Node) {
		return func(n *corev1.Node) {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: kind, Status: corev1.ConditionTrue})
		}
	}
	taint := func(key string) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: key, Effect: corev1.TaintEffectNoSchedule}} }
	}
	for name, c := range map[string]struct {
		change func(*corev1.Node)
		want   lifecycle.Node
	}{
		"Ready":               {func(*corev1.Node) {}, lifecycle.Node{Ready: true}},
		"not Ready":           {ready(corev1.ConditionUnknown, ""), lifecycle.Node{}},
		"shutting down":       {ready(corev1.ConditionFalse, "node is shutting down"), lifecycle.Node{ShuttingDown: true}},
		"disk pressure":       {under(corev1.NodeDiskPressure), lifecycle.Node{Ready: true, Pressure: true}},
		"PID pressure":        {under(corev1.NodePIDPressure), lifecycle.Node{Ready: true, Pressure: true}},
		"memory pressure":     {under(corev1.NodeMemoryPressure), lifecycle.Node{Ready: true}},
		"about to be removed": {taint("ToBeDeletedByClusterAutoscaler"), lifecycle.Node{Ready: true, Draining: true}},
		"another taint":       {taint("example.com/gpu"), lifecycle.Node{Ready: true}},
		"cordoned":            {func(n *corev1.Node) { n.Spec.Unschedulable = true }, lifecycle.Node{Ready: true}},
	} {
		n := &corev1.Node{}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		c.change(n)
		if got := nodeOf(n); got.Node != c.want || got.cordoned != n.Spec.Unschedulable {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	drain := []corev1.Taint{{Key: "drain", Effect: corev1.TaintEffectNoExecute}}
	got := nodeOf(&corev1.Node{Spec: corev1.NodeSpec{Taints: drain}}).evicting
	tolerating := running("p", 500, false)
	tolerating.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	if !reflect.DeepEqual(got, drain) || !evicted(running("p", 500, false), got) || evicted(tolerating, got) {
		t.Errorf("evicting taints %v, of which a pod tolerates none or all", got)
	}
}

// TestNothingMovesAtTheNodesEnd: on a node that is being drained, or that the API server does not know,
// nothing is resized; a cordon alone ends nothing.
func TestNothingMovesAtTheNodesEnd(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		l := r.live()
		pod, going := l.raised("web"), l.newPod("going")
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: r.kubelet.Node}}
		r.merge(node, `{"spec":{"unschedulable":true}}`)
		l.settlesAt(pod, 3000)
		going.Status.Conditions = append(going.Status.Conditions, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI",
		})
		r.must(r.Client.Status().Update(r.Context(), going))
		r.publish(pod, "0.000", app(1000))
		l.settles(pod, v1alpha1.PhaseNotApplied, reasons.NodeDraining)
		r.limitIs(pod, 3000, "while the node is drained")
		going.Status.Phase = corev1.PodFailed // the remains of what was evicted
		r.must(r.Client.Status().Update(r.Context(), going))
		l.look(pod)
		r.limitIs(pod, 3000, "until the next pod is evicted")
		l.pass(drainLasts)
		l.settles(pod, v1alpha1.PhaseApplied, reasons.Settled)
		r.must(r.Client.Delete(r.Context(), node))
		r.publish(pod, "0.000", app(2000))
		l.settles(pod, v1alpha1.PhaseNotApplied, reasons.NodeUnknown)
	})
}

// TestLeaving: a pod that ends, or is deleted by its owner, is no sign of a drain.
func TestLeaving(t *testing.T) {
	now := metav1.Now()
	condition := corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "TerminationByKubelet"}
	for name, c := range map[string]struct {
		phase     corev1.PodPhase
		disrupted bool
		deleted   bool
		want      bool
	}{
		"runs":                {corev1.PodRunning, false, false, false},
		"is evicted":          {corev1.PodRunning, true, false, true},
		"is deleted":          {corev1.PodRunning, false, true, false},
		"was evicted":         {corev1.PodFailed, true, false, false},
		"has ended, and goes": {corev1.PodSucceeded, false, true, false},
	} {
		p := running("web", 500, false)
		if p.Status.Phase = c.phase; c.disrupted {
			p.Status.Conditions = append(p.Status.Conditions, condition)
		}
		if c.deleted {
			p.DeletionTimestamp = &now
		}
		if got := kube.BeingEvicted(p); got != c.want {
			t.Errorf("a pod that %s: leaving %v, want %v", name, got, c.want)
		}
	}
}

// TestMixedNodes has two nodes in one cluster, one of them with a kubelet that cannot resize: its
// pods get no allocation and no resize, and the reason says why; those of the other node follow. Once
// that kubelet is upgraded its pods follow as well.
func TestMixedNodes(t *testing.T) {
	r := newRig(t)
	old := *r
	old.kubelet = r.Kubelet(t, r.kubelet.Node+"-old")
	old.kubelet.SetVersion(t, "v1.31.14")
	old.hear()
	there, here := old.pod("there", "100m", "500m"), r.pod("here", "100m", "500m")
	r.live().settlesAt(here, 2000)
	r.limitIs(here, 2000, "on the new node")
	o := old.live()
	if pa := o.look(there); pa != nil || len(o.writes()) > 0 {
		t.Fatalf("writes %v for a node on which nothing can be resized: %+v", o.writes(), pa)
	}
	why, in := eligibility.Eligible(eligibility.Pod{Pod: there, Mode: kube.ModeEnforce, System: r.config.Namespace})
	if in || why != reasons.NodeCannotResize || !strings.Contains(why.Sentence(), "kubelet") {
		t.Errorf("out for %q (in: %v): %s; want %q", why, in, why.Sentence(), reasons.NodeCannotResize)
	}
	move := actuator.Move{UID: string(there.UID), Changes: []actuator.Change{{Container: "app", From: 500, To: 2000}}}
	if got := podresize.New(r.Client, "another-client").Apply(r.Context(), there, move); got.Outcome != podresize.NodeRefused {
		t.Errorf("the API server answers %v (%s), want %v: then it is no such kubelet", got.Outcome, got.Message, podresize.NodeRefused)
	}

	r.start()
	r.hear()
	old.hear()
	old.kubelet.SetVersion(t, r.Version(t))
	old.at(there, 2000)
	r.declaredIs(r.stored(there), app(500))
}

// TestKubeletIsRolledBack: a kubelet that can resize is replaced by one that cannot. A pod that was
// raised can't be lowered any more; it stays where it is, with the reason, and nothing is tried until
// its kubelet can resize again.
func TestKubeletIsRolledBack(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		l := r.live()
		pod := l.raised("web") // to 2000m
		r.kubelet.SetVersion(t, "v1.31.14")
		apiserver.WaitFor(t, r.Client, pod, "without resources in its status", func(p *corev1.Pod) bool {
			return p.Status.ContainerStatuses[0].Resources == nil
		})
		r.publish(pod, "0.500", app(1000))
		l.settles(pod, v1alpha1.PhaseNotApplied, reasons.NodeCannotResize)
		before := len(l.writes())
		l.pass(r.config.ActuationTimeout)
		l.look(pod)
		if w := l.writes()[before:]; len(w) != 0 {
			t.Errorf("writes %v where nothing can be done, want none", w)
		}
		r.limitIs(pod, 2000, "as before")
		r.kubelet.SetVersion(t, r.Version(t))
		l.settles(pod, v1alpha1.PhaseApplied, reasons.Settled)
		r.limitIs(pod, 1000, "once the kubelet can resize again")
		r.declaredIs(r.stored(pod), app(500))
	})
}
