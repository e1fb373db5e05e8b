package round

import (
	"math"
	"testing"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/sense"
	"github.com/mbcas/mbcas/market"
)

// duel is an order book of a hog that wants the node and a service that wants a core of it, with equal budgets.
func duel() ([]bidder, NodeDecision) {
	return []bidder{
		{managed: true, limit: 2600, bid: market.Bid{Budget: 500, Demand: 8000, Floor: 100, Ceiling: 4000}},
		{managed: true, limit: 4000, bid: market.Bid{Budget: 500, Demand: 1000, Floor: 100, Ceiling: 4000}},
	}, NodeDecision{Supply: 3600, Usage: 3600, UsageKnown: true}
}

func TestTrimLeavesTheShare(t *testing.T) {
	cfg := DefaultConfig()
	book, d := duel()
	p := price{inForce: 500.0 / 2600, trim: cfg.TrimLimit}
	if plain := 500.0 / 2600 * math.Exp(cfg.TrimLimit); 500/plain > 1500 {
		t.Fatalf("the trim alone leaves the hog %vm, which tests nothing", 500/plain)
	}
	p = p.update(cfg, new(market.Solver), book, &d, epoch, time.Second)
	if got := book[0].bid.Limit(p.inForce); got < 1799 || got > 1800 {
		t.Errorf("with its trim at the limit the price leaves the hog %v, want its half of 3600m", got)
	}
}

func TestTrimRestsWhileAFallWaits(t *testing.T) {
	cfg := DefaultConfig()
	book, d := duel()
	d.Usage = 3000
	p := price{inForce: 500.0 / 2600, trim: 0.3}
	if got := trim(cfg, p, book, d, time.Second); got >= 0.3 {
		t.Errorf("a sixth of the supply lies idle, and the trim goes from 0.3 to %v", got)
	}
	p.lowerFor = time.Second
	if got := trim(cfg, p, book, d, time.Second); got != 0.3 {
		t.Errorf("a lower price waits for its time, and the trim goes on to %v", got)
	}
}

// TestTrimDoesNotWaitForTheUnheld: a pod just above its share keeps its limit, so the trim would wait for it for ever.
func TestTrimDoesNotWaitForTheUnheld(t *testing.T) {
	cfg := DefaultConfig()
	book, d := duel()
	d.Usage = 3000
	book[1].bid.Demand, book[1].published = 2700, 4000 // its budget buys 2600m
	p := price{inForce: 500.0 / 2600, trim: 0.3}
	if got := trim(cfg, p, book, d, time.Second); got >= 0.3 {
		t.Errorf("a sixth of the supply lies idle, and the trim goes from 0.3 to %v", got)
	}
	book[1].published = 2600 // held, and on its way down
	if got := trim(cfg, p, book, d, time.Second); got != 0.3 {
		t.Errorf("a limit is on its way down, and the trim goes on to %v", got)
	}
}

func TestStarvationHasToLast(t *testing.T) {
	starved := &tenant{name: "starved", request: 1000, declared: 4000, want: 200, waits: 1}
	hog := &tenant{name: "hog", request: 200, declared: 4000, want: 100}
	w := newWorld(starved, hog)
	latest := func() cpu.Milli { return w.state.estimates[starved.id].LatestDemand() }
	if w.run(20); latest() != 200 {
		t.Fatalf("waiting beside idle CPU it is taken to want %v, want the 200m that it uses", latest())
	}
	hog.want = 8000
	if w.tick(); latest() != 200 {
		t.Errorf("after one full second it is taken to want %v, want 200m still", latest())
	}
	if w.tick(); latest() != 400 {
		t.Errorf("after two full seconds it is taken to want %v, want twice what it uses", latest())
	}
}

func TestFloorsLeaveRoom(t *testing.T) {
	a := &tenant{name: "a", request: 1900, declared: 3000, want: 4000}
	b := &tenant{name: "b", request: 1500, declared: 3000, want: 4000}
	small := &tenant{name: "small", request: 500, declared: 2000, want: 300}
	w := newWorld(a, b, small)
	out := w.run(120)
	if !out.Node.FloorsExceedSupply {
		t.Fatalf("floors of 3420m and 300m of use do not exceed %v", out.Node.Supply)
	}
	if p := out.Node.Price; p < 0.9 || p > 1.1 {
		t.Errorf("price %v: want the lowest at which a budget of 1900 buys 1910m, and one of 1500 1510m", p)
	}
	for _, name := range []string{"a", "b"} {
		if d, _ := decision(out, name); d.Limit != d.Floor {
			t.Errorf("%s gets %v, want its floor %v", name, d.Limit, d.Floor)
		}
	}
	if small.limit != small.declared {
		t.Errorf("small uses less than its floor, and is held to %v of %v", small.limit, small.declared)
	}
}

func TestPriceFallsLate(t *testing.T) {
	cfg := DefaultConfig()
	p := price{inForce: 1}
	if p = p.moveTo(cfg, 2, false, time.Second); p.inForce != 2 {
		t.Fatalf("acted on %v, want the higher price at once", p.inForce)
	}
	fall := func(wants ...market.Price) (seconds int, to market.Price) {
		q := p
		for ; q.inForce == 2 && seconds < 100; seconds++ {
			q = q.moveTo(cfg, wants[seconds%len(wants)], false, time.Second)
		}
		return seconds, q.inForce
	}
	delay := int(cfg.FallDelay / time.Second)
	if got, to := fall(1, 1.5, 1.2); got != delay || to != 1.5 {
		t.Errorf("fell after %d s to %v, want %d s and 1.5, the highest that was wanted meanwhile", got, to, delay)
	}
	if got, _ := fall(1, 1, 1, 1, 2); got != 100 {
		t.Errorf("fell after %d s although the old price was wanted every 5 s", got)
	}
	hog := &tenant{name: "hog", request: 200, declared: 4000, want: 8000}
	w := newWorld(hog)
	w.cfg.Demand.Fall = 1
	if w.run(30).Node.Price == 0 {
		t.Fatal("no price beside a hog")
	}
	hog.want = 100
	seconds := 0
	for w.tick().Node.Price > 0 && seconds < 100 {
		seconds++
	}
	if seconds < delay-1 || seconds > delay+1 {
		t.Errorf("nobody is held any more, and the price is 0 after %d s, want %d", seconds, delay)
	}
	if q := p.moveTo(cfg, 1, true, time.Second); q.inForce != 1 {
		t.Errorf("acted on %v while CPU lay idle beside a throttled pod, want 1 at once", q.inForce)
	}
	if q := p.moveTo(cfg, market.Price(2*(1-cfg.PriceBand/2)), true, time.Second); q.inForce != 2 {
		t.Errorf("acted on %v, want nothing within the band", q.inForce)
	}
}

func TestEntitlement(t *testing.T) {
	in := Input{Node: Node{Capacity: 4000, Allocatable: 4000}, Pods: []PodInput{{Pod: demand.Pod{Budget: 300}}, {Pod: demand.Pod{Budget: 100}}}}
	if got := cpu.FromCores(100 * coresPerBudget(3600, in.Pods)); got != 900 {
		t.Errorf("a budget of 100 in 400 is entitled to %v of a supply of 3600m, want 900m", got)
	}
	full := time.Duration(0)
	for i, c := range []struct {
		node sense.NodeRates
		want time.Duration
	}{
		{sense.NodeRates{Elapsed: time.Second, Usage: 3990, UsageKnown: true}, time.Second},
		{sense.NodeRates{Elapsed: time.Second, Usage: 3900, UsageKnown: true}, 2 * time.Second},
		{sense.NodeRates{Elapsed: time.Second, Usage: 3800, UsageKnown: true}, 0}, // CPU lay idle
		{sense.NodeRates{Elapsed: time.Second, Usage: 4000, UsageKnown: true}, time.Second},
		{sense.NodeRates{Elapsed: time.Second, Usage: 4000}, 0}, // not known
	} {
		if full = updateFullFor(in.Node, c.node, full); full != c.want {
			t.Errorf("tick %d: full for %v, want %v", i, full, c.want)
		}
	}
}
