package restore

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/must"
)

// TestLedger: entries come back as they were written, and those of pods that no longer exist are removed once there are many.
func TestLedger(t *testing.T) {
	c := newClient(t)
	ledger := NodeLedger{Namespace: system, Node: "n1"}
	write := func(add map[types.UID]Entry, exists map[types.UID]bool) {
		t.Helper()
		var err error
		ledger.Stored, err = ledger.Write(t.Context(), c, add, exists)
		must.Succeed(t, err)
	}
	exists, all := map[types.UID]bool{"new": true}, map[types.UID]Entry{}
	for i := range pruneFrom {
		uid := types.UID(fmt.Sprintf("u%d", i))
		all[uid], exists[uid] = Entry{"shop", string(uid), limits(500)}, true
	}
	write(all, exists)
	for _, gone := range []int{pruneFrom - 1, pruneFrom} {
		for i := range gone {
			delete(exists, types.UID(fmt.Sprintf("u%d", i)))
		}
		write(map[types.UID]Entry{"new": {"shop", "new", limits(700)}}, exists)
		entries, err := ReadLedgers(t.Context(), c, system)
		must.Succeed(t, err)
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

// TestFullLedger: the largest entries are left out where there is no room for all, and others are recorded. Those of pods
// that have ended make room.
func TestFullLedger(t *testing.T) {
	c, runs := newClient(t), map[types.UID]bool{}
	entries := func(from, to int, name string) map[types.UID]Entry {
		list := map[types.UID]Entry{}
		for i := from; i < to; i++ {
			e := Entry{Namespace: "shop", Pod: name}
			for j := range 64 {
				e.Limits = append(e.Limits, v1alpha1.ContainerLimit{Name: fmt.Sprint(name, "-", j), CPULimit: 500})
			}
			uid := types.UID(fmt.Sprintf("u%04d", i))
			list[uid], runs[uid] = e, true
		}
		return list
	}
	ledger, long := NodeLedger{Namespace: system, Node: "n1"}, strings.Repeat("c", 60)
	write := func(add map[types.UID]Entry) (left int) {
		t.Helper()
		stored, err := ledger.Write(t.Context(), c, add, runs)
		must.Succeed(t, err)
		size := 0
		for uid, line := range stored.Data {
			size += len(uid) + len(line)
		}
		if ledger.Stored = stored; size > mostBytes {
			t.Errorf("the ledger has %d bytes", size)
		}
		for uid := range add {
			if stored.Data[string(uid)] == "" {
				left++
			}
		}
		return left
	}
	if left := write(entries(0, 100, long)); left != 0 {
		t.Errorf("%d left out, and there is room", left)
	}
	add := entries(100, 200, long)
	maps.Copy(add, entries(200, 201, "c"))
	if left := write(add); left == 0 || left > 90 || ledger.Stored.Data["u0200"] == "" {
		t.Errorf("%d left out; the small one: %q", left, ledger.Stored.Data["u0200"])
	}
	clear(runs)
	if left := write(entries(300, 400, long)); left != 0 || len(ledger.Stored.Data) != 100 {
		t.Errorf("%d left out, and nothing else runs; %d entries", left, len(ledger.Stored.Data))
	}
	add = entries(400, 500, long)
	maps.Copy(add, entries(300, 301, long+"x"))
	if left := write(add); left == 0 || !strings.Contains(ledger.Stored.Data["u0300"], long+"x") {
		t.Errorf("%d left out; one that is there and grows: %s", left, ledger.Stored.Data["u0300"])
	}
}

// TestLedgerOfANode: it is owned by its Node, also where it is older than that, and a write that does not know the last one is refused.
func TestLedgerOfANode(t *testing.T) {
	c := newClient(t)
	entry := func(limit cpu.Milli) map[types.UID]Entry {
		return map[types.UID]Entry{"u1": {"shop", "web", limits(limit)}}
	}
	exists := map[types.UID]bool{"u1": true}
	l := NodeLedger{Namespace: system, Node: strings.Repeat("n", 253), NodeUID: "node-uid"}
	first, err := l.Write(t.Context(), c, entry(500), exists)
	must.Succeed(t, err)
	if l.Stored = first; l.Orphaned() {
		t.Errorf("owners of a new ledger: %v", first.OwnerReferences)
	}
	l.Stored, err = l.Write(t.Context(), c, entry(700), exists)
	must.Succeed(t, err)
	late := NodeLedger{Namespace: l.Namespace, Node: l.Node, NodeUID: l.NodeUID, Stored: first}
	if _, err := late.Write(t.Context(), c, entry(500), exists); !apierrors.IsConflict(err) {
		t.Errorf("a write over a later one: %v, want a conflict", err)
	}
	late.Stored = nil
	if _, err := late.Write(t.Context(), c, entry(500), exists); !apierrors.IsAlreadyExists(err) {
		t.Errorf("a second ledger of the node: %v, want a refusal", err)
	}
	entries, err := ReadLedgers(t.Context(), c, system)
	must.Succeed(t, err)
	if !kube.SameLimits(entries["u1"].Limits, limits(700)) {
		t.Errorf("recorded is %+v, want 700m", entries["u1"])
	}
	if l.NodeUID = "made-anew"; !l.Orphaned() {
		t.Error("the ledger of an earlier node of the name has an owner")
	}
	l.Stored, err = l.Adopt(t.Context(), c)
	must.Succeed(t, err)
	if l.Orphaned() || len(l.Stored.OwnerReferences) != 1 {
		t.Errorf("owners of an adopted ledger: %v", l.Stored.OwnerReferences)
	}
}
