package controller

import (
	"context"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// first has some nodes looked at before all others, where more wait than there are workers.
type first struct {
	handler.EventHandler
	of func(node string) bool // says whether it is one of them
}

// always is for changes of a pod or of its decision: the pod may be throttled, or harmed.
func always(string) bool { return true }

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

func (f first) Update(ctx context.Context, e event.UpdateEvent, q queue) {
	if p, ok := q.(priorityqueue.PriorityQueue[reconcile.Request]); ok {
		q = firstInQueue{p, f.of}
	}
	f.EventHandler.Update(ctx, e, q)
}

// firstInQueue adds some nodes before those of the usual priority, 0.
type firstInQueue struct {
	priorityqueue.PriorityQueue[reconcile.Request]
	of func(node string) bool
}

func (q firstInQueue) Add(node reconcile.Request) {
	priority := 0
	if q.of(node.Name) {
		priority = 1
	}
	q.AddWithOpts(priorityqueue.AddOpts{Priority: &priority}, node)
}
