package round

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/sense"
	"github.com/mbcas/mbcas/internal/split"
	"github.com/mbcas/mbcas/market"
)

func TestOnlyCappedPodsAreLowered(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(drawPods(t, 16_000)...)
		for range rapid.IntRange(1, 6).Draw(t, "phases") {
			for _, p := range w.pods {
				p.demand = cpu.Milli(rapid.Int64Range(0, 4000).Draw(t, "want"))
			}
			for range 20 {
				before := map[string]cpu.Milli{}
				for _, p := range w.pods {
					before[p.name] = p.limit
				}
				for _, d := range w.tick().Decisions {
					if d.Limit < before[d.UID] && d.Bound != market.ByPrice && d.Bound != market.ByFloor {
						t.Fatalf("%s lowered from %v to %v, bound by %v at price %v", d.UID, before[d.UID], d.Limit, d.Bound, d.Price)
					}
					if d.Limit < d.Floor || d.Limit > d.Ceiling {
						t.Fatalf("%s has %v, outside %v to %v", d.UID, d.Limit, d.Floor, d.Ceiling)
					}
				}
			}
		}
	})
}

func TestSplitFollowsDemand(t *testing.T) {
	p := demand.Pod{UID: "p", Containers: []demand.Container{
		demand.Container{Name: "app", ID: "1", Request: 100, Declared: 500, Limit: 500}.Within(0, 4000),
		{Name: "free", ID: "2", Request: 100},
		demand.Container{Name: "proxy", ID: "3", Request: 50, Declared: 200, Limit: 200}.Within(0, 4000),
	}}
	known := map[string]demand.Estimate{"1": {Mean: 0.9}, "3": {Mean: 0.1}}
	total, parts := named(p, split.Divide(nil, 1000, State{estimates: known}.parts(p, nil, 0)))
	if total != 1000 || len(parts) != 2 || parts[0] != (ContainerLimit{"app", 900}) ||
		parts[1] != (ContainerLimit{"proxy", 100}) {
		t.Errorf("split = %v %v, want 900m for app and 100m for proxy", total, parts)
	}
	total, parts = named(p, split.Divide(nil, 1000, State{estimates: known}.parts(p, nil, 1)))
	if total != 1000 || parts[1] != (ContainerLimit{"proxy", 200}) {
		t.Errorf("split = %v %v, want no container below its declared limit", total, parts)
	}
	rapid.Check(t, func(t *rapid.T) {
		total := cpu.Milli(rapid.Int64Range(220, 8000).Draw(t, "total"))
		known := map[string]demand.Estimate{
			"1": {Mean: rapid.Float64Range(0, 8).Draw(t, "app")}, "3": {Mean: rapid.Float64Range(0, 8).Draw(t, "proxy")},
		}
		got, parts := named(p, split.Divide(nil, total, State{estimates: known}.parts(p, nil, 0)))
		if sum := parts[0].Limit + parts[1].Limit; sum != got || got > total || total-got >= cpu.Quantum && got < 8000 {
			t.Fatalf("split of %v = %v %v", total, got, parts)
		}
		for i, floor := range []cpu.Milli{110, 100} {
			if parts[i].Limit < floor || parts[i].Limit > 4000 {
				t.Fatalf("part %v is outside %v to 4000m", parts[i], floor)
			}
		}
	})
}

// decidePod decides about one pod at a price. The estimates are those of its containers, by ID.
func decidePod(
	t testing.TB, pod PodInput, rates sense.PodRates, estimates map[string]demand.Estimate, p market.Price,
) (Decision, []bidder) {
	t.Helper()
	pods, all := []PodInput{pod}, []sense.PodRates{rates}
	book, _ := bidders(DefaultConfig().Demand, pods, all, estimates, true)
	ds := decide(DefaultConfig(), Input{Now: epoch, Pods: pods}, all, book,
		State{estimates: estimates, price: price{inForce: p}})
	if len(ds) != 1 {
		t.Fatalf("%d decisions for one pod", len(ds))
	}
	return ds[0], book
}

// The usage of an unlimited container is not counted for the limits of the others.
func TestFiguresAreOfLimitedContainers(t *testing.T) {
	pod := PodInput{Pod: demand.Pod{UID: "p", Budget: 100, Containers: []demand.Container{
		demand.Container{Name: "app", ID: "1", Request: 100, Declared: 500, Limit: 500}.Within(0, 4000),
		{Name: "free", ID: "2"},
	}}}
	rates := sense.PodRates{Containers: []sense.Rate{
		{Validity: sense.Valid, Elapsed: time.Second, Usage: 200},
		{Validity: sense.Valid, Elapsed: time.Second, Usage: 2000},
	}}
	known := map[string]demand.Estimate{
		"1": {Samples: 99, Mean: 0.2, Latest: 0.2, Pressure: sense.Ratio{Known: true, Value: 0.1}},
		"2": {Samples: 99, Mean: 2, Latest: 2, Pressure: sense.Ratio{Known: true, Value: 0.9}},
	}
	d, book := decidePod(t, pod, rates, known, 0)
	if d.Demand != 200 || d.Usage != 200 || d.Pressure.Value != 0.1 {
		t.Errorf("%+v: want demand, usage and pressure of the limited container", d)
	}
	if len(book) != 2 || book[1].bid.Demand != 2000 {
		t.Errorf("%+v: want the other as unmanaged", book)
	}
}

func TestUncappedPodsAreRaised(t *testing.T) {
	batch := &fakePod{name: "batch", request: 500, declared: 4000, demand: 8000}
	service := &fakePod{name: "service", request: 500, declared: 1000, demand: 300}
	w := priceAlone(batch, service)
	w.run(30)
	service.demand = 800
	out := w.run(3)
	if d, ok := decision(out, "service"); !ok || d.Limit != d.Ceiling || out.Node.Price == 0 {
		t.Errorf("price %v: a service that uses 800m with a share of half of the node gets %v, want its ceiling %v",
			out.Node.Price, d.Limit, d.Ceiling)
	}
	if d, _ := decision(out, "batch"); d.Bound != market.ByPrice || d.Limit >= 4000 {
		t.Errorf("the batch pod gets %v, bound by %v", d.Limit, d.Bound)
	}
}

// TestRaisesLeaveOthersTheirDemand: while CPU has no price, no pod is raised beyond what the demands of the others leave
// of the supply, or beyond its share. So a pod that begins to saturate takes nothing from them before its demand is known.
func TestRaisesLeaveOthersTheirDemand(t *testing.T) {
	raised, belowCeiling := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(drawPods(rt, 1000)...)
		w.run(30)
		busy := w.pods[rapid.IntRange(0, len(w.pods)-1).Draw(rt, "busy")]
		busy.demand, busy.unmanaged = 8000, false
		for range 3 {
			before := map[string]cpu.Milli{}
			for _, p := range w.pods {
				before[p.name] = max(p.limit, p.published.Limits["c"])
			}
			var budgets market.Budget
			for _, p := range w.pods {
				budgets += p.budget
			}
			out := w.tick()
			for _, d := range out.Decisions {
				if d.Price > 0 || out.Node.Released || d.Limit <= before[d.UID] {
					continue
				}
				raised++
				left := out.Node.Supply - out.Node.Demand + d.Demand
				share := cpu.FromCores(out.Node.Supply.Cores() * float64(d.Budget) / float64(budgets))
				if d.Limit > max(left, share, d.Floor) {
					rt.Errorf("%s is raised from %v to %v; the others leave %v, and its share is %v", d.UID, before[d.UID], d.Limit, left, share)
				}
				if d.Limit < d.Ceiling {
					belowCeiling++
				}
			}
		}
	})
	if raised < 50 || belowCeiling < raised/2 {
		t.Errorf("%d increases, %d of them to less than the ceiling, so this test proves little", raised, belowCeiling)
	}
}

// TestSaturatingPodsAreNotRaisedUnderALowPrice: a pod that begins to saturate under a price that caps nothing gets no
// more than without one.
func TestSaturatingPodsAreNotRaisedUnderALowPrice(t *testing.T) {
	job := &fakePod{name: "job", request: 1000, declared: 2500, demand: 5}
	service := &fakePod{name: "service", request: 1000, declared: 4000, demand: 1600}
	w := newWorld(job, service)
	w.run(30)
	w.state.price.inForce = 0.01
	w.run(1)
	job.demand = 8000
	for i := range 10 {
		if w.pass(w.cfg.LookInterval); i%5 == 4 {
			w.round()
		} else {
			w.look()
		}
		if w.state.price.inForce == 0 || job.limit > 2500 {
			t.Fatalf("look %d, price %v: the job is raised to %v, the others leave 2000m", i, w.state.price.inForce, job.limit)
		}
	}
}

// TestNeedIsJudgedByUsage: demand that waits for a CPU, and throttling of the past, need no higher limit.
func TestNeedIsJudgedByUsage(t *testing.T) {
	for name, c := range map[string]struct {
		b     bidder
		needs bool
	}{
		"idle, and waits for a CPU":        {bidder{usage: 5, latestDemand: 700}, false},
		"idle, throttled in the past":      {bidder{usage: 5, latestDemand: 251, throttleRatio: 0.1}, false},
		"busy, throttled in the past":      {bidder{usage: 200, latestDemand: 200, throttleRatio: 0.1}, true},
		"busy, never throttled":            {bidder{usage: 200, latestDemand: 200}, false},
		"throttled with a low usage":       {bidder{usage: 50, throttleRatio: 0.1, latestThrottleRatio: 0.2}, true},
		"stalled, so no CPU would help it": {bidder{usage: 50, latestThrottleRatio: 1}, false},
		"uses most of it":                  {bidder{usage: 700, latestDemand: 700}, true},
	} {
		if c.b.limit = 1200; c.b.needsMore() != c.needs {
			t.Errorf("%s: needs more: %v, want %v", name, !c.needs, c.needs)
		}
	}
}

// TestPastThrottlingRaisesNothing: a pod that was throttled until it became idle is not raised above its declared limit.
func TestPastThrottlingRaisesNothing(t *testing.T) {
	w, _, job := contended()
	limit := job.limit
	job.demand = 5
	if w.run(60); job.limit < limit || job.limit > job.declared || w.state.price.inForce != 0 {
		t.Errorf("price %v: the limit of an idle job went from %v to %v", w.state.price.inForce, limit, job.limit)
	}
}

// TestCapBand: a budget that buys 1000m, with a band of 0.3.
func TestCapBand(t *testing.T) {
	cfg := DefaultConfig()
	for _, c := range []struct {
		demand, published cpu.Milli
		want              market.Bound
	}{
		{900, 4000, market.ByNothing},
		{1290, 4000, market.ByNothing}, // above, but not clearly
		{1310, 4000, market.ByPrice},
		{1290, 1000, market.ByPrice}, // it is capped already
		{900, 1000, market.ByNothing},
		{1290, 0, market.ByPrice}, // nothing was published
	} {
		bid := market.Bid{Budget: 500, Demand: c.demand, Floor: 100, Ceiling: 4000}
		e := bidder{managed: true, published: c.published, bid: bid}
		if got := e.bound(cfg, 0.5); got != c.want {
			t.Errorf("demand %v, published %v: bound by %v, want %v", c.demand, c.published, got, c.want)
		}
	}
}

// TestJustAboveItsShareIsNotCapped: beside a saturating pod of the same budget the share of a
// service is half of the supply of 3600m.
func TestJustAboveItsShareIsNotCapped(t *testing.T) {
	batch := &fakePod{name: "batch", request: 500, declared: 4000, demand: 8000}
	service := &fakePod{name: "service", request: 500, declared: 4000, demand: 1700}
	w := priceAlone(batch, service)
	w.cfg.PriceBand = 0.01 // the price follows the demands at once
	w.cfg.CapBand = 0.1
	for _, step := range []struct {
		want   cpu.Milli
		capped bool
	}{
		{1700, false},
		{1900, false}, // less than a tenth above its share
		{2200, true},
		{1900, true}, // throttled at its limit, its estimate is as high as before
		{1700, false},
	} {
		service.demand = step.want
		w.run(60)
		if service.limit < 2000 != step.capped {
			t.Errorf("with a demand of %v the limit is %v", step.want, service.limit)
		}
	}
}

// TestWhatAPodKeepsMayVary: a pod that demands less than it keeps is not lowered, one that demands more is.
func TestWhatAPodKeepsMayVary(t *testing.T) {
	for _, c := range []struct{ demand, keeps, want cpu.Milli }{
		{380, 1490, 1700}, {380, 1140, 1700}, {380, 1900, 1900}, {1600, 1490, 1490},
	} {
		b := bidder{limit: 1700, published: 1700, usage: c.demand, minLimit: c.keeps, keptLimit: c.keeps, bid: market.Bid{Budget: 100, Demand: c.demand, Floor: 100, Ceiling: 4000}}
		s := State{price: price{inForce: 0.5, binds: true}}
		if got := s.target(DefaultConfig(), &b, PodInput{}, b.bound(DefaultConfig(), 0.5)); got != c.want {
			t.Errorf("demand %v, keeps %v: the limit of 1700m becomes %v, want %v", c.demand, c.keeps, got, c.want)
		}
	}
}
