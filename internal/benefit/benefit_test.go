package benefit

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/record"
	"github.com/mbcas/mbcas/internal/replay"
	"github.com/mbcas/mbcas/internal/round"
	"github.com/mbcas/mbcas/market"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func everything(record.Name) bool { return true }

// TestSum: each figure is added, and subtracted again.
func TestSum(t *testing.T) {
	filled := func(factor int64) (f Figures) {
		v := reflect.ValueOf(&f).Elem()
		for i := range v.NumField() {
			v.Field(i).SetInt(factor * int64(i+1))
		}
		return f
	}
	sum := filled(2)
	if sum.Add(filled(3)); sum != filled(5) {
		t.Errorf("the sum is %+v, want %+v", sum, filled(5))
	}
	if sum.Sub(filled(4)); sum != filled(1) {
		t.Errorf("the rest is %+v, want %+v", sum, filled(1))
	}
}

// podOf is a pod of one container with a declared limit of 500m.
func podOf(name string, limit, published cpu.Milli) replay.Pod {
	p := replay.Pod{Name: record.Name{Namespace: "shop", Name: name}}
	p.UID = name
	p.Containers = []demand.Container{{Name: "app", ID: name, Declared: 500, Limit: limit}}
	if published > 0 {
		p.Published = round.Published{At: noon, Limits: map[string]cpu.Milli{"app": published}}
	}
	return p
}

// frame is a round in which each pod has used 0.8 cores since noon, and was throttled in 40 % of its periods.
func frame(second int, node round.NodeDecision, pods []replay.Pod, decisions ...round.Decision) *replay.Frame {
	at, cfg := noon.Add(time.Duration(second)*time.Second), round.DefaultConfig()
	cfg.LongestGap = 5 * time.Second
	in := round.Input{Now: at, Sample: kernel.Sample{Node: kernel.NodeSample{At: at}}}
	for _, p := range pods {
		in.Sample.Pods = append(in.Sample.Pods, kernel.PodSample{Pod: p.UID, Containers: []kernel.Group{{
			ID: p.UID, Found: true, At: at,
			Stat: kernel.Stat{Usage: time.Duration(second) * 800 * time.Millisecond, Periods: uint64(10 * second), Throttled: uint64(4 * second)},
		}}})
	}
	return &replay.Frame{
		Event: &record.Event{Round: &in}, Config: &cfg, Input: &in, Pods: pods,
		Output: round.Output{Node: node, Decisions: decisions},
	}
}

// TestFigures: a pod with a declared limit of 0.5 cores uses 0.8, once while CPU is idle and twice while it is scarce; a round
// that follows too late counts nothing, and a look counts what it publishes.
func TestFigures(t *testing.T) {
	idle, busy := round.NodeDecision{Supply: 3400, Usage: 3230, UsageKnown: true}, round.NodeDecision{Supply: 3400, Usage: 3301, UsageKnown: true, Price: 1}
	c := NewCounter(everything)
	look := frame(2, busy, []replay.Pod{podOf("web", 800, 0)}, round.Decision{Limit: 900, Publish: true})
	look.Event = &record.Event{Look: &record.Look{}}
	for _, f := range []*replay.Frame{
		frame(0, idle, []replay.Pod{podOf("web", 800, 0)}),
		frame(1, idle, []replay.Pod{podOf("web", 800, 0)}, round.Decision{Demand: 850, Limit: 900}),
		frame(2, busy, []replay.Pod{podOf("web", 900, 900)}, round.Decision{Demand: 1100, Limit: 700, Bound: market.ByPrice, Publish: true}),
		look, look, // the second time it is not published yet
		frame(3, busy, []replay.Pod{podOf("web", 900, 700)}, round.Decision{Demand: 1100, Limit: 400, Bound: market.ByFloor}),
		frame(60, busy, []replay.Pod{podOf("web", 900, 0)}, round.Decision{Demand: 2000, Limit: 900}),
	} {
		c.Add(f)
	}
	const ms = time.Millisecond
	want := Totals{
		Covered: 3 * time.Second, Scarce: 2 * time.Second,
		Pods: []Pod{{Name: record.Name{Namespace: "shop", Name: "web"}, Figures: Figures{
			Managed: 3 * time.Second, ThrottledIdle: 400 * ms, ThrottledScarce: 800 * ms, BeyondDeclared: 900 * ms,
			Withheld: 50*ms + 200*ms + 200*ms, Avoided: 1500 * ms, // 0.5 cores, which it always exceeded
			BelowDeclared: 1 * time.Second, Freed: 100 * ms,
			Raises: 1, Lowers: 1, Changes: 1,
		}}},
	}
	want.Sum = want.Pods[0].Figures
	got := c.Totals()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, want := range []string{
		"In 3s with counters, CPU had a price for 2s.", "throttled for 400ms while CPU was idle, and for 800ms",
		"used 900ms of CPU time beyond their declared limits, and were denied 500ms", "shop/web: throttled for 1.2s (400ms while CPU was idle), 900ms beyond",
		" withheld, 1 change of the limit\n",
	} {
		if !strings.Contains(got.Text(), want) {
			t.Errorf("no %q in:\n%s", want, got.Text())
		}
	}
}

// TestUnknownUsage: where the usage of the node is not readable, no CPU counts as idle.
func TestUnknownUsage(t *testing.T) {
	c := NewCounter(everything)
	for second := range 3 {
		c.Add(frame(second, round.NodeDecision{Supply: 3000}, []replay.Pod{podOf("web", 2000, 0)}, round.Decision{Demand: 1700, Limit: 4000}))
	}
	if f := c.Totals().Sum; f.ThrottledIdle != 0 || f.ThrottledScarce != 800*time.Millisecond {
		t.Errorf("%+v", f)
	}
}

// TestCloneGoesOnByItself: what a clone counts changes nothing of the counter, nor of what that counts later.
func TestCloneGoesOnByItself(t *testing.T) {
	node := round.NodeDecision{Supply: 3000, Usage: 1000, UsageKnown: true}
	add := func(c *Counter, second int) { // 0.8 cores, 0.3 more than the declared limit, so that work would wait for it
		c.Add(frame(second, node, []replay.Pod{podOf("web", 2000, 0)}, round.Decision{Demand: 800, Limit: 2000}))
	}
	one, cloned := NewCounter(everything), NewCounter(everything)
	for second := range 4 {
		add(one, second)
		add(cloned, second)
		clone := cloned.Clone()
		for later := second + 1; later < second+4; later++ {
			add(clone, later)
		}
	}
	if diff := cmp.Diff(one.Totals(), cloned.Totals()); diff != "" {
		t.Errorf("totals (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(one.pods["web"].queues, cloned.pods["web"].queues); diff != "" {
		t.Errorf("queues (-want +got):\n%s", diff)
	}
}
