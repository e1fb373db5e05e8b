package benefit

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/disagreement"
	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/lab/mbcas"
	"github.com/mbcas/mbcas/internal/record"
	"github.com/mbcas/mbcas/internal/replay"
	"github.com/mbcas/mbcas/internal/round"
	"github.com/mbcas/mbcas/internal/testing/recordings"
	"github.com/mbcas/mbcas/market"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func everything(record.Name) bool { return true }

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
			Withheld: 50*ms + 200*ms + 200*ms, Recoverable: 35_555_555, // 0.4 of 0.1 cores, and eight ninths of that
			Capped: 1 * time.Second, Moved: 100 * ms,
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
	} {
		if !strings.Contains(got.Text(), want) {
			t.Errorf("no %q in:\n%s", want, got.Text())
		}
	}
}

// TestRecoverableFitsIdleCPU: pods that together could use more than what is idle share it.
func TestRecoverableFitsIdleCPU(t *testing.T) {
	c := NewCounter(everything)
	node := round.NodeDecision{Supply: 3000, Usage: 2600, UsageKnown: true} // 0.4 cores are idle
	pods := []replay.Pod{podOf("a", 2000, 0), podOf("b", 2000, 0)}
	for second := range 3 {
		c.Add(frame(second, node, pods, round.Decision{Pod: 0, Demand: 1700, Limit: 4000}, round.Decision{Pod: 1, Demand: 1400, Limit: 4000}))
	}
	a, b := c.pods["a"].Recoverable, c.pods["b"].Recoverable
	if a.Round(time.Millisecond) != 400*time.Millisecond || b.Round(time.Millisecond) != 400*time.Millisecond {
		t.Errorf("%v and %v are recoverable, want 400 ms each: 0.4 cores are idle for two seconds", a, b)
	}
}

// TestUnknownUsage: where the usage of the node is not readable, no CPU counts as idle.
func TestUnknownUsage(t *testing.T) {
	c := NewCounter(everything)
	for second := range 3 {
		c.Add(frame(second, round.NodeDecision{Supply: 3000}, []replay.Pod{podOf("web", 2000, 0)}, round.Decision{Demand: 1700, Limit: 4000}))
	}
	if f := c.Totals().Sum; f.ThrottledIdle != 0 || f.Recoverable != 0 || f.ThrottledScarce != 800*time.Millisecond {
		t.Errorf("%+v", f)
	}
}

// played are the figures of a scenario with limits applied, or recommended only.
func played(t *testing.T, name string, recommend, priceAlone bool) Totals {
	t.Helper()
	cfg := mbcas.DefaultConfig()
	if cfg.Recommend = recommend; priceAlone {
		cfg.Round.Disagreement = disagreement.Config{}
	}
	totals, err := Of(recordings.Played(t, name, cfg, 0), everything)
	if err != nil {
		t.Fatal(err)
	}
	return totals
}

// TestEstimateIsNear: the estimate from recommended limits is near the CPU time that the same load uses beyond its declared
// limits when they are applied: where a burst of start-up or a service that is overloaded is throttled. In bursts that exceed
// the limit by little it is several times too high, as in uncontended-bursts and noisy: the counters show that a pod was
// throttled, and not by how much it would have used more. Where the CPU comes from hogs that keep most of what declared
// limits give them it is 0, as in requests-that-tell: only the price alone frees some of it.
func TestEstimateIsNear(t *testing.T) {
	for name, priceAlone := range map[string]bool{"startup-burst": false, "step-1-to-4": false, "ramp": false, "requests-that-tell": true} {
		recommended, enforced := played(t, name, true, priceAlone), played(t, name, false, priceAlone)
		ratio := recommended.Sum.Recoverable.Seconds() / enforced.Sum.BeyondDeclared.Seconds()
		if ratio < 0.75 || ratio > 1.25 || recommended.Sum.Changes > 0 || recommended.Sum.BeyondDeclared > enforced.Sum.BeyondDeclared/10 {
			t.Errorf("%s: %v is estimated, and then %v used, %.2f times; %d changes while recommending", name, recommended.Sum.Recoverable,
				enforced.Sum.BeyondDeclared, ratio, recommended.Sum.Changes)
		}
	}
}
