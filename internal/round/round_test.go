package round

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/sense"
	"github.com/mbcas/mbcas/market"
)

// tenants draws up to 8 pods, some of them outside of the market, whose wants sum to at most most.
func tenants(t *rapid.T, most cpu.Milli) []*tenant {
	n := rapid.IntRange(1, 8).Draw(t, "pods")
	pods := make([]*tenant, n)
	for i := range pods {
		request := cpu.Milli(rapid.IntRange(0, 60).Draw(t, "request")) * 10
		pods[i] = &tenant{
			name: fmt.Sprintf("p%d", i), request: request,
			declared: request + cpu.Milli(rapid.IntRange(1, 100).Draw(t, "room"))*10,
			want:     cpu.Milli(rapid.Int64Range(0, int64(most)).Draw(t, "want")),
			shadow:   rapid.IntRange(0, 4).Draw(t, "shadow") == 0,
		}
		most -= min(most, pods[i].want)
	}
	return pods
}

func TestIdleNodeThrottlesNobody(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := DefaultConfig()
		// What the pods want, even with the demand of a saturated one overrated twice, leaves the reserve idle.
		w := newWorld(tenants(t, cpu.FromCores(4*(1-cfg.Reserve)*(1-cfg.ReleaseBand)/2))...)
		w.run(cfg.Demand.WarmUpSamples + 3)
		for range 60 {
			out := w.tick()
			for _, d := range out.Decisions {
				if d.Limit != d.Ceiling || d.Price != 0 {
					t.Fatalf("%s has %v of %v at price %v on an idle node", d.UID, d.Limit, d.Ceiling, d.Price)
				}
			}
		}
	})
}

func TestOnlyTheBoundAreLowered(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(tenants(t, 16_000)...)
		for range rapid.IntRange(1, 6).Draw(t, "phases") {
			for _, p := range w.pods {
				p.want = cpu.Milli(rapid.Int64Range(0, 4000).Draw(t, "want"))
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

func TestReleasesWithContention(t *testing.T) {
	contended := func() (*world, *tenant, *tenant) {
		service := &tenant{name: "service", request: 200, declared: 500, want: 300}
		hog := &tenant{name: "hog", request: 200, declared: 4000, want: 8000}
		rival := &tenant{name: "rival", request: 200, declared: 4000, want: 8000}
		w := newWorld(service, hog, rival)
		if out := w.run(60); out.Node.Price == 0 || hog.limit > 2500 || rival.limit > 2500 {
			t.Fatalf("two hogs on four cores hold %v and %v at price %v: want both lowered", hog.limit, rival.limit, out.Node.Price)
		}
		return w, hog, rival
	}
	t.Run("at a tick", func(t *testing.T) {
		w, hog, rival := contended()
		rival.want = 0
		out := w.tick()
		if out.Node.Price != 0 || !out.Node.Released {
			t.Errorf("price %v, released %v, cleared %v", out.Node.Price, out.Node.Released, out.Node.Cleared)
		}
		if hog.limit != w.node.Allocatable {
			t.Errorf("the hog has %v: want its ceiling as soon as CPU lies idle", hog.limit)
		}
	})
	t.Run("a pod deleted", func(t *testing.T) {
		// What is left wants just the supply, so the price would stay within its band for good.
		w, hog, rival := contended()
		w.pods = slices.DeleteFunc(w.pods, func(p *tenant) bool { return p == rival })
		hog.want = 2000
		w.run(3)
		if hog.limit < hog.want {
			t.Errorf("the hog has %v of the %v that it wants, beside idle CPU", hog.limit, hog.want)
		}
	})
	t.Run("between ticks", func(t *testing.T) {
		w, hog, rival := contended()
		before := hog.limit
		rival.stops = 0.2
		w.tick()
		if hog.limit < before*13/10 {
			t.Errorf("the hog went from %v to %v: want it raised by the tick in which its rival stopped", before, hog.limit)
		}
		w.run(3)
		if left := w.node.Allocatable*9/10 - 300; hog.limit < left*9/10 {
			t.Errorf("the hog has %v three ticks later, want about all of the %v that the service leaves", hog.limit, left)
		}
	})
}

func TestScarcityIsSeenAtOnce(t *testing.T) {
	service := &tenant{name: "service", request: 100, budget: demand.Budget(100, 1_000_000), declared: 500, want: 400}
	hog := &tenant{name: "hog", request: 600, declared: 1200}
	w := newWorld(service, hog)
	w.node = Node{Capacity: 2000, Allocatable: 1600}
	w.run(60)
	hog.want = 4000
	if out := w.tick(); out.Node.Price != 0 {
		t.Errorf("one second of a burst has the price %v", out.Node.Price)
	}
	out := w.tick()
	d, _ := decision(out, "hog")
	if out.Node.Price == 0 || d.Bound != market.ByPrice || !d.Publish || d.Limit > 1250 {
		t.Errorf("two seconds into scarcity: price %v, hog %+v: want it held, and at once", out.Node.Price, d)
	}
}

func TestIntervalChangesNothing(t *testing.T) {
	for _, every := range []time.Duration{100 * time.Millisecond, 250 * time.Millisecond, time.Second, 5 * time.Second, 10 * time.Second} {
		// contended is a node with two hogs whose estimates move as fast as said, and what measures how long it takes until something is so.
		contended := func(t *testing.T, rise, fall float64, before time.Duration) (*tenant, func(string, time.Duration, func(Output) bool)) {
			hog := &tenant{name: "hog", request: 200, declared: 4000}
			rival := &tenant{name: "rival", request: 200, declared: 4000}
			w := newWorld(hog, rival)
			w.every, w.cfg.LongestGap = every, 4*every
			w.cfg.Demand.Rise, w.cfg.Demand.Fall, w.cfg.FallDelay = rise, fall, 0
			for range w.cfg.Demand.WarmUpSamples + 5 {
				w.tick()
			}
			hog.want, rival.want = 8000, 8000
			for begin := w.now; w.now.Sub(begin) < before; {
				w.tick()
			}
			return rival, func(what string, want time.Duration, end func(Output) bool) {
				t.Helper()
				want = max(want, every)
				begin := w.now
				for !end(w.tick()) {
					if w.now.Sub(begin) > time.Minute {
						t.Fatalf("%s: not within a minute, want %v", what, want)
					}
				}
				if got := w.now.Sub(begin); got != want {
					t.Errorf("%s after %v, want %v", what, got, want)
				}
			}
		}
		released := func(out Output) bool { return out.Node.Released }
		t.Run(every.String(), func(t *testing.T) {
			_, lasts := contended(t, 1e-6, 1e-6, 0)
			lasts("contention is seen", 2*time.Second, func(out Output) bool { return out.Node.Price > 0 })
			lasts("the last tick counts no more", 10*time.Second, func(out Output) bool { return out.Node.Price == 0 })

			rival, lasts := contended(t, 0.3, 1e-6, time.Minute)
			rival.want = 1100 // a fifth of the supply lies idle
			lasts("idle CPU is given back", 2*time.Second, released)
			rival, lasts = contended(t, 0.3, 1e-6, time.Minute)
			rival.want = 0
			lasts("much idle CPU is given back", time.Second, released)
		})
	}
}

func TestUnreadableIsNotZero(t *testing.T) {
	t.Run("system", func(t *testing.T) {
		w := newWorld(&tenant{name: "a", request: 100, declared: 500, want: 100})
		w.system = 1000 // nothing is kept back for it
		before := w.run(200).Node
		w.noStat = true
		out := w.run(200).Node
		if out.SystemKnown || out.System != before.System || out.Supply != before.Supply {
			t.Errorf("supply %v beside %v of the system, %v beside %v when that cannot be read: want no change, and it told",
				before.Supply, before.System, out.Supply, out.System)
		}
		w.noStat, w.system = false, 0
		if out := w.run(200).Node; !out.SystemKnown || out.System > 10 {
			t.Errorf("readable again: %+v, want the system at rest", out)
		}
	})
	t.Run("system never readable", func(t *testing.T) {
		w := newWorld(&tenant{name: "a", request: 100, declared: 500, want: 100})
		w.system, w.noStat = 1000, true
		if out := w.run(60).Node; out.SystemKnown || out.Supply != w.node.Allocatable*9/10 {
			t.Errorf("%+v: want the whole supply, and it told that the system is left out", out)
		}
	})
	t.Run("pods", func(t *testing.T) {
		hog := &tenant{name: "hog", request: 200, declared: 4000, want: 8000}
		rival := &tenant{name: "rival", request: 200, declared: 4000, want: 8000}
		w := newWorld(hog, rival)
		before := w.run(60).Node
		limit := hog.limit
		w.noPods = true
		if out := w.run(30).Node; before.Price == 0 || out.UsageKnown || out.Price != before.Price || hog.limit != limit {
			t.Errorf("price %v, then %v; limit %v, then %v: want no change while the pods' use cannot be read", before.Price, out.Price, limit, hog.limit)
		}
	})
}

func TestSteadyLoadPublishesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(tenants(t, 16_000)...)
		w.run(240)
		for _, p := range w.pods {
			p.changes = 0
		}
		w.run(300)
		for _, p := range w.pods {
			if p.changes > 2 {
				t.Errorf("the limit of %s changed %d times in five minutes of steady load", p.name, p.changes)
			}
		}
	})
}

func TestStaleNeverDecides(t *testing.T) {
	a := &tenant{name: "a", request: 100, declared: 500, want: 400}
	b := &tenant{name: "b", request: 100, declared: 500, want: 400}
	w := newWorld(a, b)
	if out := w.run(20); len(out.Decisions) != 2 {
		t.Fatalf("%d decisions for two warm pods", len(out.Decisions))
	}

	a.absent = true
	out := w.tick()
	if _, ok := decision(out, "a"); ok || out.Skipped.Stale != 1 {
		t.Errorf("a pod without a cgroup got a decision; held %+v", out.Skipped)
	}
	if _, ok := decision(out, "b"); !ok {
		t.Error("the other pod lost its decision")
	}

	a.absent = false
	w.run(20)
	a.stat = kernel.Stat{} // the container restarted in place
	if _, ok := decision(w.tick(), "a"); ok {
		t.Error("a pod whose counters went back got a decision")
	}

	w.run(20)
	w.now = w.now.Add(10 * time.Second) // the agent was stopped for a while
	if out := w.tick(); len(out.Decisions) != 0 || out.Skipped.Stale != 2 {
		t.Errorf("after a gap: %d decisions, held %+v", len(out.Decisions), out.Skipped)
	}
}

// A pod that cannot be read for a moment has not stopped using CPU.
func TestOneMissedReadingRaisesNobody(t *testing.T) {
	a := &tenant{name: "a", request: 600, declared: 900, want: 8000}
	b := &tenant{name: "b", request: 200, declared: 500, want: 1500}
	w := newWorld(a, b)
	w.run(60)
	before := b.limit
	a.absent = true
	if out := w.tick(); out.Node.Price == 0 || b.limit > before*12/10 {
		t.Errorf("b went from %v to %v at price %v because a could not be read", before, b.limit, out.Node.Price)
	}
}

// An offer that nobody takes up, as in mode recommend, is made once.
func TestOffersStand(t *testing.T) {
	hog := &tenant{name: "hog", request: 500, declared: 4000, want: 8000}
	service := &tenant{name: "service", request: 500, declared: 1000}
	w := newWorld(hog, service)
	w.run(30)
	published := 0
	for i := range 120 {
		service.want = 300 + 400*cpu.Milli(i/10%2)
		out := w.tick()
		service.limit = service.declared
		if d, ok := decision(out, "service"); ok && d.Publish && i > 30 {
			published++
		}
	}
	if published > 4 {
		t.Errorf("%d decisions published in 90 s for a pod whose limit nobody moves", published)
	}
}

func TestNewPodsAreOnlyRaised(t *testing.T) {
	hog := &tenant{name: "hog", request: 500, declared: 4000, want: 8000}
	w := newWorld(hog)
	for i := range w.cfg.Demand.WarmUpSamples {
		if out := w.tick(); len(out.Decisions) != 0 || out.Skipped.WarmingUp != 1 || out.Node.Price != 0 || w.state.price != (price{}) {
			t.Fatalf("tick %d: %d decisions, held %+v, price %+v: want nothing, and nothing kept", i, len(out.Decisions), out.Skipped, w.state.price)
		}
	}
	if out := w.tick(); len(out.Decisions) != 1 {
		t.Fatalf("no decision after %d samples", w.cfg.Demand.WarmUpSamples)
	}
	w.run(30)

	small := &tenant{name: "small", request: 500, declared: 600, want: 2000} // its share is more
	large := &tenant{name: "large", request: 100, declared: 3900, want: 4000}
	w.join(small, large)
	if out := w.tick(); out.Skipped.WarmingUp != 2 {
		t.Errorf("pods without rates: held %+v", out.Skipped)
	}
	for range w.cfg.Demand.WarmUpSamples - 1 {
		out := w.tick()
		if d, ok := decision(out, "large"); !ok || d.Limit < large.declared {
			t.Fatalf("a new pod gets %v (decided: %v) instead of the %v it has", d.Limit, ok, large.declared)
		}
	}
	if small.limit <= small.declared {
		t.Errorf("a new pod that is throttled still has %v", small.limit)
	}
	out := w.tick()
	if d, ok := decision(out, "large"); !ok || d.Limit >= large.declared {
		t.Errorf("a pod that has been watched keeps %v although its share is less", d.Limit)
	}

	small.id, small.stat = "small-2", kernel.Stat{} // a new container
	if out := w.tick(); out.Skipped.WarmingUp != 1 {
		t.Errorf("a restarted container is decided without rates: %+v", out.Skipped)
	}
}

func TestUnenforcedIsLeftAlone(t *testing.T) {
	period := 100 * time.Millisecond
	a := &tenant{name: "a", request: 100, declared: 500, want: 400, quota: kernel.Quota{Period: period}}
	b := &tenant{name: "b", request: 100, declared: 500, want: 400, quota: kernel.Quota{Limit: period / 2, Period: period}}
	w := newWorld(a, b)
	out := w.run(20)
	if _, ok := decision(out, "a"); ok || out.Skipped != (Skipped{Unenforced: 1}) || out.Node.Unmanaged != 1 {
		t.Errorf("a pod without a quota got a decision, or is not told: held %+v, %d shadows", out.Skipped, out.Node.Unmanaged)
	}
	if _, ok := decision(out, "b"); !ok {
		t.Error("the pod with a quota lost its decision")
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
		"quotas are not told":       {sense.Rate{Validity: sense.Valid}, bare, ready},
	} {
		r := sense.PodRates{Own: c.own, Containers: []sense.Rate{c.container}}
		if got := readinessOf(DefaultConfig().Demand, pod, r, known); got != c.want {
			t.Errorf("%s: standing %d, want %d", name, got, c.want)
		}
	}
	book, _ := bidders(DefaultConfig().Demand, []PodInput{{Pod: pod}}, []sense.PodRates{{Own: bare, Containers: []sense.Rate{bare}}}, known, true)
	if len(book) != 1 || book[0].bid.Demand != 3000 {
		t.Errorf("%+v: want all 3000m that it can use, whatever its limit says", book)
	}
}

func TestShadowsCount(t *testing.T) {
	service := &tenant{name: "service", request: 200, declared: 1000, want: 3000}
	w := newWorld(service)
	alone := w.run(40)
	if alone.Node.Price != 0 {
		t.Fatalf("alone on the node: price %v", alone.Node.Price)
	}
	shadow := &tenant{name: "shadow", request: 2000, want: 2000, shadow: true, id: "shadow-1", budget: 2000}
	w.pods = append(w.pods, shadow)
	crowded := w.run(40)
	if crowded.Node.Unmanaged != 1 || crowded.Node.Price == 0 {
		t.Errorf("beside a shadow that uses half: %+v", crowded.Node)
	}
	if _, ok := decision(crowded, "shadow"); ok {
		t.Error("the shadow got a decision")
	}
	if service.limit > 2000 {
		t.Errorf("the service has %v: want no more than the shadow leaves", service.limit)
	}
}

// The price falls on those who want more than their budget buys, whatever their limit was before.
func TestTheImportantKeepTheirLatency(t *testing.T) {
	service := &tenant{name: "service", request: 100, budget: demand.Budget(100, 1_000_000), declared: 500, want: 450}
	hog := &tenant{name: "hog", request: 2000, declared: 4000, want: 8000}
	w := newWorld(service, hog)
	w.run(60)
	if service.limit < service.want {
		t.Errorf("the important service has %v and wants %v", service.limit, service.want)
	}
	if hog.limit >= 3600 {
		t.Errorf("the hog has %v of 4 cores: want it to leave the reserve and the service's part", hog.limit)
	}
}

func TestMemoryPressureShrinksTheSupply(t *testing.T) {
	w := newWorld(&tenant{name: "a", request: 100, declared: 500, want: 100})
	plain := w.tick().Node.Supply
	w.node.Pressures = 1
	if got := w.tick().Node.Supply; plain-got != w.node.Allocatable/10 {
		t.Errorf("supply %v, under pressure %v: want a tenth of the allocatable CPU less", plain, got)
	}
	w.node.Pressures = 0
	w.system = 500 // nothing is kept back for the system
	if got := w.run(200).Node.Supply; got < plain-500 || got > plain-495 {
		t.Errorf("supply %v beside a system that uses 500m: want %v less that", got, plain)
	}
	w.system = 4000
	if got := w.run(200).Node.Supply; got != plain/2 {
		t.Errorf("supply %v beside a system that wants everything: want half of %v", got, plain)
	}
}

func TestSplitFollowsDemand(t *testing.T) {
	p := demand.Pod{UID: "p", Containers: []demand.Container{
		demand.Container{Name: "app", ID: "1", Request: 100, Declared: 500, Limit: 500}.Within(0, 4000),
		{Name: "free", ID: "2", Request: 100},
		demand.Container{Name: "proxy", ID: "3", Request: 50, Declared: 200, Limit: 200}.Within(0, 4000),
	}}
	known := map[string]demand.Estimate{"1": {Mean: 0.9}, "3": {Mean: 0.1}}
	total, parts := split(1000, p, known, false)
	if total != 1000 || len(parts) != 2 || parts[0] != (ContainerLimit{"app", 900}) || parts[1] != (ContainerLimit{"proxy", 100}) {
		t.Errorf("split = %v %v, want 900m for app and 100m for proxy", total, parts)
	}
	rapid.Check(t, func(t *rapid.T) {
		total := cpu.Milli(rapid.Int64Range(220, 8000).Draw(t, "total"))
		known := map[string]demand.Estimate{
			"1": {Mean: rapid.Float64Range(0, 8).Draw(t, "app")}, "3": {Mean: rapid.Float64Range(0, 8).Draw(t, "proxy")},
		}
		got, parts := split(total, p, known, false)
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

func TestDue(t *testing.T) {
	cfg := DefaultConfig()
	was := Published{At: epoch, Limits: map[string]cpu.Milli{"c": 1000}, Demand: 500, Price: 1}
	for _, c := range []struct {
		name   string
		limit  cpu.Milli
		demand cpu.Milli
		age    time.Duration
		want   bool
	}{
		{"a raise goes out at once", 1200, 500, time.Second, true},
		{"a raise within the band does not", 1050, 500, time.Hour, false},
		{"a lower limit waits", 800, 500, 4 * time.Second, false},
		{"and goes out after the interval", 800, 500, 5 * time.Second, true},
		{"changed demand alone waits longer", 1000, 700, cfg.RefreshInterval - 1, false},
		{"and goes out to be seen", 1000, 700, cfg.RefreshInterval, true},
		{"a change of less than a percent of the node does not", 1000, 590, time.Hour, false},
		{"nothing new is not worth a write", 1000, 500, time.Hour, false},
	} {
		d := Decision{Limit: c.limit, Containers: []ContainerLimit{{"c", c.limit}}, Demand: c.demand, Price: 1}
		in := Input{Now: epoch.Add(c.age), Node: Node{Allocatable: 10_000}}
		if got := changeDue(cfg, in.Now, true, was, d) || refreshDue(cfg, in, PodInput{Published: was}, d); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	plenty := Published{At: epoch, Limits: was.Limits, Demand: 500}
	first := Decision{Limit: 800, Containers: []ContainerLimit{{"c", 800}}, Demand: 500, Price: 1}
	if !changeDue(cfg, epoch.Add(time.Second), true, plenty, first) {
		t.Error("the first lowering after a time of plenty waits")
	}
	if changeDue(cfg, epoch.Add(time.Second), false, plenty, first) {
		t.Error("the first lowering at a price that flaps does not wait")
	}
	if !changeDue(cfg, epoch, false, Published{}, Decision{}) {
		t.Error("the first decision is not published")
	}
}

// What one container gets from another of its pod waits as a lowering does, unless it is throttled.
func TestResplitWaits(t *testing.T) {
	cfg := DefaultConfig()
	was := Published{At: epoch, Limits: map[string]cpu.Milli{"app": 700, "proxy": 300}, Demand: 500, Price: 1}
	pod := PodInput{Published: was, Pod: demand.Pod{Containers: []demand.Container{
		{Name: "init", ID: "0"}, {Name: "app", ID: "1", Declared: 500, Limit: 700}, {Name: "proxy", ID: "2", Declared: 500, Limit: 300},
	}}}
	for _, c := range []struct {
		name       string
		app, proxy cpu.Milli
		throttled  [2]float64
		age        time.Duration
		want       bool
	}{
		{"from one to the other waits", 500, 500, [2]float64{}, time.Second, false},
		{"and goes out after the interval", 500, 500, [2]float64{}, cfg.PublishInterval, true},
		{"to a throttled one at once", 500, 500, [2]float64{0, 0.5}, time.Second, true},
		{"from a throttled one not", 500, 500, [2]float64{0.5, 0}, time.Second, false},
		{"what the pod gains goes out at once", 700, 500, [2]float64{}, time.Second, true},
		{"also with a little from the other", 690, 350, [2]float64{}, time.Second, true},
		{"a quantum more for the pod makes no raise of it", 510, 500, [2]float64{}, time.Second, false},
		{"less for the pod neither", 400, 500, [2]float64{}, time.Second, false},
		{"within the band never", 670, 320, [2]float64{0.5, 0.5}, time.Hour, false},
	} {
		d := Decision{Limit: c.app + c.proxy, Containers: []ContainerLimit{{"app", c.app}, {"proxy", c.proxy}}, Demand: 500, Price: 1}
		rates := sense.PodRates{Containers: []sense.Rate{{}, {ThrottleRatio: c.throttled[0]}, {ThrottleRatio: c.throttled[1]}}}
		if got := changeDue(cfg, epoch.Add(c.age), true, was, d) || relievesThrottling(cfg, pod, rates, d); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// A price that comes and goes is not worth a write for each turn.
func TestFlappingPriceIsHeldBack(t *testing.T) {
	hog := &tenant{name: "hog", request: 200, declared: 4000}
	rival := &tenant{name: "rival", request: 200, declared: 4000}
	w := newWorld(hog, rival)
	w.cfg.Demand.Rise, w.cfg.Demand.Fall, w.cfg.FallDelay = 1, 1, 0 // so that it turns with each tick
	w.run(60)
	writes, turns, was := 0, 0, market.Price(0)
	for i := range 120 {
		want := 8000 * cpu.Milli(i%2)
		hog.want, rival.want = want, want
		out := w.tick()
		if (out.Node.Price == 0) != (was == 0) {
			turns++
		}
		was = out.Node.Price
		if d, ok := decision(out, "hog"); ok && d.Publish {
			writes++
		}
	}
	if seconds := w.cfg.PublishInterval.Seconds(); turns < 100 || writes > 2*int(120/seconds)+2 {
		t.Errorf("%d decisions published in 120 s in which the price turned %d times: want at most two in each %v", writes, turns, w.cfg.PublishInterval)
	}
}

// What an unlimited neighbour in the pod uses is not counted against the limit of the others.
func TestFiguresAreOfTheLimited(t *testing.T) {
	pod := PodInput{Pod: demand.Pod{UID: "p", Budget: 100, Containers: []demand.Container{
		demand.Container{Name: "app", ID: "1", Request: 100, Declared: 500, Limit: 500}.Within(0, 4000), {Name: "free", ID: "2"},
	}}}
	rates := sense.PodRates{Containers: []sense.Rate{
		{Validity: sense.Valid, Elapsed: time.Second, Usage: 200, Pressure: 0.1, PressureKnown: true},
		{Validity: sense.Valid, Elapsed: time.Second, Usage: 2000, Pressure: 0.9, PressureKnown: true},
	}}
	known := map[string]demand.Estimate{"1": {Samples: 99, Mean: 0.2, Latest: 0.2}, "2": {Samples: 99, Mean: 2, Latest: 2}}
	book, _ := bidders(DefaultConfig().Demand, []PodInput{pod}, []sense.PodRates{rates}, known, true)
	in := Input{Now: epoch, Pods: []PodInput{pod}}
	ds := decide(DefaultConfig(), in, []sense.PodRates{rates}, book, State{estimates: known})
	if len(ds) != 1 || ds[0].Demand != 200 || ds[0].Usage != 200 || ds[0].Pressure != 0.1 {
		t.Errorf("%+v: want demand, use and pressure of the limited container", ds)
	}
	if len(book) != 2 || book[1].bid.Demand != 2000 {
		t.Errorf("%+v: want the other as a shadow", book)
	}
}

func TestSameInputSameOutput(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pods := tenants(t, 16_000)
		twin := make([]*tenant, len(pods))
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
	bad.Reserve, bad.PriceBand, bad.LongestGap, bad.TrimLimit, bad.Onset, bad.CapBand = 1, math.NaN(), 0, 9, 0, 1
	bad.Credits = Credits{MaxFactor: 0.5}
	if err := bad.Validate(); err == nil || strings.Count(err.Error(), "\n") != 7 {
		t.Errorf("Validate = %v, want eight complaints", err)
	}
}

func TestUnheldAreLifted(t *testing.T) {
	hog := &tenant{name: "hog", request: 500, declared: 4000, want: 8000}
	service := &tenant{name: "service", request: 500, declared: 1000, want: 300}
	w := newWorld(hog, service)
	w.run(30)
	service.want = 800
	out := w.run(3)
	if d, ok := decision(out, "service"); !ok || d.Limit != d.Ceiling || out.Node.Price == 0 {
		t.Errorf("price %v: a service that uses 800m and may have half of the node gets %v, want its ceiling %v", out.Node.Price, d.Limit, d.Ceiling)
	}
	if d, _ := decision(out, "hog"); d.Bound != market.ByPrice || d.Limit >= 4000 {
		t.Errorf("the hog gets %v, bound by %v", d.Limit, d.Bound)
	}
}
