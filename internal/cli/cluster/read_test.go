package cluster

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/cli/snapshot"
	"github.com/mbcas/mbcas/internal/testing/must"
)

// TestReadsTheNodesOfThePods: constraints of the pods of one namespace cost one read for each of their nodes, and no
// list of all nodes unless there are many.
func TestReadsTheNodesOfThePods(t *testing.T) {
	for name, c := range map[string]struct {
		nodes, gets, lists int
		all                bool
	}{
		"a few nodes":  {nodes: 3, gets: 3},
		"many nodes":   {nodes: mostGets + 1, lists: 1},
		"all pods":     {nodes: 3, lists: 1, all: true},
		"none managed": {},
	} {
		gets, lists := 0, 0
		api := fake.NewClientBuilder().WithScheme(Scheme()).WithInterceptorFuncs(interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				gets++
				return c.Get(ctx, k, o, opts...)
			},
			List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
				lists++
				return c.List(ctx, l, opts...)
			},
		}).Build()
		s := &snapshot.Snapshot{Allocations: map[types.UID]*v1alpha1.PodAllocation{}}
		for i := range c.nodes {
			pod := corev1.Pod{}
			pod.UID, pod.Spec.NodeName = types.UID(fmt.Sprint("pod-", i)), fmt.Sprint("node-", i)
			s.Pods = append(s.Pods, pod)
			s.Allocations[pod.UID] = &v1alpha1.PodAllocation{}
			n := &v1alpha1.NodeAllocation{}
			n.Name = pod.Spec.NodeName
			n.Spec.Pods = []v1alpha1.NodePod{{UID: pod.UID, Constraints: &v1alpha1.Constraints{CeilingBy: "LimitRange/x"}}}
			must.Succeed(t, api.Create(t.Context(), n))
		}
		must.Succeed(t, readConstraints(t.Context(), api, s, c.all))
		if gets != c.gets || lists != c.lists || len(s.Constraints) != c.nodes {
			t.Errorf("%s: %d GETs, %d LISTs, constraints of %d pods; want %d, %d, %d", name, gets, lists, len(s.Constraints), c.gets, c.lists, c.nodes)
		}
	}
}
