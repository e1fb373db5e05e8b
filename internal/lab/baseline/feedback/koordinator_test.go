package feedback

import (
	"fmt"
	"testing"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/lab/sim"
	"github.com/mbcas/mbcas/internal/lab/simtest"
)

// A limit of 1000m on an idle node, throttled each second: 1000 x 1.2 = 1200, 1440, 1728, 2073.6 ->
// 2073, 2487.6 -> 2487, 2984.4 -> 2984, and then the ceiling of 3000m, after seven steps. The first
// call knows no node, so nothing happens. It stays there while the node is idle. At 4.6 of 10 cores
// (a mean over 5 s) the node cools: nothing rises. At 5.5 it is overloaded: x 0.8 = 2400, 1920,
// 1536, 1228.8 -> 1228, 982 -> the limit.
func TestKoordinatorBurstsAndReturns(t *testing.T) {
	w := simtest.NewNode(10, sim.PodSpec{Request: 500, Limit: 1000}, sim.PodSpec{})
	k := NewKoordinator(-1)
	second := func(other float64, throttled bool) cpu.Milli {
		actions, next := k.Decide(&w.Snapshot)
		if next != w.Now+time.Second {
			t.Fatalf("next call at %v, want in 1 s", next)
		}
		for _, a := range actions {
			if a.Delay != sim.DirectDelay {
				t.Fatalf("%+v, want a write to the cgroup", a)
			}
		}
		w.Apply(actions)
		w.Advance(time.Second, 1, other)
		if throttled {
			w.Pods[0].Throttled++
		}
		return w.Pods[0].Limit
	}
	if got := second(1, true); got != 1000 {
		t.Fatalf("first call: %v, want 1000m", got)
	}
	for i, want := range []cpu.Milli{1200, 1440, 1728, 2073, 2487, 2984, 3000, 3000} {
		if got := second(1, true); got != want {
			t.Fatalf("step %d up: %v, want %v", i+1, got, want)
		}
	}
	for range 5 {
		if got := second(1, false); got != 3000 {
			t.Fatalf("idle and not throttled: %v, want 3000m", got)
		}
	}
	for range 6 {
		second(3.6, true)
	}
	w.Pods[0].Limit = 2000
	if got := second(4.5, true); got != 2000 {
		t.Fatalf("cooling: %v, want 2000m", got)
	}
	w.Pods[0].Limit = 3000
	for range 5 { // until the mean over 5 s is above a half, and once more
		w.Pods[0].Limit = 3000
		second(4.5, true)
	}
	w.Pods[0].Limit = 3000
	for i, want := range []cpu.Milli{2400, 1920, 1536, 1228, 1000, 1000} {
		if got := second(4.5, true); got != want {
			t.Fatalf("step %d down: %v, want %v", i+1, got, want)
		}
	}
}

// A pod that is no longer throttled keeps its limit, and a new pod is not raised for earlier
// throttling.
func TestKoordinatorRaisesTheThrottledOnly(t *testing.T) {
	w := simtest.NewNode(10, sim.PodSpec{Request: 500, Limit: 1000}, sim.PodSpec{Request: 500, Limit: 1000})
	late := w.Pods[1]
	late.Limit, late.Throttled = 1500, 10
	w.Pods = w.Pods[:1]
	k := NewKoordinator(-1)
	for i, want := range []cpu.Milli{1000, 1200, 1200} {
		if i == 2 {
			w.Pods = append(w.Pods, late)
		}
		actions, _ := k.Decide(&w.Snapshot)
		if w.Apply(actions); w.Pods[0].Limit != want {
			t.Errorf("call %d: %v, want %v", i, w.Pods[0].Limit, want)
		}
		w.Advance(time.Second, 1, 1)
		if i == 0 {
			w.Pods[0].Throttled++
		}
	}
	if got := w.Pods[1].Limit; got != 1500 {
		t.Errorf("the new pod is at %v, want 1500m still", got)
	}
}

// From 45 % on a node cools, from 50 % on it is overloaded. The first sample says nothing. After 10
// s of rest and some at 9 of 10 cores, the mean over 5 s is 9 x 2/50 = 36 % after 2 s and 54 %
// after 3 s.
func TestKoordinatorNodeState(t *testing.T) {
	for _, c := range []struct {
		cores float64
		after int // seconds
		want  nodeState
	}{{4.4, 10, nodeIdle}, {4.5, 10, nodeCooling}, {4.9, 10, nodeCooling}, {5, 10, nodeOverload}, {9, 2, nodeIdle}, {9, 3, nodeOverload}} {
		w := simtest.NewNode(10, sim.PodSpec{})
		k := NewKoordinator(-1)
		got := k.state(&w.Snapshot)
		if got != nodeUnknown {
			t.Errorf("the first sample says %v", got)
		}
		for i := range 10 + c.after {
			cores := 0.0
			if i >= 10 {
				cores = c.cores
			}
			w.Advance(time.Second, cores)
			got = k.state(&w.Snapshot)
		}
		if got != c.want {
			t.Errorf("%d s at %v cores: state %v, want %v", c.after, c.cores, got, c.want)
		}
	}
}

// The pod uses 4 cores at a limit of 2, so it spends 100 tokens each second. While any are left it
// rises by x1.2, and then it falls by x0.8. A burst period of 0 s leaves none at all.
func TestKoordinatorBurstsAsLongAsTokensLast(t *testing.T) {
	for _, c := range []struct {
		burst  time.Duration
		tokens int64
		want   []cpu.Milli
	}{
		{10 * time.Second, 201, []cpu.Milli{2400, 2880, 2304}},
		{10 * time.Second, 200, []cpu.Milli{2400, 2000, 2000}},
		{0, 0, []cpu.Milli{2000, 2000, 2000}},
	} {
		w := simtest.NewNode(10, sim.PodSpec{Request: 500, Limit: 2000})
		w.Now = time.Minute
		k := NewKoordinator(c.burst)
		k.Decide(&w.Snapshot)
		if got, want := k.pods[0].tokens, k.initial(w.Pods[0].Spec); got != want {
			t.Errorf("begins with %d tokens, want %d", got, want)
		}
		k.pods[0].tokens = c.tokens
		for i, want := range c.want {
			w.Advance(time.Second, 4)
			w.Pods[0].Throttled++
			actions, _ := k.Decide(&w.Snapshot)
			if w.Apply(actions); w.Pods[0].Limit != want {
				t.Errorf("burst %v, %d tokens, after %d s: %v, want %v", c.burst, c.tokens, i+1, w.Pods[0].Limit, want)
			}
		}
	}
}

// With a burst period of 10 s the bucket holds 10 x (300 - 100) = 2000, of which pods begin with 0
// to 1000. A pod at 300 % of its limit for 1 s spends 200, one at 20 % saves 80, one from 60 to 99
// % does neither, and 0.99 s count as none.
func TestKoordinatorTokens(t *testing.T) {
	k := NewKoordinator(10 * time.Second)
	spec := &sim.PodSpec{Name: "a", Request: 500, Limit: 1000}
	least, most := int64(1000), int64(0)
	for i := range 100 {
		got := k.initial(&sim.PodSpec{Name: fmt.Sprint(i)})
		least, most = min(least, got), max(most, got)
	}
	if least < 0 || least > 100 || most < 900 || most >= 1000 {
		t.Errorf("begin with %d to %d tokens, want 0 to 1000", least, most)
	}
	for _, c := range []struct {
		before int64
		used   time.Duration
		past   time.Duration
		want   int64
	}{
		{500, 3 * time.Second, time.Second, 300},
		{500, 200 * time.Millisecond, time.Second, 580},
		{500, 400 * time.Millisecond, 2 * time.Second, 660},
		{500, 590 * time.Millisecond, time.Second, 541},
		{500, 600 * time.Millisecond, time.Second, 500},
		{500, 990 * time.Millisecond, time.Second, 500},
		{500, 1500 * time.Millisecond, time.Second, 450},
		{500, 3 * time.Second, 990 * time.Millisecond, 500},
		{1990, 0, time.Second, 2000},
		{-1990, 3 * time.Second, time.Second, -2000},
	} {
		if got := k.spend(&burstPod{tokens: c.before}, &sim.PodSnapshot{Spec: spec, Usage: c.used}, c.past); got != c.want {
			t.Errorf("%d tokens after %v of CPU in %v: %d, want %d", c.before, c.used, c.past, got, c.want)
		}
	}
	if got := burstQuota(nodeIdle, false, true, 2000, 1000); got != 1600 {
		t.Errorf("without tokens the quota is %v, want 1600m", got)
	}
}
