package order

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mbcas/mbcas/api/v1alpha1"
)

// TestDecidedNodesGoFirst: where a change concerns a thousand nodes, those with a new decision, a changed pod or
// a throttled one are looked at before all of them.
func TestDecidedNodesGoFirst(t *testing.T) {
	const all = 1000
	name := func(i int) reconcile.Request {
		return reconcile.Request{NamespacedName: types.NamespacedName{Name: fmt.Sprintf("n%d", i)}}
	}
	nodes := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) (list []reconcile.Request) {
		switch o := o.(type) {
		case *corev1.Pod:
			return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: o.Spec.NodeName}}}
		case *v1alpha1.PodAllocation:
			return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: o.Spec.NodeName}}}
		}
		for i := range all {
			list = append(list, name(i))
		}
		return list
	})
	q := priorityqueue.New[reconcile.Request]("nodes")
	defer q.ShutDown()
	changed := func(o client.Object) {
		before := o.DeepCopyObject().(client.Object)
		o.SetResourceVersion("2")
		h := First{nodes, Always}
		if _, all := o.(*corev1.ResourceQuota); all {
			h.Of = func(node string) bool { return node == "n900" } // has a throttled pod
		}
		h.Update(t.Context(), event.UpdateEvent{ObjectOld: before, ObjectNew: o}, q)
	}
	changed(&corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "team"}})
	changed(&corev1.Pod{Spec: corev1.PodSpec{NodeName: "n700"}})
	changed(&v1alpha1.PodAllocation{Spec: v1alpha1.PodAllocationSpec{NodeName: "n500"}})
	for _, want := range []int{900, 700, 500} {
		if got, _ := q.Get(); got != name(want) {
			t.Errorf("%v is looked at, want %v", got, name(want))
		}
	}
	if n := q.Len(); n != all-3 {
		t.Errorf("%d nodes wait, want %d", n, all-3)
	}
}
