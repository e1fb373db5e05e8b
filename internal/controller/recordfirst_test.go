package controller

import (
	"log/slog"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/objectcache"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
	"github.com/mbcas/mbcas/internal/testing/fakekubelet"
	"github.com/mbcas/mbcas/internal/testing/faults"
	"github.com/mbcas/mbcas/internal/testing/memapi"
	"github.com/mbcas/mbcas/internal/testing/schedule"
)

// TestTheAllocationHasTheRecordFirst: a PodAllocation that has lost the declared limits gets them back before its pod
// is resized; while the API server takes no status, nothing is requested.
func TestTheAllocationHasTheRecordFirst(t *testing.T) {
	now := time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	api := memapi.New(func() time.Time { return now })
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	pod := apiserver.Pod("shop", "web", apiserver.Container("app", "100m", "500m"))
	pod.Spec.NodeName, pod.Status.QOSClass = "n1", corev1.PodQOSBurstable
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: kube.SystemNamespace}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{kube.ModeLabel: string(kube.ModeEnforce)}}},
		fakekubelet.NodeObject("n1", 4, now), pod,
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: kube.SystemNamespace, Name: kube.AgentLease("n1")}},
	} {
		must(api.Create("cluster", o))
	}
	pod = memapi.All[*corev1.Pod](api)[0]
	status := apiserver.Report(pod, apiserver.Obey, metav1.NewTime(now.Add(-time.Hour)))
	memapi.Change(api, "kubelet", "shop", "web", func(p *corev1.Pod) { p.Status = status })
	conn := &faults.Transport{Next: api}
	cache := api.NewCache(api.Length(), objectcache.NewTransform())
	c, err := client.New(memapi.Config(conn, "A"), client.Options{
		Scheme: memapi.Scheme, Mapper: memapi.Mapper(), Cache: &client.CacheOptions{Reader: cache},
	})
	must(err)
	live, err := client.New(memapi.Config(api, "A"), client.Options{Scheme: memapi.Scheme, Mapper: memapi.Mapper()})
	must(err)
	a := system().New(schedule.Process{
		Client: c, Live: live, Now: func() time.Time { return now }, Jitter: func(d time.Duration) time.Duration { return d },
		Audit: slog.DiscardHandler,
	})
	look := func() {
		now = now.Add(time.Minute)
		at := metav1.NewMicroTime(now)
		memapi.Change(api, "agent", kube.SystemNamespace, kube.AgentLease("n1"), func(l *coordinationv1.Lease) {
			l.Spec.RenewTime = &at
			l.Annotations = map[string]string{kube.MarketKey: allocation.NodeMarket{Supply: 4000}.Text()}
		})
		for _, r := range memapi.Resources() {
			for _, o := range cache.Show(r, api.Length()) {
				a.Changed(t.Context(), o)
			}
		}
		_, err := a.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "n1"}})
		must(err)
	}
	resizes := func() bool {
		return slices.ContainsFunc(conn.Calls(), func(c faults.Call) bool { return c.Resource == "pods/resize" })
	}
	look()
	look()
	memapi.Change(api, "another-client", "shop", string(pod.UID), func(pa *v1alpha1.PodAllocation) {
		if len(pa.Status.DeclaredLimits) == 0 {
			t.Error("nothing is recorded at the start")
		}
		pa.Status.DeclaredLimits = nil
		limits := []v1alpha1.ContainerLimit{app(2000)}
		pa.Spec.DesiredCPULimit, pa.Spec.Containers = &limits[0].CPULimit, limits
		pa.Spec.Decision = &v1alpha1.Decision{
			Budget: 100, Demand: 2000, Floor: 10, Ceiling: 4000, BoundBy: v1alpha1.BoundByNothing, ObservedAt: metav1.NewMicroTime(now.Add(time.Minute)),
		}
	})
	conn.Play(faults.Rules(faults.Rule{Resource: "podallocations/status", Fault: faults.Fault{Kind: faults.Refuse, Status: 409}}))
	look()
	if resizes() {
		t.Error("a resize is requested, and the PodAllocation has no declared limits")
	}
	conn.Play(nil)
	for range 5 {
		look()
	}
	pa := memapi.Get[*v1alpha1.PodAllocation](api, "shop", string(pod.UID))
	if !resizes() || !kube.SameLimits(pa.Status.DeclaredLimits, []v1alpha1.ContainerLimit{app(500)}) {
		t.Errorf("resized %v, recorded %v: want it resized with its record", resizes(), pa.Status.DeclaredLimits)
	}
}
