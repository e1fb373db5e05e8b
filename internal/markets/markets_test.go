package markets

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/must"
)

// TestLeaseConfirms: a renewal confirms the decisions that it does not name, and none while the cache
// shows no decision as new as the agent knew it a while ago.
func TestLeaseConfirms(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	at := func(d time.Duration) time.Time { return now.Add(d) }
	scheme := runtime.NewScheme()
	must.Succeed(t, coordinationv1.AddToScheme(scheme))
	cache := fake.NewClientBuilder().WithScheme(scheme).Build()
	key := types.NamespacedName{Namespace: "system", Name: kube.AgentLease("n1")}
	m := &Markets{Leases: cache, Namespace: key.Namespace}
	say := func(when time.Duration, text string) bool {
		t.Helper()
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
		_ = cache.Delete(t.Context(), lease)
		lease.Annotations = map[string]string{kube.MarketKey: text}
		must.Succeed(t, cache.Create(t.Context(), lease))
		return m.Renewed(lease, at(when))
	}
	market := func(epoch time.Duration, unconfirmed ...types.UID) string {
		return allocation.NodeMarket{
			Epoch: allocation.Epoch{Time: at(epoch)}, Price: 0.25, Unconfirmed: allocation.UnconfirmedOf(unconfirmed),
		}.Text()
	}
	check := func(when, newest time.Duration, confirmed, other bool) {
		t.Helper()
		decision := &v1alpha1.PodAllocation{}
		decision.Spec.Decision = &v1alpha1.Decision{ObservedAt: metav1.NewMicroTime(at(newest))}
		shown := map[types.NamespacedName]*v1alpha1.PodAllocation{{Name: "a"}: {}, {Name: "b"}: decision}
		u, err := m.Unconfirmed(t.Context(), "n1", shown, at(when))
		must.Succeed(t, err)
		if got, gotOther := !u.Has("11111111-1"), !u.Has("22222222-2"); got != confirmed || gotOther != other {
			t.Errorf("after %v, with decisions of up to %v: confirmed %v and %v, want %v and %v",
				when, newest, got, gotOther, confirmed, other)
		}
	}
	check(0, -time.Hour, false, false) // there is no Lease
	say(0, market(-time.Hour))
	check(0, -time.Hour, true, true)
	check(0, -2*time.Hour, true, true) // its cache may be a little late
	check(kube.CacheLag, -2*time.Hour, false, false)
	if say(25*time.Second, market(-time.Hour)) {
		t.Error("a renewal that says the same counts as a change")
	}
	check(25*time.Second, -time.Hour, true, true)
	say(50*time.Second, market(40*time.Second)) // a new decision, which the cache shows late
	check(50*time.Second, -time.Hour, true, true)
	check(50*time.Second+kube.CacheLag, -time.Hour, false, false)
	say(75*time.Second, market(60*time.Second)) // still late, of another one
	check(75*time.Second, -time.Hour, false, false)
	check(75*time.Second, 60*time.Second, true, true)
	if !say(100*time.Second, market(60*time.Second, "11111111-1")) {
		t.Error("a pod that is unconfirmed is no change")
	}
	check(100*time.Second, 60*time.Second, false, true)
	if got := m.Price("n1"); got != 0.25 {
		t.Errorf("price %v", got)
	}
	for i, text := range []string{"", "{"} { // an agent that says nothing
		say(125*time.Second, text)
		check(time.Duration(125+i)*time.Second, 60*time.Second, false, false)
	}
	if m.Drop("n1"); m.Price("n1") != 0 {
		t.Error("a node that has gone has a price")
	}
}
