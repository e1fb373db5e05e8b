package shares

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/constraints"
	"github.com/mbcas/mbcas/internal/kube"
)

// Watch returns a predicate that lets all events pass, and counts those of pods and PodAllocations that
// change shares. From then on a division is kept until something has changed.
func (d *Divider) Watch() predicate.Predicate {
	d.mu.Lock()
	d.watched = true
	d.mu.Unlock()
	note := func(before, now client.Object) bool {
		if !reflect.DeepEqual(claimed(before), claimed(now)) {
			d.changed(now.GetNamespace())
		}
		return true
	}
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return note(nil, e.Object) },
		DeleteFunc: func(e event.DeleteEvent) bool { return note(nil, e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool { return note(e.ObjectOld, e.ObjectNew) },
	}
}

// claimed is the part of an object that divisions depend on.
func claimed(o client.Object) any {
	switch o := o.(type) {
	case *corev1.Pod:
		return kube.Relevant(o)
	case *v1alpha1.PodAllocation:
		return []any{o.UID, o.Generation, o.Status.DeclaredLimits}
	}
	return nil
}

// changed notes a change of a pod or a PodAllocation.
func (d *Divider) changed(namespace string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, looked := d.namespaces[namespace]; looked {
		d.changes[namespace]++
	}
}

// usageDelay is how soon nodes are looked at after the usage of a quota has changed. Many resizes within it
// cost one look; longer makes pods that wait for a quota wait longer.
const usageDelay = 500 * time.Millisecond

// Usage returns a handler that has nodes looked at when the usage of a quota changes: see Used. all returns
// the nodes with pods of its namespace.
func (d *Divider) Usage(all handler.MapFunc, now func() time.Time) handler.EventHandler {
	return handler.Funcs{UpdateFunc: func(
		ctx context.Context, e event.UpdateEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request],
	) {
		at := now()
		nodes, asked, every := d.Used(e.ObjectOld.(*corev1.ResourceQuota), e.ObjectNew.(*corev1.ResourceQuota), at)
		for _, node := range nodes {
			queue.AddAfter(reconcile.Request{NamespacedName: types.NamespacedName{Name: node}}, usageDelay)
		}
		addAll := func() {
			for _, request := range all(ctx, e.ObjectNew) {
				queue.AddAfter(request, usageDelay)
			}
		}
		if every {
			addAll()
		}
		if asked {
			time.AfterFunc(askedFor, func() {
				if ctx.Err() == nil && d.unanswered(e.ObjectNew.GetNamespace(), at) {
					addAll()
				}
			})
		}
	}}
}

// askedFor is how long the look of the one node may take. It, or its pods of the namespace, may be gone.
const askedFor = 5 * time.Second

// unanswered says whether the look that was wanted at a time has not come. It is not wanted any more then.
func (d *Divider) unanswered(namespace string, at time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	since, awaited := d.awaited[namespace]
	if !awaited || !since.Equal(at) {
		return false
	}
	delete(d.awaited, namespace)
	return true
}

// Used takes in that a quota is used otherwise than before, and returns the nodes to look at: one, whose
// look divides the quotas anew, and where it is used less, those with pods that wait for it. Each resize
// in a namespace changes that, so its other nodes are looked at only if their shares change. asked: that
// one was not to be looked at before. all: it is not known, so every node with pods of the namespace is
// to be looked at.
func (d *Divider) Used(before, now *corev1.ResourceQuota, at time.Time) (nodes []string, asked, all bool) {
	was, _ := constraints.CPUQuotaOf(before)
	is, bounds := constraints.CPUQuotaOf(now)
	namespace := now.Namespace
	if !bounds || is.Used == was.Used {
		return nil, false, false
	}
	d.changed(namespace)
	d.mu.Lock()
	defer d.mu.Unlock()
	if is.Used < was.Used {
		nodes = slices.Collect(maps.Keys(d.waiting[namespace]))
		delete(d.waiting, namespace)
		if d.namespaces[namespace] != nil {
			d.freed[namespace]++
		}
	}
	by, divided := d.by[namespace]
	if !divided {
		return nodes, false, false
	}
	if by == "" {
		return nil, false, true
	}
	if asked = d.awaited[namespace].IsZero(); asked {
		d.awaited[namespace] = at
	}
	if !slices.Contains(nodes, by) {
		nodes = append(nodes, by)
	}
	slices.Sort(nodes)
	return nodes, asked, false
}

// Left forgets that a node waits for the quotas of namespaces in which it has no pods any more. Their usage may have
// fallen for the last time, so that nothing else would.
func (d *Divider) Left(node string, hasPods func(namespace string) bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for namespace, nodes := range d.waiting {
		if !nodes[node] || hasPods(namespace) {
			continue
		}
		if delete(nodes, node); len(nodes) == 0 {
			delete(d.waiting, namespace)
		}
	}
}

// Await notes that a pod, which a look has found, waits for the quotas of its namespace to be used less. It returns
// when its node is to be looked at again, as there may be room since they were read; zero: no need.
func (d *Divider) Await(l Look, now time.Time) (again time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.waiting == nil {
		d.waiting = map[string]map[string]bool{}
	}
	if d.waiting[l.namespace] == nil {
		d.waiting[l.namespace] = map[string]bool{}
	}
	d.waiting[l.namespace][l.node] = true
	if d.freed[l.namespace] != l.freed {
		again = now.Add(usageDelay)
	}
	return again
}
