package round

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/sense"
)

// drawPods draws up to 8 pods, some of them unmanaged, with demands of at most most in total.
func drawPods(t *rapid.T, total cpu.Milli) []*fakePod {
	n := rapid.IntRange(1, 8).Draw(t, "pods")
	pods := make([]*fakePod, n)
	for i := range pods {
		request := cpu.Milli(rapid.IntRange(0, 60).Draw(t, "request")) * 10
		pods[i] = &fakePod{
			name: fmt.Sprintf("p%d", i), request: request,
			declared:  request + cpu.Milli(rapid.IntRange(1, 100).Draw(t, "room"))*10,
			demand:    cpu.Milli(rapid.Int64Range(0, int64(total)).Draw(t, "want")),
			unmanaged: rapid.IntRange(0, 4).Draw(t, "unmanaged") == 0,
		}
		total -= min(total, pods[i].demand)
	}
	return pods
}

func TestIdleNodeThrottlesNoPod(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := DefaultConfig()
		// The demand of the pods, even with that of a saturating pod doubled, leaves the reserve idle.
		w := newWorld(drawPods(t, cpu.FromCores(4*(1-cfg.Reserve)*(1-cfg.ReleaseBand)/2))...)
		w.run(cfg.Demand.WarmUpSamples + 5) // a limit rises fourfold a round at most: from 10m to 3420m in five
		for range 60 {
			out := w.tick()
			for _, d := range out.Decisions {
				p := w.pod(d.UID)
				left := min(d.Ceiling, out.Node.Supply-out.Node.Demand+d.Demand, 4*p.demand)
				if p.demand > d.Limit/2 && d.Limit+d.Limit/4+cpu.Quantum < left || d.Limit < p.demand || d.Limit < p.declared || d.Price != 0 {
					t.Fatalf("%s, which declares %v and demands %v, has %v of %v at price %v on an idle node",
						d.UID, p.declared, p.demand, d.Limit, d.Ceiling, d.Price)
				}
			}
		}
	})
}

func TestStaleNeverDecides(t *testing.T) {
	a := &fakePod{name: "a", request: 100, declared: 500, demand: 400}
	b := &fakePod{name: "b", request: 100, declared: 500, demand: 400}
	w := newWorld(a, b)
	if out := w.run(20); len(out.Decisions) != 2 {
		t.Fatalf("%d decisions for two warm pods", len(out.Decisions))
	}

	a.absent = true
	out := w.tick()
	if _, ok := decision(out, "a"); ok || out.Skipped.Stale != 1 {
		t.Errorf("a pod without a cgroup got a decision; skipped %+v", out.Skipped)
	}
	if _, ok := decision(out, "b"); !ok {
		t.Error("the other pod has no decision")
	}

	a.absent = false
	w.run(20)
	a.stat = kernel.Stat{} // the container restarted in place
	if _, ok := decision(w.tick(), "a"); ok {
		t.Error("a pod whose counters went back got a decision")
	}

	w.run(20)
	w.now = w.now.Add(10 * time.Second) // the agent was stopped for 10 s
	if out := w.tick(); len(out.Decisions) != 0 || out.Skipped.Stale != 2 {
		t.Errorf("after a gap: %d decisions, skipped %+v", len(out.Decisions), out.Skipped)
	}
}

func TestNewPodsAreOnlyRaised(t *testing.T) {
	batch := &fakePod{name: "batch", request: 500, declared: 4000, demand: 8000}
	w := priceAlone(batch)
	for i := range w.cfg.Demand.WarmUpSamples {
		if out := w.tick(); len(out.Decisions) != 0 || out.Skipped.WarmingUp != 1 || out.Node.Price != 0 ||
			w.state.price != (price{}) {
			t.Fatalf("tick %d: %d decisions, skipped %+v, price %+v: want no decision, and no state", i, len(out.Decisions),
				out.Skipped, w.state.price)
		}
	}
	if out := w.tick(); len(out.Decisions) != 1 {
		t.Fatalf("no decision after %d samples", w.cfg.Demand.WarmUpSamples)
	}
	w.run(30)

	small := &fakePod{name: "small", request: 500, declared: 600, demand: 2000} // less than its share
	large := &fakePod{name: "large", request: 100, declared: 3900, demand: 4000}
	w.join(small, large)
	if out := w.tick(); out.Skipped.WarmingUp != 2 {
		t.Errorf("pods without rates: skipped %+v", out.Skipped)
	}
	for range w.cfg.Demand.WarmUpSamples - 1 {
		out := w.tick()
		if d, ok := decision(out, "large"); !ok || d.Limit < large.declared {
			t.Fatalf("a new pod gets %v (decided: %v) instead of its %v", d.Limit, ok, large.declared)
		}
	}
	if small.limit <= small.declared {
		t.Errorf("a new pod that is throttled has %v", small.limit)
	}
	out := w.tick()
	if d, ok := decision(out, "large"); !ok || d.Limit >= large.declared {
		t.Errorf("a pod with enough samples keeps %v although its share is lower", d.Limit)
	}

	small.id, small.stat = "small-2", kernel.Stat{} // a new container
	if out := w.tick(); out.Skipped.WarmingUp != 1 {
		t.Errorf("a restarted container has a decision without rates: %+v", out.Skipped)
	}
}

func TestUnenforcedIsUnmanaged(t *testing.T) {
	period := 100 * time.Millisecond
	a := &fakePod{name: "a", request: 100, declared: 500, demand: 400, quota: kernel.Quota{Period: period}}
	b := &fakePod{name: "b", request: 100, declared: 500, demand: 400, quota: kernel.Quota{Limit: period / 2, Period: period}}
	w := newWorld(a, b)
	out := w.run(20)
	if _, ok := decision(out, "a"); ok || out.Skipped != (Skipped{Unenforced: 1}) || out.Node.Unmanaged != 1 {
		t.Errorf("a pod without a quota has a decision, or is not counted: skipped %+v, %d unmanaged", out.Skipped,
			out.Node.Unmanaged)
	}
	if _, ok := decision(out, "b"); !ok {
		t.Error("the pod with a quota has no decision")
	}

	pod := demand.Pod{Containers: []demand.Container{{ID: "1", Declared: 500, Limit: 500}}}
	bare := sense.Rate{Validity: sense.Valid, QuotaKnown: true}
	known := map[string]demand.Estimate{"1": {Samples: 99, Mean: 3, Latest: 3}}
	for name, c := range map[string]struct {
		container, own sense.Rate
		want           readiness
	}{
		"quotas are off":            {bare, bare, unenforced},
		"the whole pod has a quota": {bare, sense.Rate{Validity: sense.Valid, QuotaKnown: true, Quota: 500}, ready},
		"quotas are unknown":        {sense.Rate{Validity: sense.Valid}, bare, ready},
	} {
		r := sense.PodRates{Own: c.own, Containers: []sense.Rate{c.container}}
		if got := readinessOf(DefaultConfig().Demand, pod, r, known); got != c.want {
			t.Errorf("%s: readiness %d, want %d", name, got, c.want)
		}
	}
	book, _ := bidders(DefaultConfig().Demand, []PodInput{{Pod: pod}},
		[]sense.PodRates{{Own: bare, Containers: []sense.Rate{bare}}}, known, true)
	if len(book) != 1 || book[0].bid.Demand != 3000 {
		t.Errorf("%+v: want all 3000m that it can use, whatever its limit is", book)
	}
}

func TestUnmanagedPodsCount(t *testing.T) {
	service := &fakePod{name: "service", request: 200, declared: 1000, demand: 3000}
	w := newWorld(service)
	alone := w.run(40)
	if alone.Node.Price != 0 {
		t.Fatalf("alone on the node: price %v", alone.Node.Price)
	}
	outside := &fakePod{name: "outside", request: 2000, demand: 2000, unmanaged: true, id: "outside-1", budget: 2000}
	w.pods = append(w.pods, outside)
	contended := w.run(40)
	if contended.Node.Unmanaged != 1 || contended.Node.Price == 0 {
		t.Errorf("beside an unmanaged pod that uses half: %+v", contended.Node)
	}
	if _, ok := decision(contended, "outside"); ok {
		t.Error("the unmanaged pod has a decision")
	}
	if service.limit > 2000 {
		t.Errorf("the service has %v: want no more than the unmanaged pod leaves", service.limit)
	}
}

func TestSameInputSameOutput(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pods := drawPods(t, 16_000)
		twin := make([]*fakePod, len(pods))
		for i, p := range pods {
			c := *p
			twin[i] = &c
		}
		a, b := newWorld(pods...), newWorld(twin...)
		for range 30 {
			if x, y := fmt.Sprintf("%+v", a.tick()), fmt.Sprintf("%+v", b.tick()); x != y {
				t.Fatalf("the same input gave\n%s\nand\n%s", x, y)
			}
		}
	})
}

func TestConfigReportsEverything(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Error(err)
	}
	bad := DefaultConfig()
	bad.Reserve, bad.PriceBand, bad.LongestGap, bad.FallDelay, bad.Onset, bad.CapBand, bad.EarlyFall = 1, math.NaN(), 0, -1, 0, 1, -1
	if err := bad.Validate(); err == nil || strings.Count(err.Error(), "\n") != 6 {
		t.Errorf("Validate = %v, want seven faults", err)
	}
}
