package allocation

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/mbcas/mbcas/market"
)

// TestNodeMarket: what an agent says of its node is read back as it was written, in at most
// MaxMarketText bytes, whatever the figures and however many pods are unconfirmed.
func TestNodeMarket(t *testing.T) {
	var uids []types.UID
	for i := range maxUnconfirmed {
		uids = append(uids, types.UID(fmt.Sprintf("%08x-1111-2222-3333-444444444444", i*0x01010101)))
	}
	full := NodeMarket{
		Round: 86_400 * 365, Epoch: Epoch{time.UnixMicro(1_795_000_000_123_456)}, Price: 0.000123,
		Supply: 999_000, Demand: 9_999_000, Usage: 999_999, Waiting: 250, Managed: 250, Capped: 250, Full: true,
		Unconfirmed: UnconfirmedOf(uids),
	}
	for i, uid := range uids {
		full.Quotas.Add(uid, Quota{Generation: int64(i + 30), CPU: 16_000})
	}
	if q := full.Quotas; len(q) != MaxQuotas || q.Of(uids[1], 31) != 16_000 || q.Of(uids[1], 32) != 0 || q.Of(uids[MaxQuotas], 30+MaxQuotas) != 0 || q.Of("other", 0) != 0 {
		t.Errorf("quotas %v, want the first %d, each of its generation", q, MaxQuotas)
	}
	for _, m := range []NodeMarket{{}, {Price: 0.34, Supply: 3600, Demand: 400, Usage: 300, Unconfirmed: AllPods}, full} {
		text := m.Text()
		got, err := ParseNodeMarket(text)
		if err != nil || len(text) > MaxMarketText {
			t.Errorf("%s (%d bytes): %v", text, len(text), err)
		}
		if diff := cmp.Diff(m, got); diff != "" {
			t.Errorf("%s reads otherwise:\n%s", text, diff)
		}
	}
	long := full
	long.Quotas = Quotas{}
	for _, uid := range uids {
		long.Quotas.Add(uid, Quota{Generation: 1 << 60, CPU: 16_000})
	}
	if got, err := ParseNodeMarket(long.Text()); err != nil || len(got.Quotas) == 0 || len(got.Quotas) >= MaxQuotas ||
		!got.QuotasUnread || got.Unconfirmed != full.Unconfirmed || len(long.Quotas) != MaxQuotas || len(long.Text()) > MaxMarketText {
		t.Errorf("too long quotas read %+v, %v: want some of them, and all else", got, err)
	}
	huge := full
	huge.Price, huge.Supply, huge.Demand, huge.Usage = market.MaxPrice, math.MaxInt64, math.MaxInt64, math.MaxInt64
	huge.Round, huge.Waiting, huge.Managed, huge.Capped = math.MaxUint64, math.MaxInt64, math.MaxInt64, math.MaxInt64
	if got, err := ParseNodeMarket(huge.Text()); err != nil || got.Unconfirmed != full.Unconfirmed || len(huge.Text()) > MaxMarketText {
		t.Errorf("the longest text, of %d bytes, reads %+v, %v", len(huge.Text()), got, err)
	}
	for _, text := range []string{"", "null ", `{"price":3}`, `{"epoch":"now"}`, "[]"} {
		if got, err := ParseNodeMarket(text); err == nil && text != "null " {
			t.Errorf("%q reads %+v, want an error", text, got)
		}
	}
}

// TestUnconfirmed: a pod that was named is in the set, however many were.
func TestUnconfirmed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		uids := rapid.SliceOfN(rapid.StringMatching(`[0-9a-f]{8}-[0-9a-f]{4}|u-[0-9]`), 0, 20).Draw(t, "uids")
		var pods []types.UID
		for _, uid := range uids {
			pods = append(pods, types.UID(uid))
		}
		set := UnconfirmedOf(pods)
		for _, uid := range pods {
			if !set.Has(uid) {
				t.Fatalf("%s is not in %q of %q", uid, set, uids)
			}
		}
		if other := types.UID("zzzzzzzz-zzzz"); len(pods) <= maxUnconfirmed && set.Has(other) {
			t.Fatalf("%s is in %q", other, set)
		}
	})
}
