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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/kube"
)

// nodeField is the field by which pods and allocations are listed.
const nodeField = "spec.nodeName"

// scene is a view with what acting on it needs beyond the decision.
type scene struct {
	View
	ledger *corev1.ConfigMap // nil: none
	exists map[types.UID]bool
	failed bool // some pods are left out, because of API errors
}

// gather reads what is known of a node: caches, our own last writes, and only in doubt the API server.
func (r *Reconciler) gather(ctx context.Context, name string) (scene, error) {
	now := r.Now()
	s := scene{View: View{Now: now}, exists: map[types.UID]bool{}}
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
func (r *Reconciler) blocked(ctx context.Context) (actuator.Reason, error) {
	if reason, _ := r.Gate.Closed(); reason != "" {
		return reason, nil
	}
	data, err := readSwitch(ctx, r.Client, r.Config.Namespace)
	if err != nil {
		return "", err
	}
	if kube.Paused(data) {
		return actuator.Paused, nil
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
	node := Node{Name: n.Name, Allocatable: kube.Node(n).Allocatable}
	for _, c := range n.Status.Conditions {
		switch c.Type {
		case corev1.NodeReady:
			node.Ready = c.Status == corev1.ConditionTrue
		case corev1.NodeDiskPressure, corev1.NodePIDPressure:
			node.Pressure = node.Pressure || c.Status == corev1.ConditionTrue
		}
	}
	for _, t := range n.Spec.Taints {
		if t.Effect == corev1.TaintEffectNoExecute {
			node.Evicting = append(node.Evicting, t)
		}
	}
	return node
}

// allocationOf is where a pod's allocation is.
func allocationOf(pod *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: string(pod.UID)}
}

// allocations are the node's PodAllocations.
func (r *Reconciler) allocations(ctx context.Context, name string) (map[types.NamespacedName]*v1alpha1.PodAllocation, error) {
	all := map[types.NamespacedName]*v1alpha1.PodAllocation{}
	if reason, _ := r.Gate.Closed(); reason == actuator.AllocationsGone {
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
	if err := r.Client.Get(ctx, types.NamespacedName{Namespace: r.Config.Namespace, Name: ledgerName(node)}, cm); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read ConfigMap %s/%s, the record of declared limits: %w", r.Config.Namespace, ledgerName(node), err)
	}
	return cm, nil
}

// pod gathers what is known of one pod; false for a pod of which nothing can be said yet.
func (r *Reconciler) pod(ctx context.Context, s *scene, cached *corev1.Pod, pa *v1alpha1.PodAllocation) (Pod, bool, error) {
	rec := r.memory.of(s.Node.Name, cached.UID)
	if pa != nil && pa.UID != rec.cached {
		r.memory.change(s.Node.Name, cached.UID, func(rec *record) { rec.cached = pa.UID })
	}
	p := Pod{Pod: rec.freshPod(cached, s.Now), PA: rec.freshPA(pa, s.Now), RestoreRefused: rec.restoreRefused, RetryAt: rec.retryAt}
	if p.PA != nil && p.PA.Spec.Decision != nil {
		p.DecisionAge = s.Now.Sub(r.heard(s.Node.Name, cached.UID, rec, p.PA.Spec.Decision.ObservedAt.Time, s.Now))
	}
	var ns metav1.PartialObjectMetadata
	ns.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	switch err := r.Client.Get(ctx, types.NamespacedName{Name: cached.Namespace}, &ns); {
	case apierrors.IsNotFound(err):
		return p, false, nil
	case err != nil:
		return p, false, fmt.Errorf("read namespace %s: %w", cached.Namespace, err)
	}
	p.Mode, _ = kube.ModeOf(ns.Labels, r.Config.Mode)
	if _, eligible := actuator.Eligible(kube.Facts(p.Pod, p.Mode, r.Config.Namespace)); !eligible && p.PA == nil && len(kube.Ours(p.Pod)) == 0 {
		return p, true, nil
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
	e, _ := readLedger(s.ledger, p.Pod.UID)
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

// remember keeps a pod as the API server returned it, until the cache shows it too.
func (r *Reconciler) remember(node string, pod *corev1.Pod) {
	r.memory.change(node, pod.UID, func(rec *record) { rec.pod, rec.podAt = pod, r.Now() })
}

// limitRanges names the versions of the LimitRanges of a namespace; "" where there is none.
func (r *Reconciler) limitRanges(ctx context.Context, namespace string) (string, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("LimitRangeList"))
	if err := r.Client.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return "", fmt.Errorf("list the LimitRanges of namespace %s: %w", namespace, err)
	}
	var versions []string
	for _, l := range list.Items {
		versions = append(versions, l.Name+"="+l.ResourceVersion)
	}
	slices.Sort(versions)
	return strings.Join(versions, " "), nil
}
