package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/restore"
)

// nodeField is the field by which pods and allocations are listed.
const nodeField = "spec.nodeName"

// scene is a view with what acting on it needs beyond the decision.
type scene struct {
	View
	ledger *corev1.ConfigMap // nil: none
	exists map[types.UID]bool
	failed bool // some pods are left out, because of API errors
	around map[string]*neighbourhood
	again  time.Time // when to look again whatever the tasks want; zero: no need
	// deadline is until when this look may begin resizes.
	deadline time.Time
}

// gather reads what is known of a node: caches, our own last writes, and only in doubt the API server.
func (r *Reconciler) gather(ctx context.Context, name string) (scene, error) {
	now := r.Now()
	s := scene{View: View{Now: now}, exists: map[types.UID]bool{}, around: map[string]*neighbourhood{}}
	var err error
	if s.Blocked, err = r.blocked(ctx); err != nil {
		return s, err
	}
	if s.Node, err = r.node(ctx, name, now); err != nil {
		return s, err
	}
	var pods corev1.PodList
	if err := r.Client.List(ctx, &pods, client.MatchingFields{nodeField: name}, client.UnsafeDisableDeepCopy); err != nil {
		return s, fmt.Errorf("list the pods of node %s: %w", name, err)
	}
	s.Node.Draining = s.Node.Draining || s.Node.Cordoned && leaving(pods.Items)
	allocations, err := r.allocations(ctx, name)
	if err != nil {
		return s, err
	}
	if s.ledger, err = r.ledger(ctx, name); err != nil {
		return s, err
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		s.exists[pod.UID] = true
		key := allocationOf(pod)
		p, ok, err := r.pod(ctx, &s, pod, allocations[key])
		if r.failed(ctx, pod, err) { // the others do not wait for this one
			s.failed = true
		} else if ok {
			s.Pods = append(s.Pods, p)
		}
		delete(allocations, key)
	}
	s.Strays = slices.SortedFunc(maps.Values(allocations), func(a, b *v1alpha1.PodAllocation) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	r.memory.keep(name, s.exists)
	if s.Node.Allocatable == 0 && len(s.exists) == 0 && len(s.Strays) == 0 {
		r.silence.forget(name) // no such node any more
	}
	return s, nil
}

// blocked says why nothing may be resized anywhere.
func (r *Reconciler) blocked(ctx context.Context) (reasons.Reason, error) {
	if reason, _ := r.Gate.Closed(); reason != "" {
		return reason, nil
	}
	state, err := restore.ReadState(ctx, r.Client, r.Config.Namespace)
	if err != nil {
		return "", err
	}
	if state.Paused() {
		return reasons.Paused, nil
	}
	return "", nil
}

// node is how the node stands.
func (r *Reconciler) node(ctx context.Context, name string, now time.Time) (Node, error) {
	var n corev1.Node
	err := r.Client.Get(ctx, types.NamespacedName{Name: name}, &n)
	if client.IgnoreNotFound(err) != nil {
		return Node{}, fmt.Errorf("read node %s: %w", name, err)
	}
	node := nodeOf(&n)
	node.Name, node.Unknown = name, err != nil
	var lease coordinationv1.Lease
	switch err := r.Client.Get(ctx, types.NamespacedName{Namespace: r.Config.Namespace, Name: kube.AgentLease(name)}, &lease); {
	case apierrors.IsNotFound(err):
		r.silence.note(name, nil, now, r.Config.FreezeAfter)
	case err != nil:
		return Node{}, fmt.Errorf("read the Lease of the agent of node %s: %w", name, err)
	default:
		r.silence.note(name, &lease, now, r.Config.FreezeAfter)
	}
	node.Silence = r.silence.since(name, now)
	return node, nil
}

// nodeOf is the part of a node that decisions depend on.
func nodeOf(n *corev1.Node) Node {
	node := Node{Name: n.Name, Allocatable: allocation.Node(n).Allocatable}
	for _, c := range n.Status.Conditions {
		switch c.Type {
		case corev1.NodeReady:
			node.Ready, node.Since = c.Status == corev1.ConditionTrue, c.LastTransitionTime.Time
			// What the kubelet says then: pkg/kubelet/nodeshutdown of Kubernetes.
			node.ShuttingDown = !node.Ready && strings.Contains(c.Message, "node is shutting down")
		case corev1.NodeDiskPressure, corev1.NodePIDPressure:
			node.Pressure = node.Pressure || c.Status == corev1.ConditionTrue
		}
	}
	node.Cordoned = n.Spec.Unschedulable
	for _, t := range n.Spec.Taints {
		node.Draining = node.Draining || slices.Contains(drainTaints, t.Key)
		if t.Effect == corev1.TaintEffectNoExecute {
			node.Evicting = append(node.Evicting, t)
		}
	}
	return node
}

// drainTaints are set on nodes that are about to be emptied: by the cluster autoscaler, by Karpenter, and by whoever
// removes a node that was shut down.
var drainTaints = []string{"ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted", corev1.TaintNodeOutOfService}

// leaving says whether pods are on their way out. One that has ended is no sign of that: what a kubelet evicted stays
// behind with its condition until somebody deletes it.
func leaving(pods []corev1.Pod) bool {
	return slices.ContainsFunc(pods, func(p corev1.Pod) bool {
		if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			return false
		}
		return p.DeletionTimestamp != nil || slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue
		})
	})
}

// allocationOf is where a pod's allocation is.
func allocationOf(pod *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: string(pod.UID)}
}

// allocations are the node's PodAllocations.
func (r *Reconciler) allocations(ctx context.Context, name string) (map[types.NamespacedName]*v1alpha1.PodAllocation, error) {
	all := map[types.NamespacedName]*v1alpha1.PodAllocation{}
	if reason, _ := r.Gate.Closed(); reason == reasons.CRDNotInstalled {
		return all, nil
	}
	var list v1alpha1.PodAllocationList
	if err := r.Client.List(ctx, &list, client.MatchingFields{nodeField: name}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the PodAllocations of node %s: %w", name, err)
	}
	for i := range list.Items {
		all[client.ObjectKeyFromObject(&list.Items[i])] = &list.Items[i]
	}
	return all, nil
}

func (r *Reconciler) ledger(ctx context.Context, node string) (*corev1.ConfigMap, error) {
	cm := &corev1.ConfigMap{}
	if err := r.Client.Get(ctx, types.NamespacedName{Namespace: r.Config.Namespace, Name: restore.LedgerName(node)}, cm); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read ConfigMap %s/%s, the record of declared limits: %w", r.Config.Namespace, restore.LedgerName(node), err)
	}
	return cm, nil
}

// pod gathers what is known of one pod; false for a pod of which nothing can be said yet.
func (r *Reconciler) pod(ctx context.Context, s *scene, cached *corev1.Pod, pa *v1alpha1.PodAllocation) (Pod, bool, error) {
	rec := r.memory.of(s.Node.Name, cached.UID)
	if pa != nil && pa.UID != rec.cached {
		r.memory.change(s.Node.Name, cached.UID, func(rec *record) { rec.cached = pa.UID })
	}
	r.memory.caughtUp(s.Node.Name, rec, cached, pa, s.Now)
	p := Pod{Pod: rec.freshPod(cached, s.Now), PA: rec.freshPA(pa, s.Now), RestoreRefused: rec.restoreRefused, RetryAt: rec.retryAt}
	if p.PA != nil && p.PA.Spec.Decision != nil {
		p.DecisionAge = s.Now.Sub(r.heard(s.Node.Name, cached.UID, rec, p.PA.Spec.Decision.ObservedAt.Time, s.Now))
	}
	n, err := r.neighbours(ctx, s, cached.Namespace)
	if err != nil || !n.exists {
		return p, false, err
	}
	p.Mode = n.mode
	p.VPA, _ = n.VPA(p.Pod)
	if _, eligible := p.eligible(r.Config); !eligible && p.PA == nil && len(kube.Ours(p.Pod)) == 0 {
		return p, true, nil
	}
	if p.Unsure = n.unsure; p.Unsure == "" {
		p.Unsure = n.Unsure(p.Pod)
		s.failed = s.failed || p.Unsure != "" // looked at again when the target is asked again
	}
	if err := r.know(ctx, s, &p, rec); err != nil {
		return p, false, err
	}
	if r.doubt(p) {
		if err := r.reread(ctx, s.Node.Name, &p); apierrors.IsNotFound(err) {
			return p, false, nil
		} else if err != nil {
			return p, false, err
		}
	}
	p.Terms, p.Cautious = n.Terms(p.Pod, p.Declared)
	n.shares[p.Pod.UID].bend(&p.Terms)
	p.Terms.CoordinationPercent = r.conductor.factor(p.Pod, p.PA)
	if n.unheard && p.PA != nil && p.PA.Status.Constraints != nil { // after a start, what was asked for stands
		p.Terms.DemandPercent, p.Terms.DemandBy = p.PA.Status.Constraints.DemandPercent, p.PA.Status.Constraints.DemandBy
	}
	p.Barred, p.Bar = n.Bars(p.Pod)
	p.Laws = n.laws(p.Pod)
	p.Mended = r.mended(s.Node.Name, p, rec)
	want := byName(kube.Limits(p.Pod))
	p.Progress, p.Said = podresize.Check(p.Pod, want, p.Pod.Generation)
	return p, true, nil
}

// heard is when we came to know a decision, by the rule for Leases: a new one counts from when it is first seen, on our
// own clock, and one that we find at our start has to look fresh.
func (r *Reconciler) heard(node string, uid types.UID, rec record, observed, now time.Time) time.Time {
	if rec.observed.Equal(observed) {
		return rec.heard
	}
	at := now
	if rec.observed.IsZero() {
		at = believed(observed, now, r.Config.FreezeAfter)
	}
	r.memory.change(node, uid, func(rec *record) { rec.observed, rec.heard = observed, at })
	return at
}

// know finds the declared limits, and keeps what was found.
func (r *Reconciler) know(ctx context.Context, s *scene, p *Pod, rec record) error {
	if !rec.unknownAt.IsZero() && s.Now.Sub(rec.unknownAt) < time.Minute {
		return nil
	}
	limits, known, err := r.declared(ctx, p.Pod, rec, p.PA, s.ledger)
	if err != nil {
		return err
	}
	if known {
		p.Declared = limits
	}
	e, _ := restore.ReadEntry(s.ledger, p.Pod.UID)
	p.Ledgered = kube.SameLimits(e.Limits, limits) ||
		kube.SameLimits(rec.ledgered, limits) && s.Now.Sub(rec.ledgeredAt) < lag
	r.memory.change(s.Node.Name, p.Pod.UID, func(rec *record) {
		rec.declared, rec.unknownAt = p.Declared, time.Time{}
		if !known {
			rec.unknownAt = s.Now
		}
	})
	return nil
}

// doubt says whether the pod looks as if it was changed by somebody else, or by us before a restart. Two caches never
// show the same moment, so such a pod is read again before anything is concluded.
func (r *Reconciler) doubt(p Pod) bool {
	t := Task{Pod: p}
	if p.PA != nil {
		t.Status = p.PA.Status
	}
	return p.Declared != nil && !gone(p.Pod) && !kube.SameLimits(t.lastApplied(), current(p))
}

// reread reads a pod from the API server itself.
func (r *Reconciler) reread(ctx context.Context, node string, p *Pod) error {
	fresh := &corev1.Pod{}
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(p.Pod), fresh); err != nil {
		return fmt.Errorf("read pod %s/%s: %w", p.Pod.Namespace, p.Pod.Name, err)
	}
	if fresh.UID != p.Pod.UID {
		return apierrors.NewNotFound(corev1.Resource("pods"), p.Pod.Name)
	}
	p.Pod = fresh
	r.remember(node, fresh)
	return nil
}

// remember keeps what decisions need of a pod as the API server returned it, until the cache shows it too.
func (r *Reconciler) remember(node string, pod *corev1.Pod) {
	kept := trimmed(pod)
	r.memory.change(node, pod.UID, func(rec *record) { rec.pod, rec.podAt = kept, r.Now() })
}
