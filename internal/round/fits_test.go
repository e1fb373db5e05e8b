package round

import (
	"math/rand/v2"
	"testing"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/testing/atlength"
	"github.com/mbcas/mbcas/market"
)

// TestNoPodIsLoweredWhileDemandsFit: the price of an installation that has ended stays in force for FallDelay, but
// lowers no pod any more, also none that was to be lowered in steps.
func TestNoPodIsLoweredWhileDemandsFit(t *testing.T) {
	// after is a node just after a pod installed something on it for some seconds.
	after := func(t *testing.T, busy int) (*world, *fakePod) {
		service := &fakePod{name: "service", request: 100, declared: 1600, demand: 20, waits: 0.1}
		installed := &fakePod{name: "installed", request: 900, unmanaged: true, demand: 100}
		other := &fakePod{name: "other", request: 100, declared: 1600, demand: 150, waits: 0.1}
		w := priceAlone(service, installed, other)
		w.node = Node{Capacity: 2000, Allocatable: 1600}
		w.run(30)
		installed.demand, installed.waits = 8000, 1
		out := w.run(busy)
		installed.demand, installed.waits = 20, 0
		for out.Node.Cleared > 0 {
			out = w.tick()
		}
		out = w.run(3)
		if out.Node.Price == 0 || out.Node.Cleared > 0 || service.limit != service.declared {
			t.Fatalf("price %v, cleared %v, limit %v: want a price from before beside demands that fit",
				out.Node.Price, out.Node.Cleared, service.limit)
		}
		return w, service
	}
	t.Run("demand begins", func(t *testing.T) {
		w, service := after(t, 8)
		service.demand = 217
		capped := false
		for range 20 {
			out := w.tick()
			d, _ := decision(out, "service")
			capped = capped || d.Bound == market.ByPrice
			if out.Node.Cleared == 0 && service.limit < service.declared {
				t.Fatalf("its limit is %v at price %v, while all demands fit", service.limit, out.Node.Price)
			}
		}
		if !capped {
			t.Error("the pod was never capped: this proves nothing")
		}
	})
	t.Run("on its way down", func(t *testing.T) {
		w, service := after(t, 8)
		service.demand = 217
		w.run(4)
		service.published.Limits["c"] = 150
		service.published.At = w.now
		service.limit = 1070 // after the first step
		if w.run(2); service.published.Limits["c"] < 1070 {
			t.Errorf("the published limit is %v, of a pod at %v: want no further step", service.published.Limits["c"], service.limit)
		}
	})
}

// TestDemandsAroundTheSupplyWriteLittle: demands that exceed the supply for a while and fit for a while change the
// published limits no more often for it, whether they are carried out, in steps, or not at all.
func TestDemandsAroundTheSupplyWriteLittle(t *testing.T) {
	const nodes, first = 60, 2 * 60 // seconds that do not count
	seconds := atlength.Of(6, 20) * 60
	for name, c := range map[string]struct {
		most  int // of publications per pod and minute, in hundredths
		apply func(*fakePod, *world, cpu.Milli)
	}{
		"at once": {249, func(*fakePod, *world, cpu.Milli) {}},
		"in steps": {210, func(p *fakePod, w *world, before cpu.Milli) {
			if p.limit = max(p.limit, before); w.now.Unix()%5 == 0 {
				p.limit = max(p.published.Limits["c"], p.limit*2/3)
			}
		}},
		"not at all": {101, func(p *fakePod, _ *world, _ cpu.Milli) { p.limit = 4000 }},
	} {
		writes, fit := 0, 0
		for seed := range uint64(nodes) {
			draw := rand.New(rand.NewPCG(seed, 2))
			service := &fakePod{name: "service", request: 1000, declared: 2000, demand: 1000}
			other := &fakePod{name: "other", request: 300, declared: 4000, waits: 0.2}
			third := &fakePod{name: "third", request: 100, declared: 4000, demand: 900, waits: 0.2}
			w := newWorld(service, other, third)
			low, high := cpu.Milli(draw.IntN(2000)), cpu.Milli(1800+draw.IntN(2000))
			period := 4 + draw.IntN(40)
			length := 1 + draw.IntN(period-1)
			for second := range seconds {
				other.demand = low
				if second%period < length {
					other.demand = high
				}
				before := []cpu.Milli{service.limit, other.limit, third.limit}
				out := w.tick()
				for i, p := range w.pods {
					if second >= first && p.published.At.Equal(w.now) {
						writes++
					}
					c.apply(p, w, before[i])
				}
				if out.Node.Price > 0 && out.Node.Cleared == 0 {
					fit++
				}
			}
		}
		if got := writes * 100 * 60 / (nodes * (seconds - first) * 3); got > c.most || fit < nodes*seconds/50 {
			t.Errorf("limits follow %s: %d publications per 100 pods and minute, want at most %d; %d s with demands that fit",
				name, got, c.most, fit)
		}
	}
}

// TestSlackIsKept: a round that does not know the demand keeps what all demands left of the supply, as it keeps the
// price: it begins no decrease at a price of the past.
func TestSlackIsKept(t *testing.T) {
	for name, c := range map[string]clearing{
		"usage is not known":  {node: &NodeDecision{Supply: 1000}, demandKnown: true},
		"demand is not known": {node: &NodeDecision{Supply: 1000, UsageKnown: true}},
	} {
		c.cfg, c.solver = DefaultConfig(), new(market.Solver)
		if after := (price{inForce: 2, slack: amplyFit}).moved(c); after.slack != amplyFit || after.inForce != 2 {
			t.Errorf("%s: the slack is %v at price %v, want both kept", name, after.slack, after.inForce)
		}
	}
}
