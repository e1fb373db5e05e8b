package round

import (
	"slices"
	"testing"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/sense"
	"github.com/mbcas/mbcas/internal/split"
	"github.com/mbcas/mbcas/market"
)

// TestOnlyUsableDemandTakesRoom: demand beyond a ceiling, and signals that the market does not keep free, leave a
// throttled pod what others cannot use. The supply is 3600m.
func TestOnlyUsableDemandTakesRoom(t *testing.T) {
	for name, others := range map[string][]*fakePod{
		"a ceiling": {{name: "a", request: 1500, declared: 1500, ceiling: 1500, demand: 8000}},
		"signals": {
			{name: "a", request: 1900, declared: 3000, demand: 400, percent: 1000},
			{name: "b", request: 1900, declared: 3000, demand: 400, percent: 1000},
		},
	} {
		pod := &fakePod{name: "pod", request: 50, declared: 1000, demand: 1700}
		w := newWorld(append(others, pod)...)
		if out := w.run(60); out.Node.Price != 0 || pod.limit < pod.demand {
			t.Errorf("%s: price %v, and a pod that demands %v has %v", name, out.Node.Price, pod.demand, pod.limit)
		}
	}
	signalled := &fakePod{name: "pod", request: 100, declared: 1000, demand: 1050, percent: 300}
	w := newWorld(signalled, &fakePod{name: "a", request: 100, declared: 4000, demand: 500})
	if w.run(30); signalled.limit < 2500 {
		t.Errorf("its own signal leaves a pod %v", signalled.limit)
	}
}

// TestSaturatingPodsGetWhatTheirBudgetBuys: a pod that seems to saturate under a price is not held at its share of all
// budgets while its own buys more.
func TestSaturatingPodsGetWhatTheirBudgetBuys(t *testing.T) {
	hog := &fakePod{name: "hog", request: 1000, declared: 4000, demand: 16_000}
	busy := &fakePod{name: "busy", request: 1000, declared: 1000, demand: 5}
	idle := &fakePod{name: "idle", request: 5000, declared: 6000, demand: 5}
	w := newWorld(hog, busy, idle)
	w.node = Node{Capacity: 8000, Allocatable: 8000}
	if w.run(60); busy.limit != busy.declared {
		t.Fatalf("the pod was raised to %v before it needs more", busy.limit)
	}
	busy.demand = 3000
	if out := w.run(20); out.Node.Price == 0 || busy.limit < 3000 {
		t.Errorf("price %v: a pod that demands 3000m beside a hog of the same budget has %v", out.Node.Price, busy.limit)
	}
}

// TestLimitsNotInForceStay: where published limits are not in force, as in mode recommend, they do not follow what
// varying others leave.
func TestLimitsNotInForceStay(t *testing.T) {
	for name, c := range map[string]struct {
		other func(second int) cpu.Milli // the demand of the other pod
		most  int
	}{
		"what is left varies":   {func(s int) cpu.Milli { return 600 + 1400*cpu.Milli(s/30%2) }, 4},
		"more and more is left": {func(s int) cpu.Milli { return 2900 - 4*cpu.Milli(s) }, 4},
	} {
		pod := &fakePod{name: "pod", request: 100, declared: 700, demand: 700}
		other := &fakePod{name: "other", request: 100, declared: 4000, demand: c.other(0)}
		w, published := newWorld(pod, other), 0
		for s := range 600 {
			other.demand = c.other(s)
			out := w.tick()
			pod.limit = 700
			if d, ok := decision(out, "pod"); ok && d.Publish {
				published++
			}
		}
		if published > c.most || pod.published.Limits["c"] < 2000 {
			t.Errorf("%s: %d publications in ten minutes, the last of %v: want %d at most", name, published, pod.published.Limits["c"], c.most)
		}
	}
}

// TestSaturatingPodsGetIdleCPU: a capped pod that saturates, or uses up its limit, gets what is idle and at least its declared
// limit, as far as its budget buys that; on a node that has been full for Onset, and another pod at once, what its budget buys.
func TestSaturatingPodsGetIdleCPU(t *testing.T) {
	for budget, want := range map[market.Budget]map[cpu.Milli]cpu.Milli{
		1000: {0: 700, 350: 1050, 4000: 4000}, 240: {0: 700, 350: 1050, 4000: 1200}, 100: {0: 500, 350: 500, 4000: 500},
	} {
		b := bidder{
			limit: 700, published: 700, usage: 700, throttleRatio: 0.4, latestThrottleRatio: 0.4,
			bid: market.Bid{Budget: budget, Demand: 2000, Floor: 100, Ceiling: 4000},
		}
		for idle, want := range want {
			s := State{price: price{inForce: 0.2, binds: true}, room: room{idle: idle}}
			if got := s.target(DefaultConfig(), &b, PodInput{}, market.ByPrice); got != b.bid.Limit(0.2) {
				t.Errorf("budget %d, hardly throttled: %v, want its line %v", budget, got, b.bid.Limit(0.2))
			}
			saturates, usesUp := b, b
			saturates.saturating, usesUp.latestThrottleRatio = true, 0.5
			for _, b := range []bidder{saturates, usesUp} {
				if got := s.target(DefaultConfig(), &b, PodInput{}, market.ByPrice); got != want {
					t.Errorf("budget %d, %v idle, saturating %v: %v, want %v", budget, idle, b.saturating, got, want)
				}
				b.declared = 900
				if got, want := s.target(DefaultConfig(), &b, PodInput{}, market.ByPrice), min(max(want, 900), b.bid.Limit(0.2)); got != want {
					t.Errorf("budget %d, %v idle, 900m declared: %v, want %v", budget, idle, got, want)
				}
			}
			s.gauge.fullFor = time.Minute
			if got := s.target(DefaultConfig(), &b, PodInput{}, market.ByPrice); got != b.bid.Limit(0.2) {
				t.Errorf("on a full node, budget %d: %v, want its line %v", budget, got, b.bid.Limit(0.2))
			}
		}
	}
}

// TestIdleCPUIsGivenOnce: what one saturating pod gets of the idle CPU, the next one does not. What was published before,
// and is not applied, as in mode recommend, takes none.
func TestIdleCPUIsGivenOnce(t *testing.T) {
	in, rates := Input{Now: epoch}, []sense.PodRates{}
	var book []bidder
	for i, uid := range []string{"a", "b", "c"} {
		c := demand.Container{Name: uid, ID: uid, Request: 100, Declared: 500, Limit: 500}.Within(0, 4000)
		in.Pods = append(in.Pods, PodInput{Pod: demand.Pod{UID: uid, Budget: 500, Containers: []demand.Container{c}}})
		rates = append(rates, sense.PodRates{Containers: make([]sense.Rate, 1)})
		book = append(book, bidder{
			pod: i, managed: true, saturating: true, limit: 500, published: 500, usage: 500, throttleRatio: 1, latestThrottleRatio: 1,
			bid: market.Bid{Budget: 500, Demand: 2000, Floor: 100, Ceiling: 4000},
		})
	}
	s := State{price: price{inForce: 0.5, binds: true}, room: room{idle: 700}, solver: new(market.Solver)}
	var got []cpu.Milli
	for _, d := range decide(DefaultConfig(), in, rates, book, s) {
		got = append(got, d.Limit)
	}
	if want := []cpu.Milli{1000, 700, 500}; !slices.Equal(got, want) {
		t.Errorf("with 700m idle they get %v, want %v: the line of the first, and what it leaves", got, want)
	}
	book[0].published = 1000
	if got := decide(DefaultConfig(), in, rates, book, s)[1].Limit; got != 1000 {
		t.Errorf("beside one whose 1000m are published already the next gets %v, want its line of 1000m", got)
	}
	in.Pods[0].Published.At = in.Now.Add(-time.Second) // it may be applied yet
	if got := decide(DefaultConfig(), in, rates, book, s)[1].Limit; got != 700 {
		t.Errorf("beside one whose 1000m were published a second ago the next gets %v, want the 700m that are left", got)
	}
}

// TestSaturatingPodsGetNoMoreThanIsLeft: under a price that caps others, a pod that saturates, or may, has what these
// leave.
func TestSaturatingPodsGetNoMoreThanIsLeft(t *testing.T) {
	demands := func(d cpu.Milli) market.Bid { return market.Bid{Budget: 100, Demand: d, Ceiling: 4000} }
	for name, c := range map[string]struct {
		b       bidder
		bounded bool
	}{
		"throttled a little": {
			bidder{limit: 1000, usage: 900, throttleRatio: 0.3, latestThrottleRatio: 0.4, bid: demands(900)}, false},
		"throttled half of the time": {
			bidder{limit: 1000, usage: 900, throttleRatio: 0.3, latestThrottleRatio: 0.5, bid: demands(900)}, true},
		"throttled in bursts": {
			bidder{limit: 1000, usage: 500, throttleRatio: 1, latestThrottleRatio: 1, bid: demands(990)}, false},
		"throttled all the time": {
			bidder{limit: 1000, usage: 1000, latestThrottleRatio: 0.95, bid: demands(600)}, true},
		"in a pause": {
			bidder{limit: 1000, usage: 5, throttleRatio: 0.6, bid: demands(800)}, true},
		"saturating, as others leave it no more to be throttled": {
			bidder{limit: 1000, usage: 990, throttleRatio: 0.15, saturating: true, bid: demands(1000)}, true},
		"throttled within a look, so far": {
			bidder{limit: 1000, usage: 500, latestThrottleRatio: 0.5, brief: true, bid: demands(300)}, true},
	} {
		for _, binds := range []bool{true, false} {
			c.b.leftByOthers = 1500
			s := State{price: price{inForce: 0.5, binds: binds}}
			if got := s.mostRaised(DefaultConfig(), &c.b) == 1500; got != (c.bounded || !binds) {
				t.Errorf("%s, price binds %v: bounded %v", name, binds, got)
			}
		}
	}
}

// TestRaisesCanBeTakenBack: a throttled pod is raised only by so much that the way back would be published, too.
func TestRaisesCanBeTakenBack(t *testing.T) {
	cfg := DefaultConfig()
	for to, want := range map[cpu.Milli]bool{1330: false, 1340: true} {
		b := bidder{limit: 1200, throttleRatio: 0.5, latestThrottleRatio: 0.5, bid: market.Bid{Ceiling: 4000}}
		back := Decision{Limit: 1200, Containers: []ContainerLimit{{"c", 1200}}}
		was := Published{At: epoch, Limits: map[string]cpu.Milli{"c": to}}
		if got := b.worthwhile(cfg, to); got != want || changeDue(cfg, epoch.Add(time.Hour), was, back) != want {
			t.Errorf("a raise from 1200m to %v is worthwhile: %v", to, got)
		}
	}
}

// TestSmallRaisesWait: a pod is raised by more than a quarter, a throttled one to which the others leave little by more than
// half, or to its ceiling; by less once it is throttled most of the time.
func TestSmallRaisesWait(t *testing.T) {
	b := bidder{limit: 800, throttleRatio: 0.3, latestThrottleRatio: 0.3, bid: market.Bid{Ceiling: 4000}} // one of two containers
	for left, want := range map[cpu.Milli]bool{1200: false, 1210: true, 4000: true} {
		if b.leftByOthers = left; b.worthwhile(DefaultConfig(), 1200) != want {
			t.Errorf("the others leave %v: a raise from 800m to 1200m is worthwhile: %v", left, !want)
		}
	}
	for to, want := range map[cpu.Milli][3]bool{
		1300: {false, false, false}, 1400: {true, true, true}, 1500: {false, false, true}, 1510: {true, false, true},
		1800: {true, false, true}, 1810: {true, true, true},
	} {
		for i, ratio := range []float64{0, 0.49, 0.5} {
			b := bidder{limit: 1200, throttleRatio: ratio, latestThrottleRatio: ratio, bid: market.Bid{Ceiling: 1400}}
			if got := b.worthwhile(DefaultConfig(), to); got != want[i] {
				t.Errorf("throttled in %v of the periods: a raise from 1200m to %v is worthwhile: %v", ratio, to, got)
			}
		}
	}
}

// TestNoRaiseEndsJustAboveDeclared: a raise that is within 10 % of the declared limit, and so could not be lowered
// again, ends at the declared limit.
func TestNoRaiseEndsJustAboveDeclared(t *testing.T) {
	c := demand.Container{Name: "c", ID: "c", Request: 50, Declared: 1200, Limit: 600}.Within(0, 8000)
	for left, want := range map[cpu.Milli]cpu.Milli{1100: 1100, 1200: 1200, 1330: 1200, 1340: 1340} {
		s := State{estimates: map[string]demand.Estimate{"c": {Mean: 5}}}
		b := bidder{
			limit: 600, declared: 1200, usage: 600, leftByOthers: left, needs: []cpu.Milli{2400}, bid: market.Bid{Ceiling: 8000, Demand: 5000},
			throttleRatio: 0.9, latestThrottleRatio: 0.9,
		}
		if got := s.target(DefaultConfig(), &b, PodInput{Pod: demand.Pod{Containers: []demand.Container{c}}}, market.ByNothing); got != want {
			t.Errorf("the others leave %v: the limit is %v, want %v", left, got, want)
		}
	}
}

// TestContainersAreRaisedByTheirNeeds: a container that is throttled or uses much gets twice its limit or four times what it
// uses; an idle one beside it keeps its limit, and one below its declared limit may return to it. While a price caps a pod the
// one that is closest to its limit has what the others leave.
func TestContainersAreRaisedByTheirNeeds(t *testing.T) {
	container := func(name string, declared, limit cpu.Milli) demand.Container {
		return demand.Container{Name: name, ID: name, Request: 50, Declared: declared, Limit: limit}.Within(0, 8000)
	}
	p := PodInput{Pod: demand.Pod{UID: "p", Budget: 100, Containers: []demand.Container{
		container("app", 200, 200), container("sidecar", 2000, 2000), container("lowered", 900, 300), container("busy", 500, 500),
	}}}
	rate := func(usage cpu.Milli, throttled float64) sense.Rate {
		return sense.Rate{Validity: sense.Valid, Elapsed: time.Second, Usage: usage, ThrottleRatio: throttled}
	}
	rates := sense.PodRates{Containers: []sense.Rate{rate(60, 0.3), rate(10, 0), rate(30, 0.2), rate(400, 0)}}
	s := State{estimates: map[string]demand.Estimate{}}
	for j, c := range p.Containers {
		u := rates.Containers[j].Usage.Cores()
		s.estimates[c.ID] = demand.Estimate{Samples: 99, Mean: u, Latest: u, ThrottleRatio: rates.Containers[j].ThrottleRatio}
	}
	book, _ := bidders(DefaultConfig().Demand, []PodInput{p}, []sense.PodRates{rates}, s.estimates, true)
	b := &book[0]
	b.leftByOthers = 8000
	for binds, want := range map[bool][]cpu.Milli{false: {400, 2000, 900, 1600}, true: {200, 2000, 300, 7900}} {
		s.price = price{inForce: 0.1, binds: binds}
		b.brief = true
		parts := s.partsInNeed(DefaultConfig(), b, p.Pod, nil)
		raised, _ := split.Raise(parts, s.mostRaised(DefaultConfig(), b))
		for i, part := range raised {
			if part.Ceiling != want[i] {
				t.Errorf("price binds %v: %s is raised to %v, want %v", binds, p.Containers[i].Name, part.Ceiling, want[i])
			}
		}
	}
}

// TestContainersTogetherLeaveOthersTheirDemand: a pod of two containers that saturate gets what other pods leave once. The
// unused limit of a third container does not count.
func TestContainersTogetherLeaveOthersTheirDemand(t *testing.T) {
	for name, c := range map[string]struct {
		limits, demands []cpu.Milli
		want            cpu.Milli
	}{
		"one":                    {[]cpu.Milli{500}, []cpu.Milli{1000}, 3000},
		"two":                    {[]cpu.Milli{500, 500}, []cpu.Milli{1000, 1000}, 3000},
		"two beside an idle one": {[]cpu.Milli{500, 500, 4000}, []cpu.Milli{1000, 1000, 200}, 2800 + 4000},
	} {
		p, s := demand.Pod{UID: "p"}, State{estimates: map[string]demand.Estimate{}}
		b := bidder{usage: 5000, leftByOthers: 3000, bid: market.Bid{Ceiling: 20_000}}
		for i, limit := range c.limits {
			id := string(rune('a' + i))
			p.Containers = append(p.Containers, demand.Container{ID: id, Declared: limit, Limit: limit}.Within(0, 8000))
			s.estimates[id] = demand.Estimate{Mean: c.demands[i].Cores()}
		}
		if got := s.uncappedLimit(DefaultConfig(), &b, p); got != c.want {
			t.Errorf("%s: the pod is raised to %v, want %v", name, got, c.want)
		}
	}
}
