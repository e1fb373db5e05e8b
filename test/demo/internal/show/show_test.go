//go:build linux

package show

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/mbcas/mbcas/test/demo/internal/record"
	"github.com/mbcas/mbcas/test/internal/cgroup"
)

func TestRates(t *testing.T) {
	start := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	a := cgroup.Reading{At: start, Usage: time.Second, Throttled: time.Second, Periods: 100, Throttles: 10}
	b := cgroup.Reading{At: start.Add(2 * time.Second), Usage: 1600 * time.Millisecond, Throttled: 1500 * time.Millisecond, Periods: 120, Throttles: 15, Quota: 500}
	want := record.Sample{Quota: 500, Use: 300, Throttled: 250, Ratio: 0.25}
	if diff := cmp.Diff(want, rates(a, b), cmpopts.EquateApprox(0, 1e-9)); diff != "" {
		t.Error(diff)
	}
	b.Periods = a.Periods // idle, or without a quota
	if r := rates(a, b).Ratio; r != 0 {
		t.Errorf("ratio %v without periods", r)
	}
}

func TestWindowForgets(t *testing.T) {
	ms := time.Millisecond
	recent := map[string][]ended{"x": {{1 * time.Second, 900 * ms}, {6 * time.Second, 10 * ms}, {7 * time.Second, 30 * ms}}}
	if p50, p99 := window(recent, "x", 7*time.Second); p50 != 10 || p99 != 30 {
		t.Errorf("p50 %v, p99 %v; want 10 and 30: the first request ended too long ago", p50, p99)
	}
	if p50, p99 := window(recent, "x", time.Minute); p50 != 0 || p99 != 0 {
		t.Errorf("p50 %v, p99 %v of nothing", p50, p99)
	}
}
