package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/lifecycle"
	"github.com/mbcas/mbcas/internal/restore"
)

// nodeField is the field by which pods and allocations are listed.
const nodeField = "spec.nodeName"

// snapshot is one node as a reconcile sees it.
type snapshot struct {
	now  time.Time
	node nodeState
	pods []*podState
	// strays are PodAllocations of this node whose pod is not on it.
	strays []*v1alpha1.PodAllocation

	ledger     *corev1.ConfigMap
	exists     map[types.UID]bool
	failed     bool // some pods are left out, because of API errors
	namespaces map[string]*neighbourhood
	recheckAt  time.Time // when to reconcile again whatever the tasks want; zero: no need
	// deadline is until when this reconcile may begin resizes.
	deadline time.Time
}

// gather reads what is known of a node: caches, our own last writes, and only in doubt the API
// server.
func (r *Reconciler) gather(ctx context.Context, name string) (*snapshot, error) {
	now := r.Now()
	s := &snapshot{now: now, exists: map[types.UID]bool{}, namespaces: map[string]*neighbourhood{}}
	blocked, err := r.blocked(ctx)
	if err != nil {
		return nil, err
	}
	if s.node, err = r.node(ctx, name, now); err != nil {
		return nil, err
	}
	s.node.Blocked = blocked
	var pods corev1.PodList
	if err := r.Client.List(ctx, &pods, client.MatchingFields{nodeField: name}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the pods of node %s: %w", name, err)
	}
	s.node.Draining = s.node.Draining || s.node.cordoned && anyLeaves(pods.Items)
	allocations, err := r.allocations(ctx, name)
	if err != nil {
		return nil, err
	}
	if s.ledger, err = r.ledger(ctx, name); err != nil {
		return nil, err
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		s.exists[pod.UID] = true
		key := allocationOf(pod)
		p, ok, err := r.pod(ctx, s, pod, allocations[key])
		if r.failed(ctx, pod, err) { // the others do not wait for this one
			s.failed = true
		} else if ok {
			s.pods = append(s.pods, p)
		}
		delete(allocations, key)
	}
	s.strays = slices.SortedFunc(maps.Values(allocations), func(a, b *v1alpha1.PodAllocation) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	r.memory.keep(name, s.exists)
	if s.node.allocatable == 0 && len(s.exists) == 0 && len(s.strays) == 0 {
		r.liveness.drop(name) // no such node any more
	}
	return s, nil
}

// decide returns the tasks of the node, in the order in which to do them.
func (s *snapshot) decide(cfg lifecycle.Config) []*task {
	facts := make([]lifecycle.Pod, len(s.pods))
	for i, p := range s.pods {
		facts[i] = p.facts
	}
	var tasks []*task
	for _, t := range lifecycle.Decide(cfg, s.node.Node, facts, s.now) {
		tasks = append(tasks, &task{Task: t, podState: s.pods[t.Pod]})
	}
	return tasks
}

// blocked is why nothing may be resized anywhere; "" where resizes are possible.
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
	key := types.NamespacedName{Namespace: r.Config.Namespace, Name: restore.LedgerName(node)}
	cm := &corev1.ConfigMap{}
	if err := r.Client.Get(ctx, key, cm); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read ConfigMap %s, the record of declared limits: %w", key, err)
	}
	return cm, nil
}
