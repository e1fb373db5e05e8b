package round

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/market"
)

// TestNewPodsAreRaisedAtOnce: while no price caps a pod, a new pod that was throttled since it started gets twice
// its limit in the round that reads it first. A pod that was not is watched by looks.
func TestNewPodsAreRaisedAtOnce(t *testing.T) {
	w := newWorld(&fakePod{name: "other", request: 500, declared: 1000, demand: 100})
	w.run(30)
	busy := &fakePod{name: "busy", request: 100, declared: 500, demand: 2000}
	calm := &fakePod{name: "calm", request: 100, declared: 500, demand: 50}
	w.join(busy, calm)
	out := w.tick()
	if d, ok := decision(out, "busy"); !ok || !d.Publish || d.Limit != 1000 || d.ThrottleRatio < 0.9 || d.Demand != 500 {
		t.Errorf("decision %+v (%v), want 1000m: it is throttled at 500m", d, ok)
	}
	if d, ok := decision(out, "calm"); ok || out.Skipped.WarmingUp != 1 {
		t.Errorf("decision %+v, skipped %+v: nothing is known of that pod", d, out.Skipped)
	}
	if !slices.Equal(w.watch, []string{"other", "calm"}) {
		t.Fatalf("looks read %v", w.watch)
	}
	calm.demand = 3000
	w.pass(w.cfg.LookInterval)
	if w.look(); calm.limit != 2000 {
		t.Errorf("limit %v after a look: it was throttled since the first sample", calm.limit)
	}
	busy.limit = 3500                                                    // what the others leave
	busy.id, busy.stat = "busy-2", kernel.Stat{Periods: 3, Throttled: 3} // restarted, and its limit is what it was
	if d, ok := decision(w.tick(), "busy"); ok {
		t.Errorf("decision %+v: its limit is all that the others leave", d)
	}
}

// TestNewPodsAreRaisedBesideAnOldPrice: a price from before that caps no pod holds no new pod back.
func TestNewPodsAreRaisedBesideAnOldPrice(t *testing.T) {
	w := newWorld(&fakePod{name: "other", request: 500, declared: 1000, demand: 100})
	w.run(30)
	w.state.price.inForce = 0.3
	w.join(&fakePod{name: "busy", request: 100, declared: 500, demand: 2000})
	if d, ok := decision(w.tick(), "busy"); !ok || !d.Publish || d.Limit != 1000 {
		t.Errorf("decision %+v (%v), want 1000m: it is throttled at 500m", d, ok)
	}
}

// TestOldCountersRaiseNoNewPod: the counters of a container that may have run for long say nothing about
// now; and while a price caps a pod, no counter raises a pod of which nothing else is known.
func TestOldCountersRaiseNoNewPod(t *testing.T) {
	old := kernel.Stat{Usage: time.Hour, Periods: 1e6, Throttled: 1e5}
	quiet := func() *world {
		w := newWorld(&fakePod{name: "other", request: 500, declared: 1000, demand: 100})
		w.run(30)
		return w
	}
	for name, c := range map[string]func(p *fakePod) *world{
		"the agent has just started": func(p *fakePod) *world {
			w := newWorld(p)
			w.known = true
			return w
		},
		"its cgroup was not found before": func(p *fakePod) *world {
			w := quiet()
			p.absent = true
			w.join(p)
			w.tick()
			p.absent = false
			return w
		},
		"the kernel enforces no limit": func(p *fakePod) *world {
			w := quiet()
			p.quota = kernel.Quota{Period: 100 * time.Millisecond}
			w.join(p)
			return w
		},
		"CPU has a price": func(p *fakePod) *world {
			w := newWorld(&fakePod{name: "job", request: 500, declared: 4000, demand: 8000})
			w.run(30)
			w.join(p)
			return w
		},
		"it is not managed": func(p *fakePod) *world {
			w := quiet()
			p.unmanaged = true
			w.join(p)
			return w
		},
	} {
		p := &fakePod{name: "new", request: 100, declared: 500, demand: 100, stat: old}
		w := c(p)
		if d, ok := decision(w.tick(), "new"); ok {
			t.Errorf("%s: decision %+v", name, d)
		}
		if p.limit != 500 {
			t.Errorf("%s: limit %v", name, p.limit)
		}
	}
}

// TestNewPodsNeedNotWaitForARound: a pod that starts between two rounds is raised when it is taken in or, if
// it is throttled later, by the next look. That moves no estimate and no price, and counts as no sample.
func TestNewPodsNeedNotWaitForARound(t *testing.T) {
	w := newWorld(&fakePod{name: "other", request: 500, declared: 1000, demand: 300})
	w.run(30)
	samples, estimates, price, last := w.state.samples, w.state.estimates, w.state.price, w.state.last
	busy := &fakePod{name: "busy", request: 100, declared: 500, demand: 900}
	calm := &fakePod{name: "calm", request: 100, declared: 500, demand: 50}
	if w.takeIn(100*time.Millisecond, busy, calm); busy.limit != 1000 || calm.limit != 500 {
		t.Errorf("limits %v and %v when taken in, want 1000m and 500m", busy.limit, calm.limit)
	}
	calm.demand = 900
	w.pass(w.cfg.LookInterval)
	if w.look(); calm.limit != 2000 {
		t.Errorf("limit %v after the next look", calm.limit)
	}
	if w.state.samples != samples || !reflect.DeepEqual(w.state.estimates, estimates) || w.state.price != price ||
		!reflect.DeepEqual(w.state.last, last) {
		t.Error("what rounds learn from has changed")
	}
	w.pass(500 * time.Millisecond)
	changes := busy.changes
	for range 30 {
		w.round()
		w.pass(time.Second)
	}
	if busy.changes != changes+1 || calm.changes != 2 { // as it was throttled a moment ago
		t.Errorf("%d and %d changes by the rounds after, want one more raise of each", busy.changes-changes, calm.changes-1)
	}
}

// TestNewPodsKeepTheirSplit: of a new pod the container that is throttled is raised to twice its limit, and none falls.
func TestNewPodsKeepTheirSplit(t *testing.T) {
	w := newWorld(&fakePod{name: "other", request: 500, declared: 1000, demand: 100})
	w.run(30)
	w.join(&fakePod{name: "new", request: 100, declared: 600, demand: 2000})
	w.pass(w.interval)
	in := w.input()
	p, s := &in.Pods[1], &in.Sample.Pods[1]
	p.Ceiling = 4000
	side := p.Containers[0]
	side.Name, side.ID, side.Declared, side.Limit = "side", "side-1", 200, 200
	p.Containers = append(p.Containers, side)
	s.Containers = append(s.Containers, kernel.Group{ID: "side-1", Found: true, At: w.now})
	_, out := Run(w.cfg, w.state, in)
	d, ok := decision(out, "new")
	if want := []ContainerLimit{{"c", 1200}, {"side", 200}}; !ok || !reflect.DeepEqual(d.Containers, want) {
		t.Errorf("limits %v, want %v", d.Containers, want)
	}
}

// TestRestartRaisesAtOnce: after a restart of the agent, a throttled pod is raised by the first look, and by
// the second round, if the price from before leaves it uncapped and CPU is idle. Nothing else is decided
// before the node has enough samples.
func TestRestartRaisesAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		before market.Price
		known  bool
		bound  market.Bound
		fresh  bool      // nothing is published about the pod
		others cpu.Milli // that other pods use
		raised bool
	}{
		"no price":                            {known: true, raised: true},
		"no price, a pod without a decision":  {known: true, fresh: true, raised: true},
		"the price is not known":              {},
		"an uncapped pod":                     {before: 0.1, known: true, raised: true},
		"a pod without a decision at a price": {before: 0.1, known: true, fresh: true},
		"a capped pod":                        {before: 0.1, known: true, bound: market.ByPrice},
		"no idle CPU":                         {known: true, others: 3000},
	} {
		for _, looks := range []bool{false, true} {
			pod := &fakePod{name: "pod", request: 500, declared: 500, demand: 2000}
			other := &fakePod{name: "other", request: 500, declared: 4000, demand: c.others}
			w := newWorld(pod, other)
			w.before, w.known = c.before, c.known
			if !c.fresh {
				pod.published = Published{At: epoch, Limits: map[string]cpu.Milli{"c": 500}, Bound: c.bound, Price: c.before}
			}
			w.pass(time.Hour)
			w.round()
			if looks {
				w.pass(w.cfg.LookInterval)
				w.look()
			} else {
				w.tick()
			}
			if raised := pod.limit > 500; raised != c.raised {
				t.Errorf("%s, looks %v: limit %v, want it raised: %v", name, looks, pod.limit, c.raised)
			}
			for range w.cfg.Demand.WarmUpSamples - 2 {
				w.tick()
			}
			if other.changes > 0 || pod.limit < 500 || w.state.price.inForce != c.before {
				t.Errorf("%s, looks %v: other's limit changed %d times, the pod has %v, price %v", name, looks, other.changes,
					pod.limit, w.state.price.inForce)
			}
		}
	}
}
