package round

import (
	"testing"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/sense"
	"github.com/mbcas/mbcas/market"
)

func TestStarvationHasToLast(t *testing.T) {
	starved := &fakePod{name: "starved", request: 1000, declared: 4000, demand: 200, waits: 1}
	batch := &fakePod{name: "batch", request: 200, declared: 4000, demand: 100}
	w := newWorld(starved, batch)
	latest := func() cpu.Milli { return w.state.estimates[starved.id].LatestDemand() }
	if w.run(20); latest() != 200 {
		t.Fatalf("waiting beside idle CPU its demand is %v, want the 200m that it uses", latest())
	}
	batch.demand = 8000
	if w.tick(); latest() != 200 {
		t.Errorf("after one full second its demand is %v, want 200m still", latest())
	}
	if w.tick(); latest() != 400 {
		t.Errorf("after two full seconds its demand is %v, want twice what it uses", latest())
	}
}

func TestFloorsLeaveRoom(t *testing.T) {
	a := &fakePod{name: "a", request: 1900, declared: 3000, demand: 4000}
	b := &fakePod{name: "b", request: 1500, declared: 3000, demand: 4000}
	small := &fakePod{name: "small", request: 500, declared: 2000, demand: 300}
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
		t.Errorf("small uses less than its floor, and is capped at %v of %v", small.limit, small.declared)
	}
}

func TestPriceFallsLate(t *testing.T) {
	cfg := DefaultConfig()
	p := price{inForce: 1}
	if p = p.moveTo(cfg, 2, false, time.Second, 1); p.inForce != 2 {
		t.Fatalf("in force is %v, want the higher price at once", p.inForce)
	}
	fall := func(cleared ...market.Price) (seconds int, to market.Price) {
		q := p
		for ; q.inForce == 2 && seconds < 100; seconds++ {
			q = q.moveTo(cfg, cleared[seconds%len(cleared)], false, time.Second, 1)
		}
		return seconds, q.inForce
	}
	delay := int(cfg.FallDelay / time.Second)
	if got, to := fall(1, 1.5, 1.2); got != delay || to != 1.5 {
		t.Errorf("fell after %d s to %v, want %d s and 1.5, the highest lower price", got, to, delay)
	}
	if got, _ := fall(1, 1, 1, 1, 2); got != 100 {
		t.Errorf("fell after %d s although the price in force cleared every 5 s", got)
	}
	batch := &fakePod{name: "batch", request: 200, declared: 4000, demand: 8000}
	w := newWorld(batch)
	w.cfg.Demand.Fall = 1
	if w.run(30).Node.Price == 0 {
		t.Fatal("no price beside a saturating pod")
	}
	batch.demand = 100
	seconds := 0
	for w.tick().Node.Price > 0 && seconds < 100 {
		seconds++
	}
	if seconds < delay-1 || seconds > delay+1 {
		t.Errorf("no pod is capped any more, and the price is 0 after %d s, want %d", seconds, delay)
	}
	if q := p.moveTo(cfg, 1, true, time.Second, 1); q.inForce != 1 {
		t.Errorf("in force is %v while CPU was idle beside a throttled pod, want 1 at once", q.inForce)
	}
	if q := p.moveTo(cfg, market.Price(2*(1-cfg.PriceBand/2)), true, time.Second, 1); q.inForce != 2 {
		t.Errorf("in force is %v, want nothing within the band", q.inForce)
	}
}

func TestFullNode(t *testing.T) {
	in := Input{
		Node: Node{Capacity: 4000, Allocatable: 4000},
		Pods: []PodInput{{Pod: demand.Pod{Budget: 300}}, {Pod: demand.Pod{Budget: 100}}},
	}
	if got := cpu.FromCores(100 * coresPerBudget(3600, in.Pods)); got != 900 {
		t.Errorf("a budget of 100 in 400 is entitled to %v of a supply of 3600m, want 900m", got)
	}
	var g Gauge
	for i, c := range []struct {
		node sense.NodeRates
		want time.Duration
	}{
		{sense.NodeRates{Elapsed: time.Second, Usage: 3990, UsageKnown: true}, time.Second},
		{sense.NodeRates{Elapsed: time.Second, Usage: 3900, UsageKnown: true}, 2 * time.Second},
		{sense.NodeRates{Elapsed: time.Second, Usage: 3800, UsageKnown: true}, 0}, // CPU was idle
		{sense.NodeRates{Elapsed: time.Second, Usage: 4000, UsageKnown: true}, time.Second},
		{sense.NodeRates{Elapsed: time.Second, Usage: 4000}, 0}, // unknown
	} {
		_, full := g.Measure(DefaultConfig(), in.Node, c.node)
		if g.fullFor != c.want || full != (c.want >= 2*time.Second) {
			t.Errorf("tick %d: full for %v: %v, want %v", i, g.fullFor, full, c.want)
		}
	}
}

// TestNoPriceAboveTheShare: a saturating pod is deleted, and what the others are estimated to demand fits, by less
// than ReleaseBand, while less than ReleaseIdle of the supply is idle. A pod that was capped does not stay below its
// share for that.
func TestNoPriceAboveTheShare(t *testing.T) {
	service := &fakePod{name: "service", request: 300, declared: 2000, demand: 8000}
	others := &fakePod{name: "others", request: 2850, demand: 2850, unmanaged: true}
	w := priceAlone(service, others, &fakePod{name: "hog", request: 100, budget: 1000, declared: 4000, demand: 8000})
	w.run(120)
	capped := service.limit
	service.demand, w.pods = 650, w.pods[:2]
	if out := w.run(60); capped > 400 || service.limit < 650 {
		t.Errorf("the limit went from %v to %v at a price of %v, with a demand of %v in a supply of %v: want 650m or more",
			capped, service.limit, out.Node.Price, out.Node.Demand, out.Node.Supply)
	}
}

// TestBurstsMoveNoLimit: beside bursts that come sooner than a fall of the price proves right, the limit of a hog stays
// from the third on. Slower ones are followed, and when they end the hog has the idle CPU.
func TestBurstsMoveNoLimit(t *testing.T) {
	for name, c := range map[string]struct {
		early   time.Duration
		on, off int // seconds
		follows bool
	}{
		"bursts":                   {DefaultConfig().EarlyFall, 8, 12, false},
		"bursts, by a price alone": {0, 8, 12, true},
		"slow bursts":              {DefaultConfig().EarlyFall, 30, 60, true},
	} {
		service := &fakePod{name: "service", request: 1000, declared: 4000, demand: 200}
		hog := &fakePod{name: "hog", request: 500, declared: 4000, demand: 8000}
		w := priceAlone(service, hog)
		w.cfg.EarlyFall = c.early
		w.run(30)
		burst := func() {
			service.demand = 3000
			w.run(c.on)
			service.demand = 200
			w.run(c.off)
		}
		for range 3 {
			burst()
		}
		before := hog.changes
		for range 10 {
			burst()
		}
		if changes := hog.changes - before; (changes >= 20) != c.follows || !c.follows && changes > 0 {
			t.Errorf("%s: in ten of them the limit of the hog changes %d times", name, changes)
		}
		before = hog.changes
		for range 30 {
			burst()
		}
		if changes := hog.changes - before; !c.follows && (changes == 0 || changes > 15) {
			t.Errorf("%s: in ten more minutes the limit changes %d times: want a lower price tried, now and then", name, changes)
		}
		if w.run(32); hog.limit < 2800 {
			t.Errorf("%s: half a minute after the last the hog has %v, at a price of %v", name, hog.limit, w.state.price.inForce)
		}
	}
}

// TestFallsAreJudgedTogether: of falls that follow each other, a rise to half of the highest price shows that they were
// early. Later falls from lower prices count once EarlyFall has passed.
func TestFallsAreJudgedTogether(t *testing.T) {
	cfg := DefaultConfig()
	for name, c := range map[string]struct {
		moves []market.Price // one every 8 s
		want  int
	}{
		"it takes back less": {[]market.Price{0.6, 0.3, 0.4}, 0},
		"it takes back half": {[]market.Price{0.6, 0.3, 0.55}, 1},
		"and it goes on":     {[]market.Price{0.2, 0.4, 0.2, 0.4, 0.2, 0.4, 0.2, 0.4, 0.2, 0.4}, 2},
	} {
		p := price{inForce: 1}
		for _, next := range c.moves {
			for range 8 {
				p = p.passed(cfg, time.Second)
			}
			p = p.moveTo(cfg, next, true, time.Second, 1)
		}
		if p.early != c.want {
			t.Errorf("%s: %d early falls, want %d", name, p.early, c.want)
		}
	}
}

// TestIdlePodsBindNothing: a price that caps a pod which has stopped is without effect: the raise of another is recent, so
// it may be revoked. So is one beside a pod that has its declared limit because its raise was revoked.
func TestIdlePodsBindNothing(t *testing.T) {
	for name, c := range map[string]struct {
		usage     cpu.Milli
		throttled float64
		revoked   bool
		keeps     cpu.Milli
		ceiling   cpu.Milli
		want      bool
	}{
		"idle":                          {10, 0, false, 100, 4000, false},
		"busy":                          {400, 0, false, 100, 4000, true},
		"throttled":                     {10, 0.1, false, 100, 4000, true},
		"revoked":                       {400, 0.1, true, 600, 600, false},
		"revoked, and below that limit": {400, 0.1, true, 100, 600, true},
	} {
		b := bidder{
			managed: true, limit: 500, published: 500, usage: c.usage, latestThrottleRatio: c.throttled, revoked: c.revoked,
			minLimit: c.keeps, keptLimit: c.keeps, bid: market.Bid{Budget: 100, Demand: 1000, Floor: 100, Ceiling: c.ceiling},
		}
		if got := (price{inForce: 0.2}).capsOne(DefaultConfig(), []bidder{b}); got != c.want {
			t.Errorf("%s: the price binds: %v, want %v", name, got, c.want)
		}
	}
}
