package controller

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/mbcas/mbcas/api/v1alpha1"
)

// requeue has nodes reconciled that no change of a watched object concerns.
type requeue struct {
	all, node, namespace chan event.GenericEvent
	pause                chan event.GenericEvent // the switch
}

func newRequeue() *requeue {
	return &requeue{
		all: make(chan event.GenericEvent, 1), node: make(chan event.GenericEvent),
		namespace: make(chan event.GenericEvent, 100), pause: make(chan event.GenericEvent, 1),
	}
}

// allNodes requeues every node.
func (q *requeue) allNodes() {
	select {
	case q.all <- event.GenericEvent{Object: &corev1.Node{}}:
	default: // they are about to be requeued already
	}
}

// nodes requeues some nodes. It waits until the queue has taken them, or ctx ends.
func (q *requeue) nodes(ctx context.Context, names []string) {
	for _, name := range names {
		n := &corev1.Node{}
		n.Name = name
		select {
		case <-ctx.Done():
			return
		case q.node <- event.GenericEvent{Object: n}:
		}
	}
}

// nodesOf requeues the nodes with pods of a namespace; "" for all nodes.
func (q *requeue) nodesOf(namespace string) {
	if namespace == "" {
		q.allNodes()
		return
	}
	o := &v1alpha1.PodAllocation{}
	o.Namespace = namespace
	select {
	case q.namespace <- event.GenericEvent{Object: o}:
	default: // too many wait
		q.allNodes()
	}
}

// switchConfigMap requeues the switch.
func (q *requeue) switchConfigMap() {
	select {
	case q.pause <- event.GenericEvent{Object: &corev1.ConfigMap{}}:
	default: // it is about to be reconciled already
	}
}
