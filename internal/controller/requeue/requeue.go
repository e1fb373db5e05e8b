// Package requeue has nodes reconciled that no change of a watched object concerns.
//
// What it promises, each a test of the same name:
//   - FullQueuesCostNothing: where more waits than a queue takes, all nodes are reconciled instead.
//   - FewNodesAloneAreRequeued: where a few nodes of a namespace are concerned, the others are left alone.
package requeue

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

// Queues are sources of a controller.
type Queues struct {
	All   chan event.GenericEvent // all nodes
	Some  chan event.GenericEvent // a node, or a namespace
	Pause chan event.GenericEvent // the switch
}

// New makes the queues: one request for all nodes, and one for the switch, stand for any number.
func New() Queues {
	return Queues{
		make(chan event.GenericEvent, 1), make(chan event.GenericEvent, 100), make(chan event.GenericEvent, 1),
	}
}

// offer adds an object to a queue that has room.
func offer(queue chan event.GenericEvent, o client.Object) bool {
	select {
	case queue <- event.GenericEvent{Object: o}:
		return true
	default:
		return false
	}
}

// AllNodes requeues every node, unless they are about to be requeued already.
func (q Queues) AllNodes() { offer(q.All, &corev1.Node{}) }

// Switch requeues the switch of the installation.
func (q Queues) Switch() { offer(q.Pause, &corev1.ConfigMap{}) }

// Nodes requeues some nodes. It waits until the queue has taken them, or ctx ends.
func (q Queues) Nodes(ctx context.Context, names []string) {
	for _, name := range names {
		select {
		case <-ctx.Done():
			return
		case q.Some <- event.GenericEvent{Object: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}}:
		}
	}
}

// mostAtOnce is how many nodes SomeOf requeues by themselves: so many leave room for others in the queue.
const mostAtOnce = 50

// SomeOf requeues some nodes of a namespace without waiting: all of that namespace where they are
// many, or the queue has no room for them.
func (q Queues) SomeOf(namespace string, names []string) {
	if len(names) > mostAtOnce {
		q.Namespace(namespace)
		return
	}
	for _, name := range names {
		if !offer(q.Some, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}) {
			q.Namespace(namespace)
			return
		}
	}
}

// Namespace requeues the nodes with pods of a namespace; "" for all nodes.
func (q Queues) Namespace(name string) {
	o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if name == "" || !offer(q.Some, o) { // too many wait
		q.AllNodes()
	}
}
