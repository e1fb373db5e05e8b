package round

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/market"
)

// TestSignalDemandIsKeptFree: a service of 900m beside a saturating pod of the same budget; the
// share of each is half of the supply of 3600m.
func TestSignalDemandIsKeptFree(t *testing.T) {
	for _, c := range []struct {
		percent     int32
		batch, free cpu.Milli // the limit of the saturating pod, and the unused supply
	}{
		{0, 2700, 0},
		{100, 2700, 0},
		{150, 2250, 450},
		{200, 1800, 900},
		{1000, 1800, 900}, // its share, and no more
		{50, 2700, 0},     // no signal lowers a demand
	} {
		batch := &fakePod{name: "batch", request: 500, declared: 4000, demand: 8000}
		service := &fakePod{name: "service", request: 500, declared: 4000, demand: 900, percent: c.percent}
		w := priceAlone(batch, service)
		var out Output
		for range 5 {
			out = w.run(60)
			if service.limit != 4000 {
				t.Errorf("%d %%: the service is capped at %v because of its signal", c.percent, service.limit)
			}
		}
		near := func(got, want cpu.Milli) bool { return max(got-want, want-got) <= 10 }
		if free := out.Node.Supply - out.Node.Usage; !near(batch.limit, c.batch) || !near(free, c.free) {
			t.Errorf("%d %%: the saturating pod has %v and %v is free, want %v and %v", c.percent, batch.limit, free, c.batch,
				c.free)
		}
		if d, _ := decision(out, "service"); d.Demand < 850 || d.Demand > 950 {
			t.Errorf("%d %%: its demand is %v, want 900m", c.percent, d.Demand)
		}
		if batch.changes > 8 {
			t.Errorf("%d %%: %d changes of the saturating pod's limit in five minutes of steady load", c.percent, batch.changes)
		}
	}
}

// TestSignalDemandIsNotIdle: CPU that is kept free for a signal does not release the price, and a
// burst may use it.
func TestSignalDemandIsNotIdle(t *testing.T) {
	batch := &fakePod{name: "batch", request: 500, declared: 4000, demand: 8000}
	service := &fakePod{name: "service", request: 500, declared: 4000, demand: 900, percent: 200}
	w := newWorld(batch, service)
	w.run(60)
	for range 60 {
		if out := w.tick(); out.Node.Released || out.Node.Price == 0 {
			t.Fatalf("released %v, price %v beside CPU that is kept free", out.Node.Released, out.Node.Price)
		}
	}
	before := w.tick().Node.Price
	service.demand = 650
	if after := w.run(4).Node.Price; after != before {
		t.Errorf("the price went from %v to %v in a lull of four seconds", before, after)
	}
	service.demand = 1700
	w.tick()
	if used := w.uses()[1]; used != 1700 {
		t.Errorf("a burst of 1700m gets %v", used)
	}
	service.demand = 0
	batch.stops = 0.2
	w.tick()
	if out := w.tick(); out.Node.Price != 0 {
		t.Errorf("without demand the price is %v", out.Node.Price)
	}
}

// TestSignalsDoNotExceedTheSupply: where hardly used requests fill the node, signals do not make
// floors exceed the supply.
func TestSignalsDoNotExceedTheSupply(t *testing.T) {
	a := &fakePod{name: "a", request: 1900, declared: 3000, demand: 400, percent: 1000}
	b := &fakePod{name: "b", request: 1900, declared: 3000, demand: 400, percent: 1000}
	c := &fakePod{name: "c", request: 50, declared: 1000, demand: 100}
	w := newWorld(a, b, c)
	out := w.run(60)
	if out.Node.FloorsExceedSupply || out.Node.Price != 0 {
		t.Errorf("price %v, floors exceed supply: %v, on a node with a usage of a quarter", out.Node.Price,
			out.Node.FloorsExceedSupply)
	}
	if got := out.Node.Demand; got < 850 || got > 950 {
		t.Errorf("the demand is %v, want 900m", got)
	}
	if out.Node.SignalDemand < 7000 {
		t.Errorf("signals add %v, want 7200m", out.Node.SignalDemand)
	}
}

// TestSignalsCapNoPod: whether a bidder is capped does not depend on its signal, and a signal of at
// most 100 % keeps nothing free.
func TestSignalsCapNoPod(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := DefaultConfig()
		e := bidder{managed: true, published: cpu.Milli(rapid.IntRange(0, 4000).Draw(t, "published")), bid: market.Bid{
			Budget: market.Budget(rapid.IntRange(1, 2000).Draw(t, "budget")),
			Demand: cpu.Milli(rapid.IntRange(0, 4000).Draw(t, "demand")), Floor: 100, Ceiling: 4000,
		}}
		p := market.Price(rapid.Float64Range(0, 3).Draw(t, "price"))
		before, alone := e.bound(cfg, p), keptForSignals([]bidder{e}, p)
		e.signalPercent = int32(rapid.IntRange(10, 1000).Draw(t, "percent"))
		if after := e.bound(cfg, p); after != before {
			t.Fatalf("bound by %v, and by %v at %d %%", before, after, e.signalPercent)
		}
		room := keptForSignals([]bidder{e}, p)
		if alone != 0 || room < 0 || e.signalPercent <= 100 && room != 0 || room > 0 && e.bid.Demand+room > e.bid.Limit(p) {
			t.Fatalf("%v is kept free at %d %% of %v, with a share of %v", room, e.signalPercent, e.bid.Demand, e.bid.Limit(p))
		}
	})
}
