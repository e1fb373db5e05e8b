package controller

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mbcas/mbcas/api/v1alpha1"
)

// The order in which nodes are looked at, where more wait than there are workers: first those about
// which an agent has decided, as a pod may be throttled; last those that an object of a namespace, or of
// the installation, concerns with all others.
const (
	decided = 1
	later   = -1
)

// urgency is the place of the nodes that an object concerns.
func urgency(o client.Object) int {
	switch o.(type) {
	case *v1alpha1.PodAllocation:
		return decided
	case *corev1.Pod, *corev1.Node, *coordinationv1.Lease:
		return 0
	}
	return later
}

// ordered is a handler that gives nodes their place in the queue. The library's own lower place of nodes
// that are listed at the start stays.
type ordered struct {
	handler.EventHandler
	urgency int
}

func (o ordered) Create(ctx context.Context, e event.CreateEvent, q queue) {
	o.EventHandler.Create(ctx, e, o.of(q))
}

func (o ordered) Update(ctx context.Context, e event.UpdateEvent, q queue) {
	o.EventHandler.Update(ctx, e, o.of(q))
}

func (o ordered) Generic(ctx context.Context, e event.GenericEvent, q queue) {
	o.EventHandler.Generic(ctx, e, o.of(q))
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

func (o ordered) of(q queue) queue {
	if p, ok := q.(priorityqueue.PriorityQueue[reconcile.Request]); ok {
		return orderedQueue{p, o.urgency}
	}
	return q
}

// orderedQueue adds nodes with a priority.
type orderedQueue struct {
	priorityqueue.PriorityQueue[reconcile.Request]
	priority int
}

func (q orderedQueue) Add(node reconcile.Request) {
	q.AddWithOpts(priorityqueue.AddOpts{Priority: &q.priority}, node)
}
