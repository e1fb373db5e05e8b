package runner

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/coordinator"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
	"github.com/mbcas/mbcas/internal/testing/must"
	"github.com/mbcas/mbcas/market"
)

// byNode refuses lists that hold more than the pods of a node, or copies of them.
type byNode struct{ client.Reader }

func (b byNode) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(opts)
	if _, nodes := list.(*v1alpha1.NodeAllocationList); !nodes && o.FieldSelector == nil {
		return fmt.Errorf("all objects of %T are listed", list)
	}
	if !ptr.Deref(o.UnsafeDisableDeepCopy, false) {
		return fmt.Errorf("objects of %T are copied", list)
	}
	return b.Reader.List(ctx, list, opts...)
}

// TestRebalanceListsNodeByNode: budget moves to the replica that pays the higher price, and no list is
// longer than a node. A factor is remembered until agents are told of it.
func TestRebalanceListsNodeByNode(t *testing.T) {
	scheme := runtime.NewScheme()
	must.Succeed(t, corev1.AddToScheme(scheme))
	must.Succeed(t, v1alpha1.AddToScheme(scheme))
	prices := map[string]market.Price{"high": 0.5, "low": 0.15}
	node := func(o client.Object) []string {
		if pod, ok := o.(*corev1.Pod); ok {
			return []string{pod.Spec.NodeName}
		}
		return []string{o.(*v1alpha1.PodAllocation).Spec.NodeName}
	}
	objects := fake.NewClientBuilder().WithScheme(scheme).
		WithIndex(&corev1.Pod{}, "node", node).WithIndex(&v1alpha1.PodAllocation{}, "node", node)
	pods := map[string]*corev1.Pod{}
	told := map[string]*v1alpha1.NodeAllocation{}
	for name, price := range prices {
		pod := apiserver.RunningPod("shop", name, apiserver.Container("app", "200m", "900m"))
		pod.UID, pod.Spec.NodeName = types.UID(name), name
		pod.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web", UID: "web", Controller: ptr.To(true)}}
		pa := allocation.New(pod)
		pa.UID = types.UID("pa-" + name)
		pa.Spec.Decision = &v1alpha1.Decision{Budget: 200, Demand: 2000, Floor: 210, Ceiling: 4000, Price: price}
		n := allocation.NewNode(name, types.UID(name))
		n.Spec.Pods = []v1alpha1.NodePod{allocation.NodePod(pa, nil, v1alpha1.Constraints{})}
		pods[name], told[name] = pod, n
		objects.WithObjects(pod, pa, n)
	}
	api, fresh := objects.Build(), true
	r := &Runner{
		Config: coordinator.DefaultConfig(), Interval: time.Minute, Pods: byNode{api}, NodeField: "node", Now: time.Now,
		Fresh: func(string, time.Time) bool { return fresh },
		Price: func(node string) market.Price { return prices[node] },
		Log:   slog.New(slog.DiscardHandler),
	}
	changed, err := r.Rebalance(t.Context())
	if err != nil || !slices.Equal(changed, []string{"high", "low"}) {
		t.Fatalf("changed %v, %v", changed, err)
	}
	high, low := r.Factor(pods["high"], nil), r.Factor(pods["low"], nil)
	if high == nil || low == nil || *high <= 100 || *low >= 100 {
		t.Fatalf("factors %v and %v", high, low)
	}
	constraints := &v1alpha1.Constraints{CoordinationPercent: high}
	told["high"].Spec.Pods[0].Constraints = constraints
	must.Succeed(t, api.Update(t.Context(), told["high"]))
	fresh = false // so every factor stays
	if _, err := r.Rebalance(t.Context()); err != nil {
		t.Fatal(err)
	}
	if f := r.Factor(pods["high"], constraints); f == nil || *f != *high {
		t.Errorf("the factor that is told becomes %v, want %d", ptr.Deref(f, 100), *high)
	}
}
