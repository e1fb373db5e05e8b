package round

import (
	"slices"
	"testing"
	"time"

	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/market"
)

func TestReleasesWithContention(t *testing.T) {
	contended := func() (*world, *fakePod, *fakePod) {
		service := &fakePod{name: "service", request: 200, declared: 500, demand: 300}
		batch := &fakePod{name: "batch", request: 200, declared: 4000, demand: 8000}
		other := &fakePod{name: "other", request: 200, declared: 4000, demand: 8000}
		w := priceAlone(service, batch, other)
		if out := w.run(60); out.Node.Price == 0 || batch.limit > 2500 || other.limit > 2500 {
			t.Fatalf("two saturating pods on four cores have %v and %v at price %v: want both lowered", batch.limit, other.limit,
				out.Node.Price)
		}
		return w, batch, other
	}
	t.Run("at a tick", func(t *testing.T) {
		w, batch, other := contended()
		other.demand = 0
		out := w.tick()
		if out.Node.Price != 0 || !out.Node.Released {
			t.Errorf("price %v, released %v, cleared %v", out.Node.Price, out.Node.Released, out.Node.Cleared)
		}
		w.tick() // a pod that saturates is raised when the demand has followed
		if want := out.Node.Supply - 300; batch.limit != want {
			t.Errorf("the batch pod has %v: want %v, what the service leaves", batch.limit, want)
		}
	})
	t.Run("a pod deleted", func(t *testing.T) {
		// The remaining demand is just the supply, so the price would stay within its band.
		w, batch, other := contended()
		w.pods = slices.DeleteFunc(w.pods, func(p *fakePod) bool { return p == other })
		batch.demand = 2000
		w.run(3)
		if batch.limit < batch.demand {
			t.Errorf("the batch pod has %v of its demand of %v, beside idle CPU", batch.limit, batch.demand)
		}
	})
	t.Run("between ticks", func(t *testing.T) {
		w, batch, other := contended()
		before := batch.limit
		other.stops = 0.2
		w.tick()
		if batch.limit < before*13/10 {
			t.Errorf("the batch pod went from %v to %v: want it raised by the tick in which the other stops", before,
				batch.limit)
		}
		w.run(3)
		if left := w.node.Allocatable*9/10 - 300; batch.limit < left*9/10 {
			t.Errorf("the batch pod has %v three ticks later, want about all of the %v that the service leaves", batch.limit,
				left)
		}
	})
}

func TestScarcityIsSeenAtOnce(t *testing.T) {
	service := &fakePod{name: "service", request: 100, budget: demand.Budget(100, 1_000_000), declared: 500, demand: 400}
	batch := &fakePod{name: "batch", request: 600, declared: 1200}
	w := priceAlone(service, batch)
	w.node = Node{Capacity: 2000, Allocatable: 1600}
	w.run(60)
	batch.demand = 4000
	if out := w.tick(); out.Node.Price != 0 {
		t.Errorf("one second of a burst has the price %v", out.Node.Price)
	}
	out := w.tick()
	d, _ := decision(out, "batch")
	if out.Node.Price == 0 || d.Bound != market.ByPrice || !d.Publish || d.Limit > 1250 {
		t.Errorf("two seconds into scarcity: price %v, batch %+v: want it capped, and at once", out.Node.Price, d)
	}
	if w.run(60); service.limit < service.demand {
		t.Errorf("the service, of a high priority, has %v and demands %v", service.limit, service.demand)
	}
}

func TestIntervalChangesNothing(t *testing.T) {
	const ms = time.Millisecond
	for _, interval := range []time.Duration{100 * ms, 250 * ms, 1000 * ms, 5000 * ms, 10_000 * ms} {
		// contended is a node with two saturating pods, and a function that measures the time until a
		// condition holds.
		type measure func(what string, want time.Duration, end func(Output) bool)
		contended := func(t *testing.T) (*fakePod, measure) {
			batch := &fakePod{name: "batch", request: 200, declared: 4000}
			other := &fakePod{name: "other", request: 200, declared: 4000}
			w := priceAlone(batch, other)
			w.interval, w.cfg.LongestGap = interval, 4*interval
			w.cfg.Demand.Rise, w.cfg.Demand.Fall, w.cfg.FallDelay, w.cfg.EarlyFall = 0.3, 1e-6, 0, 0
			w.cfg.CapBand = 0.1 // of a full node the weights give each a tenth more than its share
			for range w.cfg.Demand.WarmUpSamples + 5 {
				w.tick()
			}
			batch.demand, other.demand = 8000, 8000
			for begin := w.now; w.now.Sub(begin) < time.Minute; {
				w.tick()
			}
			return other, func(what string, want time.Duration, end func(Output) bool) {
				t.Helper()
				want = max(want, interval)
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
		t.Run(interval.String(), func(t *testing.T) {
			other, lasts := contended(t)
			other.demand = 1100 // a fifth of the supply lies idle
			lasts("idle CPU is given back", 2*time.Second, released)
			other, lasts = contended(t)
			other.demand = 0
			lasts("much idle CPU is given back", time.Second, released)
		})
	}
}

func TestUnreadableIsNotZero(t *testing.T) {
	t.Run("system", func(t *testing.T) {
		w := newWorld(&fakePod{name: "a", request: 100, declared: 500, demand: 100})
		w.system = 1000 // nothing is reserved for it
		before := w.run(200).Node
		w.noStat = true
		out := w.run(200).Node
		if out.SystemKnown || out.System != before.System || out.Supply != before.Supply {
			t.Errorf(
				"supply %v beside %v of the system, %v beside %v when that cannot be read: want no change, and SystemKnown false",
				before.Supply, before.System, out.Supply, out.System)
		}
		w.noStat, w.system = false, 0
		if out := w.run(200).Node; !out.SystemKnown || out.System > 10 {
			t.Errorf("readable again: %+v, want the system idle", out)
		}
	})
	t.Run("system never readable", func(t *testing.T) {
		w := newWorld(&fakePod{name: "a", request: 100, declared: 500, demand: 100})
		w.system, w.noStat = 1000, true
		if out := w.run(60).Node; out.SystemKnown || out.Supply != w.node.Allocatable*9/10 {
			t.Errorf("%+v: want the whole supply, and SystemKnown false", out)
		}
	})
	t.Run("pods", func(t *testing.T) {
		batch := &fakePod{name: "batch", request: 200, declared: 4000, demand: 8000}
		other := &fakePod{name: "other", request: 200, declared: 4000, demand: 8000}
		w := newWorld(batch, other)
		before := w.run(60).Node
		limit := batch.limit
		w.noPods = true
		if out := w.run(30).Node; before.Price == 0 || out.UsageKnown || out.Price != before.Price || batch.limit != limit {
			t.Errorf("price %v, then %v; limit %v, then %v: want no change while the usage of the pods cannot be read",
				before.Price, out.Price, limit, batch.limit)
		}
	})
}

// A pod that cannot be read in one tick has not stopped using CPU.
func TestOneMissedSampleRaisesNoPod(t *testing.T) {
	a := &fakePod{name: "a", request: 600, declared: 900, demand: 8000}
	b := &fakePod{name: "b", request: 200, declared: 500, demand: 1500}
	w := newWorld(a, b)
	w.run(60)
	before := b.limit
	a.absent = true
	if out := w.tick(); out.Node.Price == 0 || b.limit > before*12/10 {
		t.Errorf("b went from %v to %v at price %v because a was not readable", before, b.limit, out.Node.Price)
	}
}

func TestPressureAndSystemShrinkTheSupply(t *testing.T) {
	w := newWorld(&fakePod{name: "a", request: 100, declared: 500, demand: 100})
	plain := w.tick().Node.Supply
	w.node.Pressures = 1
	if got := w.tick().Node.Supply; plain-got != w.node.Allocatable/10 {
		t.Errorf("supply %v, under pressure %v: want a tenth of the allocatable CPU less", plain, got)
	}
	w.node.Pressures = 0
	w.system = 500 // nothing is reserved for the system
	if got := w.run(200).Node.Supply; got < plain-500 || got > plain-495 {
		t.Errorf("supply %v beside a system that uses 500m: want %v less that", got, plain)
	}
	w.system = 4000
	if got := w.run(200).Node.Supply; got != plain/2 {
		t.Errorf("supply %v beside a system that uses everything: want half of %v", got, plain)
	}
}
