package shares

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
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
	woken []string
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
		Config: quota.DefaultConfig(), Client: c, watched: true,
		Wake: func(_ context.Context, nodes []string) { c.woken = append(c.woken, nodes...) },
		Allocations: func(context.Context, string) (map[types.NamespacedName]*v1alpha1.PodAllocation, error) {
			return c.of, nil
		},
		Told: func(context.Context, string) (nodeallocation.Told, error) { return nodeallocation.Told{}, nil },
	}
	return d, c, &constraints.NamespaceObjects{Quotas: []corev1.ResourceQuota{q}}
}

// TestDividedOnce: a namespace is divided again when what its quota bounds changes, when its pods or the
// usage of its quota have and a second is over, and when a division is old; and not at other looks.
// One node is looked at again for that, and no other.
func TestDividedOnce(t *testing.T) {
	d, c, n := namespace(60)
	look := func(what, node string, at time.Duration, lists int, again time.Duration) {
		t.Helper()
		got, err := d.Of(t.Context(), n, d.Begin("shop", node, noon.Add(at)))
		if err != nil || len(got.Shares) != 60 || c.lists != lists {
			t.Errorf("%s: %d shares after %d lists (%v), want 60 after %d", what, len(got.Shares), c.lists, err, lists)
		}
		want := time.Time{}
		if again > 0 {
			want = noon.Add(again)
		}
		if !got.RecheckAt.Equal(want) {
			t.Errorf("%s: again at %v, want %v", what, got.RecheckAt, want)
		}
	}
	look("at first", "n0", 0, 1, 0)
	look("another node", "n1", 10*time.Millisecond, 1, 0)
	d.changed("shop")
	d.changed("another")
	look("a pod has just changed", "n1", 20*time.Millisecond, 1, leastAge)
	look("the other node", "n0", 30*time.Millisecond, 1, 0)
	look("and a second is over", "n1", leastAge, 2, 0)
	for range 100 { // resizes
		n.Quotas[0] = *used(&n.Quotas[0], "90")
	}
	look("the quota is used otherwise", "n1", leastAge+time.Millisecond, 2, 0)
	n.Quotas[0].Status.Hard = podtest.Amounts("limits.cpu", "59")
	look("the quota is smaller", "n0", leastAge+time.Millisecond, 3, leastAge+time.Millisecond+quota.Lag)
	look("it is the same", "n0", leastAge+2*time.Millisecond, 3, leastAge+time.Millisecond+quota.Lag)
	look("another node", "n1", leastAge+2*time.Millisecond, 3, 0)
	look("the division is old", "n0", leastAge+mostAge+time.Second, 4, 0)
}

// TestLargestShares: a pod with limits that no object can hold has no share, and a share of that size bounds no limit.
func TestLargestShares(t *testing.T) {
	d, c, n := namespace(3)
	c.pods[0].Spec.Containers[0] = podtest.Container("app", "100m", "100k")
	got, err := d.Of(t.Context(), n, d.Begin("shop", "n0", noon))
	if _, ok := got.Shares["u0"]; err != nil || ok || len(got.Shares) != 2 {
		t.Errorf("shares %v (%v), want those of two pods", got.Shares, err)
	}
	for most, bounds := range map[cpu.Milli]bool{cpu.Largest: true, cpu.Largest + 1: false} {
		var given v1alpha1.Constraints
		Share{By: []string{"cores"}, Most: most}.Constrain(&given)
		if (given.Ceiling != nil) != bounds || given.IncreaseOnNeed != bounds {
			t.Errorf("a share of %v gives %+v", most, given)
		}
	}
}

// used is the same quota with other usage.
func used(q *corev1.ResourceQuota, amount string) *corev1.ResourceQuota {
	q = q.DeepCopy()
	q.Namespace, q.Status.Used = "shop", podtest.Amounts("limits.cpu", amount)
	return q
}

// TestWakesWhatChanges: a resize, which changes the usage of the quota and no share, has one node looked
// at; a division by which shares change has those looked at, and another one none.
func TestWakesWhatChanges(t *testing.T) {
	d, c, n := namespace(300)
	at := noon
	look := func(node string, want ...string) {
		t.Helper()
		at, c.woken = at.Add(2*leastAge), nil
		if _, err := d.Of(t.Context(), n, d.Begin("shop", node, at)); err != nil || !slices.Equal(c.woken, want) {
			t.Errorf("woken %v (%v), want %v", c.woken, err, want)
		}
	}
	look("n0")
	before := n.Quotas[0].DeepCopy()
	for range 100 {
		if nodes, _, all := d.Used(before, used(before, "151"), at); all || !slices.Equal(nodes, []string{"n0"}) {
			t.Fatalf("a resize has %v looked at, all %v, want n0 alone", nodes, all)
		}
	}
	look("n0")
	c.of[types.NamespacedName{Namespace: "shop", Name: "u3"}].Status.DeclaredLimits = nil // of a pod on n0
	d.changed("shop")
	look("n0")
	n.Quotas[0].Status.Hard = podtest.Amounts("limits.cpu", "200")
	look("n2", "n0", "n1", "n3", "n4", "n5", "n6", "n7", "n8", "n9")
	look("n1")
}

// TestWaitersAreWoken: nodes with pods that wait are looked at when a quota is used less, and not when it is
// used more: once, but if that was while they were looked at.
func TestWaitersAreWoken(t *testing.T) {
	d, _, n := namespace(60)
	if _, err := d.Of(t.Context(), n, d.Begin("shop", "n0", noon)); err != nil {
		t.Fatal(err)
	}
	awaits := func(l Look, again time.Duration) {
		t.Helper()
		want := time.Time{}
		if again > 0 {
			want = noon.Add(again)
		}
		if got := d.Await(l, noon); !got.Equal(want) {
			t.Errorf("%s waits in %s and is looked at again at %v, want %v", l.node, l.namespace, got, want)
		}
	}
	awaits(d.Begin("shop", "n1", noon), 0)
	awaits(d.Begin("shop", "n7", noon), 0)
	awaits(d.Begin("bank", "n8", noon), 0)
	awaits(d.Begin("shop", "n9", noon), 0)
	awaits(d.Begin("bank", "n9", noon), 0)
	d.Left("n9", func(string) bool { return false })
	d.Left("n7", func(namespace string) bool { return namespace == "shop" })
	began := d.Begin("shop", "n3", noon)
	q := used(&n.Quotas[0], "40")
	for _, c := range []struct {
		used  string
		nodes []string
		asked bool
	}{
		{"40", nil, false},
		{"41", []string{"n0"}, true},
		{"39", []string{"n0", "n1", "n7"}, false},
		{"39", []string{"n0"}, false},
	} {
		nodes, asked, all := d.Used(q, used(q, c.used), noon)
		if !slices.Equal(nodes, c.nodes) || asked != c.asked || all {
			t.Errorf("from 40 to %s: %v, asked %v, all %v, want %v and %v", c.used, nodes, asked, all, c.nodes, c.asked)
		}
	}
	awaits(began, usageDelay)
	awaits(d.Begin("shop", "n3", noon), 0)
	if d.Left("n8", func(string) bool { return false }); len(d.waiting) != 1 {
		t.Errorf("waits of %v, want those in shop alone", d.waiting)
	}
}

// TestNoChangeIsLost: a look divides what it has read. Where the usage of a quota changes after it is read and
// before it is divided, the next look divides again; so it does where that is the first division.
func TestNoChangeIsLost(t *testing.T) {
	d, c, n := namespace(60)
	for i, usage := range []string{"31", "59"} {
		d.changed("shop") // so that the look divides
		late := d.Begin("shop", "n0", noon.Add(time.Duration(4*i)*leastAge))
		read := constraints.NamespaceObjects{Quotas: slices.Clone(n.Quotas)}
		n.Quotas[0] = *used(&n.Quotas[0], usage)
		d.Used(&read.Quotas[0], &n.Quotas[0], noon)
		soon := d.Begin("shop", "n0", late.at.Add(2*leastAge))
		for k, look := range []Look{late, soon, late, soon} { // the one that began first may be late
			objects := n
			if k%2 == 0 {
				objects = &read
			}
			if _, err := d.Of(t.Context(), objects, look); err != nil {
				t.Fatal(err)
			}
		}
		if c.lists != 2*(i+1) {
			t.Errorf("divided %d times, want %d: with each usage", c.lists, 2*(i+1))
		}
	}
}

// TestTheOneNodeMayBeGone: where the one node that is to divide quotas anew is not looked at, all nodes are soon,
// though no quota changes any more; where it is, no other one is.
func TestTheOneNodeMayBeGone(t *testing.T) {
	for name, gone := range map[string]bool{"it is gone": true, "it is there": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, _, n := namespace(60)
				look := func() {
					t.Helper()
					if _, err := d.Of(t.Context(), n, d.Begin("shop", "n0", time.Now())); err != nil {
						t.Fatal(err)
					}
				}
				look()
				queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
				defer queue.ShutDown()
				request := func(node string) reconcile.Request {
					return reconcile.Request{NamespacedName: types.NamespacedName{Name: node}}
				}
				all := func(context.Context, client.Object) []reconcile.Request {
					return []reconcile.Request{request("n0"), request("n1")}
				}
				looks := func(want ...string) {
					t.Helper()
					synctest.Wait()
					var got []string
					for queue.Len() > 0 {
						r, _ := queue.Get()
						got = append(got, r.Name)
						queue.Done(r)
					}
					if slices.Sort(got); !slices.Equal(got, want) {
						t.Errorf("looked at %v, want %v", got, want)
					}
				}
				change := event.UpdateEvent{ObjectOld: used(&n.Quotas[0], "40"), ObjectNew: used(&n.Quotas[0], "41")}
				d.Usage(all, time.Now).Update(t.Context(), change, queue)
				time.Sleep(usageDelay)
				if looks("n0"); !gone {
					look()
				}
				time.Sleep(askedFor)
				if gone {
					looks("n0", "n1")
				} else {
					looks()
				}
			})
		})
	}
}
