package restore

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mbcas/mbcas/internal/kube"
)

// TestLedger: entries come back as they were written, and those of pods that no longer exist are removed once there are many.
func TestLedger(t *testing.T) {
	c := newClient(t)
	key := types.NamespacedName{Namespace: system, Name: LedgerName("n1")}
	exists, all := map[types.UID]bool{"new": true}, map[types.UID]Entry{}
	for i := range pruneFrom {
		uid := types.UID(fmt.Sprintf("u%d", i))
		all[uid], exists[uid] = Entry{"shop", string(uid), limits(500)}, true
	}
	must(t, WriteLedger(t.Context(), c, key, all, nil, exists))
	for _, gone := range []int{pruneFrom - 1, pruneFrom} {
		for i := range gone {
			delete(exists, types.UID(fmt.Sprintf("u%d", i)))
		}
		ledger := &corev1.ConfigMap{}
		must(t, c.Get(t.Context(), key, ledger))
		must(t, WriteLedger(t.Context(), c, key, map[types.UID]Entry{"new": {"shop", "new", limits(700)}}, ledger, exists))
		entries, err := ReadLedgers(t.Context(), c, system)
		must(t, err)
		want := 1 + pruneFrom
		if gone == pruneFrom {
			want = 1
		}
		if len(entries) != want || !kube.SameLimits(entries["new"].Limits, limits(700)) || entries["new"].Pod != "new" {
			t.Errorf("with %d pods gone: %d entries, want %d; the new one is %+v", gone, len(entries), want, entries["new"])
		}
	}
	if e, ok := ReadEntry(&corev1.ConfigMap{Data: map[string]string{"u1": "no JSON"}}, "u1"); ok {
		t.Errorf("an entry that cannot be read is %+v", e)
	}
}
