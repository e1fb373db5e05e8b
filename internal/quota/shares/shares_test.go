package shares

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/constraints"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/nodeallocation"
	"github.com/mbcas/mbcas/internal/quota"
	"github.com/mbcas/mbcas/internal/testing/podtest"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// cached is a cache of one namespace, which counts its lists.
type cached struct {
	client.Reader
	pods  []corev1.Pod
	of    map[types.NamespacedName]*v1alpha1.PodAllocation
	lists int
}

func (c *cached) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	c.lists++
	list.(*corev1.PodList).Items = c.pods
	return nil
}

func (c *cached) Get(_ context.Context, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	o.(*corev1.Node).Status.Allocatable = podtest.CPU("8")
	return nil
}

// namespace has n managed pods on n/30 nodes behind a quota of half a core for each.
func namespace(n int) (*Divider, *cached, *constraints.NamespaceObjects) {
	c := &cached{of: map[types.NamespacedName]*v1alpha1.PodAllocation{}}
	for i := range n {
		pod := podtest.Shop()
		pod.Name, pod.UID, pod.Spec.NodeName = fmt.Sprint("web-", i), types.UID(fmt.Sprint("u", i)), fmt.Sprint("n", i/30)
		pa := allocation.New(pod)
		pa.Status.DeclaredLimits = kube.Limits(pod)
		pa.Spec.Decision = &v1alpha1.Decision{Demand: 300}
		c.pods = append(c.pods, *pod)
		c.of[types.NamespacedName{Namespace: pod.Namespace, Name: string(pod.UID)}] = pa
	}
	q := corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "cores", UID: "q", ResourceVersion: "1"}}
	q.Spec.Hard = podtest.Amounts("limits.cpu", fmt.Sprint(n))
	q.Status.Hard, q.Status.Used = q.Spec.Hard, podtest.Amounts("limits.cpu", fmt.Sprint(n/2))
	d := &Divider{
		Config: quota.DefaultConfig(), Client: c, Watched: true,
		Allocations: func(context.Context, string) (map[types.NamespacedName]*v1alpha1.PodAllocation, error) {
			return c.of, nil
		},
		Told: func(context.Context, string) (nodeallocation.Told, error) { return nodeallocation.Told{}, nil },
	}
	return d, c, &constraints.NamespaceObjects{Quotas: []corev1.ResourceQuota{q}}
}

// TestDividedOnce: a namespace is divided again when its quota changes, when its pods have and a second
// is over, and when a division is old; and not at other looks.
func TestDividedOnce(t *testing.T) {
	d, c, n := namespace(60)
	look := func(what string, at time.Duration, lists int) {
		t.Helper()
		got, err := d.Of(t.Context(), n, "shop", noon.Add(at))
		if err != nil || len(got.Shares) != 60 || c.lists != lists {
			t.Errorf("%s: %d shares after %d lists (%v), want 60 after %d", what, len(got.Shares), c.lists, err, lists)
		}
	}
	look("at first", 0, 1)
	look("another node", 10*time.Millisecond, 1)
	d.Changed("shop")
	d.Changed("another")
	look("a pod has just changed", 20*time.Millisecond, 1)
	look("and a second is over", leastAge, 2)
	n.Quotas[0].ResourceVersion = "2"
	look("the quota has changed", leastAge+time.Millisecond, 3)
	look("it is the same", leastAge+2*time.Millisecond, 3)
	look("the division is old", leastAge+mostAge+time.Second, 4)
}

// BenchmarkLook is what a look at a node costs that has pods in a namespace of 5,000 pods under a quota.
func BenchmarkLook(b *testing.B) {
	for name, watched := range map[string]bool{"each-look": false, "once": true} {
		b.Run(name, func(b *testing.B) {
			d, _, n := namespace(5000)
			d.Watched = watched
			for b.Loop() {
				if _, err := d.Of(b.Context(), n, "shop", noon); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
