// Package order has some nodes looked at before others, where more wait than there are workers.
//
// What it promises, each a test of the same name:
//   - DecidedNodesGoFirst: nodes with a new decision, a changed pod or a throttled one come before all others.
package order

import (
	"context"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// First has some nodes looked at before all others: those of which Of says so.
type First struct {
	handler.EventHandler
	Of func(node string) bool
}

// Always is for changes of a pod or of its decision: the pod may be throttled, or harmed.
func Always(string) bool { return true }

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Update puts the nodes of a changed object into the queue.
func (f First) Update(ctx context.Context, e event.UpdateEvent, q queue) {
	if p, ok := q.(priorityqueue.PriorityQueue[reconcile.Request]); ok {
		q = firstInQueue{p, f.Of}
	}
	f.EventHandler.Update(ctx, e, q)
}

// firstInQueue adds some nodes before those of the usual priority, 0.
type firstInQueue struct {
	priorityqueue.PriorityQueue[reconcile.Request]
	of func(node string) bool
}

// Add adds a node.
func (q firstInQueue) Add(node reconcile.Request) {
	priority := 0
	if q.of(node.Name) {
		priority = 1
	}
	q.AddWithOpts(priorityqueue.AddOpts{Priority: &priority}, node)
}
