package round

import (
	"testing"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/market"
)

func TestTermsBind(t *testing.T) {
	// Two hogs on four cores: the first is watched by an HPA, so it has a floor; the third pod has a ceiling of its own.
	first := &tenant{name: "first", request: 200, declared: 500, want: 4000, least: 1500}
	second := &tenant{name: "second", request: 800, declared: 1000, want: 4000}
	third := &tenant{name: "third", request: 200, declared: 500, want: 4000, most: 700}
	w := newWorld(first, second, third)
	for range 60 {
		out := w.tick()
		for name, bound := range map[string][2]cpu.Milli{"first": {1500, 4000}, "third": {210, 700}} {
			if d, ok := decision(out, name); ok && (d.Limit < bound[0] || d.Limit > bound[1] || d.Floor != bound[0] || d.Ceiling != bound[1]) {
				t.Fatalf("%s: %+v, want within %v", name, d, bound)
			}
		}
	}
	if second.limit < 2350 || second.limit > 2450 {
		t.Errorf("the second has %v: want its share of 3600m, four parts of six, and no more beside a pod that has more than its own", second.limit)
	}

	// A pod that must not be lowered keeps what it has when a rival comes, and the rival gets its share.
	firm := &tenant{name: "firm", request: 200, declared: 2500, want: 4000, firm: true}
	rival := &tenant{name: "rival", request: 200, declared: 2500}
	w = newWorld(firm, rival)
	w.run(30)
	held := firm.limit
	rival.want = 4000
	w.run(60)
	if firm.limit < held || held < 2500 {
		t.Errorf("%v of %v is left to a pod that must not be lowered", firm.limit, held)
	}
	if rival.limit < 1750 || rival.limit > 1850 {
		t.Errorf("the rival has %v beside a pod that must not be lowered, want its share of 3600m", rival.limit)
	}
	// Its ceiling brings it down all the same.
	firm.firm, firm.least, firm.most = false, 1000, 1000
	w.run(60)
	if firm.limit != 1000 {
		t.Errorf("limit %v under a ceiling of one core", firm.limit)
	}
}

// TestKeptUpTakesNothing: a pod that is kept up, for whatever reason, takes from nobody what that one's budget buys, also when it asks for
// more than it demands.
func TestKeptUpTakesNothing(t *testing.T) {
	for name, kept := range map[string]tenant{
		"by a budget that allows no disruption": {request: 100, declared: 4000, want: 4000, firm: true},
		"by an HPA":                             {request: 500, declared: 500, want: 4000, least: 4000},
		"and asks for more":                     {request: 500, declared: 4000, want: 1200, firm: true, percent: 300},
	} {
		kept.name = "kept"
		other := tenant{name: "other", request: 1000, declared: 2000}
		w := newWorld(&kept, &other)
		w.run(30)
		other.want = 8000
		share := cpu.Milli(3600 * 1000 / (1000 + float64(kept.request)))
		out := w.run(120)
		if other.limit < share-50 {
			t.Errorf("%s: the other is held to %v of its share of %v", name, other.limit, share)
		}
		if out.Node.FloorsExceedSupply || out.Node.Price > 1 {
			t.Errorf("%s: price %v, floors exceed supply: %v", name, out.Node.Price, out.Node.FloorsExceedSupply)
		}
		if kept.limit < 4000 {
			t.Errorf("%s: it is not kept up, but lowered to %v", name, kept.limit)
		}
	}
}

func TestRaisedOnNeed(t *testing.T) {
	idle := &tenant{name: "idle", request: 100, declared: 500, want: 50, onNeed: true, most: 2000}
	busy := &tenant{name: "busy", request: 100, declared: 500, want: 450, onNeed: true, most: 2000}
	free := &tenant{name: "free", request: 100, declared: 500, want: 50}
	w := newWorld(idle, busy, free)
	out := w.run(30)
	if out.Node.Price != 0 || idle.limit != 500 || busy.limit != 2000 || free.limit != 4000 {
		t.Errorf("price %v, limits %v, %v and %v: want the idle one left alone, and the busy one at its ceiling", out.Node.Price, idle.limit, busy.limit, free.limit)
	}
	// What it does not need any more is told with the publish interval, not only with the refresh.
	told := idle.published.At
	idle.want = 200
	w.run(int(w.cfg.PublishInterval.Seconds()) + 3)
	if idle.published.At.Equal(told) {
		t.Error("a demand that has changed is not told while others wait for it")
	}
}

func TestWeights(t *testing.T) {
	for _, c := range []struct {
		w       demand.Weights
		request cpu.Milli
		want    market.Budget
	}{
		{demand.Weights{PriorityPercent: 100}, 250, 250},
		{demand.Weights{PriorityPercent: 150, FairnessPercent: 200}, 250, 750},
		{demand.Weights{PriorityPercent: 50, FairnessPercent: 50}, 250, 63},
		{demand.Weights{PriorityPercent: 100}, 0, 2},
	} {
		if got := c.w.Budget(c.request); got != c.want {
			t.Errorf("%+v of %v: %v, want %v", c.w, c.request, got, c.want)
		}
	}
}
