package controller

import (
	"context"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// first has nodes with a new decision or a changed pod looked at before all others, where more wait than
// there are workers: a pod may be throttled, or harmed.
type first struct{ handler.EventHandler }

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

func (f first) Update(ctx context.Context, e event.UpdateEvent, q queue) {
	if p, ok := q.(priorityqueue.PriorityQueue[reconcile.Request]); ok {
		q = firstInQueue{p}
	}
	f.EventHandler.Update(ctx, e, q)
}

// firstInQueue adds nodes before those of the usual priority, 0.
type firstInQueue struct {
	priorityqueue.PriorityQueue[reconcile.Request]
}

func (q firstInQueue) Add(node reconcile.Request) {
	q.AddWithOpts(priorityqueue.AddOpts{Priority: ptr.To(1)}, node)
}
