package round

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/market"
)

// TestAskedForIsKeptFree: beside a hog of the same budget a service of 900m, whose share is half of the 3600m that can be sold.
func TestAskedForIsKeptFree(t *testing.T) {
	for _, c := range []struct {
		percent   int32
		hog, free cpu.Milli // the hog's limit, and what nobody uses of the supply
	}{
		{0, 2700, 0},
		{100, 2700, 0},
		{150, 2250, 450},
		{200, 1800, 900},
		{1000, 1800, 900}, // its share, and no more
		{50, 2700, 0},     // what it uses is not sold to others
	} {
		hog := &tenant{name: "hog", request: 500, declared: 4000, want: 8000}
		service := &tenant{name: "service", request: 500, declared: 4000, want: 900, percent: c.percent}
		w := newWorld(hog, service)
		var out Output
		for range 5 { // the trim has time to take it back
			out = w.run(60)
			if service.limit != 4000 {
				t.Errorf("%d %%: the service is held to %v, for asking", c.percent, service.limit)
			}
		}
		near := func(got, want cpu.Milli) bool { return max(got-want, want-got) <= 270 } // half the price band, which the trim leaves
		if free := out.Node.Supply - out.Node.Usage; !near(hog.limit, c.hog) || !near(free, c.free) {
			t.Errorf("%d %%: the hog has %v and %v is free, want %v and %v", c.percent, hog.limit, free, c.hog, c.free)
		}
		if d, _ := decision(out, "service"); d.Demand < 850 || d.Demand > 950 {
			t.Errorf("%d %%: its demand is said to be %v, want what it is", c.percent, d.Demand)
		}
		if hog.changes > 8 {
			t.Errorf("%d %%: %d changes of the hog's limit in five minutes of steady load", c.percent, hog.changes)
		}
	}
}

// TestKeptRoomIsNoWaste: CPU that lies idle because it was asked for does not release the price, and a burst may have it.
func TestKeptRoomIsNoWaste(t *testing.T) {
	hog := &tenant{name: "hog", request: 500, declared: 4000, want: 8000}
	service := &tenant{name: "service", request: 500, declared: 4000, want: 900, percent: 200}
	w := newWorld(hog, service)
	w.run(60)
	for range 60 {
		if out := w.tick(); out.Node.Released || out.Node.Price == 0 {
			t.Fatalf("released %v, price %v beside room that was asked for", out.Node.Released, out.Node.Price)
		}
	}
	before := w.tick().Node.Price
	service.want = 650
	if after := w.run(4).Node.Price; after != before {
		t.Errorf("the price went from %v to %v in a lull of four seconds", before, after)
	}
	service.want = 1700
	w.tick()
	if used := w.uses()[1]; used != 1700 {
		t.Errorf("a burst of 1700m gets %v", used)
	}
	service.want = 0
	hog.stops = 0.2
	w.tick()
	if out := w.tick(); out.Node.Price != 0 {
		t.Errorf("nobody wants anything, and the price is %v", out.Node.Price)
	}
}

// TestAskingIsNoShortage: where requests fill the node, hardly used, asking for room makes no floor exceed the supply.
func TestAskingIsNoShortage(t *testing.T) {
	a := &tenant{name: "a", request: 1900, declared: 3000, want: 400, percent: 1000}
	b := &tenant{name: "b", request: 1900, declared: 3000, want: 400, percent: 1000}
	c := &tenant{name: "c", request: 50, declared: 1000, want: 100}
	w := newWorld(a, b, c)
	out := w.run(60)
	if out.Node.FloorsExceedSupply || out.Node.Price != 0 {
		t.Errorf("price %v, floors exceed supply: %v, on a node of which a quarter is in use", out.Node.Price, out.Node.FloorsExceedSupply)
	}
	if got := out.Node.Demand; got < 850 || got > 950 {
		t.Errorf("its pods are said to want %v, want what they do", got)
	}
	if out.Node.SignalDemand < 7000 {
		t.Errorf("and to ask for %v beyond that, want 7200m", out.Node.SignalDemand)
	}
}

// TestAskingHoldsNobody: whether a price holds an entry does not depend on what it asks for, and who asks for no more than it
// demands leaves nothing free.
func TestAskingHoldsNobody(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := DefaultConfig()
		e := bidder{managed: true, published: cpu.Milli(rapid.IntRange(0, 4000).Draw(t, "offered")), bid: market.Bid{
			Budget: market.Budget(rapid.IntRange(1, 2000).Draw(t, "budget")), Demand: cpu.Milli(rapid.IntRange(0, 4000).Draw(t, "demand")),
			Floor: 100, Ceiling: 4000,
		}}
		p := market.Price(rapid.Float64Range(0, 3).Draw(t, "price"))
		before, alone := e.bound(cfg, p), keptForSignals([]bidder{e}, p)
		e.signalPercent = int32(rapid.IntRange(10, 1000).Draw(t, "percent"))
		if after := e.bound(cfg, p); after != before {
			t.Fatalf("held by %v, and by %v at %d %%", before, after, e.signalPercent)
		}
		room := keptForSignals([]bidder{e}, p)
		if alone != 0 || room < 0 || e.signalPercent <= 100 && room != 0 || room > 0 && e.bid.Demand+room > e.bid.Limit(p) {
			t.Fatalf("%v is kept free at %d %% of %v, of a share of %v", room, e.signalPercent, e.bid.Demand, e.bid.Limit(p))
		}
	})
}

// TestNobodyHidesFromThePrice: a hog that asks to be taken for little is held as if it did not.
func TestNobodyHidesFromThePrice(t *testing.T) {
	var limits []cpu.Milli
	for _, percent := range []int32{0, 10} {
		hog := &tenant{name: "hog", request: 500, declared: 4000, want: 8000, percent: percent}
		service := &tenant{name: "service", request: 500, declared: 4000, want: 900}
		newWorld(hog, service).run(60)
		limits = append(limits, hog.limit)
	}
	if limits[0] >= 3600 || limits[1] != limits[0] {
		t.Errorf("the hog is held to %v, and asking for a tenth to %v", limits[0], limits[1])
	}
}
