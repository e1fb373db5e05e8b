package round

import (
	"testing"

	"github.com/mbcas/mbcas/cpu"
)

func TestConstraintsBind(t *testing.T) {
	// Two saturating pods on four cores: the first has the floor of an HPA; the third pod has a
	// ceiling.
	first := &fakePod{name: "first", request: 200, declared: 500, demand: 4000, floor: 1500}
	second := &fakePod{name: "second", request: 800, declared: 1000, demand: 4000}
	third := &fakePod{name: "third", request: 200, declared: 500, demand: 4000, ceiling: 700}
	w := priceAlone(first, second, third)
	for range 60 {
		out := w.tick()
		for name, bound := range map[string][2]cpu.Milli{"first": {1500, 4000}, "third": {210, 700}} {
			if d, ok := decision(out, name); ok &&
				(d.Limit < bound[0] || d.Limit > bound[1] || d.Floor != bound[0] || d.Ceiling != bound[1]) {
				t.Fatalf("%s: %+v, want within %v", name, d, bound)
			}
		}
	}
	if second.limit < 2350 || second.limit > 2450 {
		t.Errorf("the second has %v: want four sixths of 3600m, its share, also beside a pod whose floor is above its share",
			second.limit)
	}

	// A pod that must not be decreased keeps its limit under contention, and the other pod gets its
	// share.
	firm := &fakePod{name: "firm", request: 200, declared: 2500, demand: 4000, firm: true}
	other := &fakePod{name: "other", request: 200, declared: 2500}
	w = priceAlone(firm, other)
	w.cfg.CapBand = 0.1 // of a full node the weights give it a tenth more than its share
	w.run(30)
	before := firm.limit
	other.demand = 4000
	w.run(60)
	if firm.limit < before || before < 2500 {
		t.Errorf("a pod that must not be decreased has %v, and had %v", firm.limit, before)
	}
	if other.limit < 1750 || other.limit > 1850 {
		t.Errorf("the other pod has %v beside a pod that must not be decreased, want its share of 3600m", other.limit)
	}
	// A ceiling lowers it nevertheless.
	firm.firm, firm.floor, firm.ceiling = false, 1000, 1000
	w.run(60)
	if firm.limit != 1000 {
		t.Errorf("limit %v under a ceiling of one core", firm.limit)
	}
}

// TestConstraintFloorsTakeNoShare: a pod whose constraint keeps its limit above its share takes
// nothing that another budget buys, also with a DemandSignal.
func TestConstraintFloorsTakeNoShare(t *testing.T) {
	for name, kept := range map[string]fakePod{
		"a PodDisruptionBudget": {request: 100, declared: 4000, demand: 4000, firm: true},
		"an HPA":                {request: 500, declared: 500, demand: 4000, floor: 4000},
		"also a DemandSignal":   {request: 500, declared: 4000, demand: 1200, firm: true, percent: 300},
	} {
		kept.name = "kept"
		other := fakePod{name: "other", request: 1000, declared: 2000}
		w := newWorld(&kept, &other)
		w.run(30)
		other.demand = 8000
		share := cpu.Milli(3600 * 1000 / (1000 + float64(kept.request)))
		out := w.run(120)
		if other.limit < share-50 {
			t.Errorf("%s: the other pod has %v of its share of %v", name, other.limit, share)
		}
		if out.Node.FloorsExceedSupply || out.Node.Price > 1 {
			t.Errorf("%s: price %v, floors exceed supply: %v", name, out.Node.Price, out.Node.FloorsExceedSupply)
		}
		if kept.limit < 4000 {
			t.Errorf("%s: it is lowered to %v in spite of its constraint", name, kept.limit)
		}
	}
}

func TestRaisedOnNeed(t *testing.T) {
	idle := &fakePod{name: "idle", request: 100, declared: 500, demand: 50, onNeed: true, ceiling: 2000}
	busy := &fakePod{name: "busy", request: 100, declared: 500, demand: 450, onNeed: true, ceiling: 2000}
	free := &fakePod{name: "free", request: 100, declared: 500, demand: 240}
	some := &fakePod{name: "some", request: 100, declared: 500, demand: 200, onNeed: true, ceiling: 2000}
	w := newWorld(idle, busy, free, some)
	out := w.run(30)
	if out.Node.Price != 0 || idle.limit != 500 || busy.limit != 1800 || free.limit != 500 || some.limit != 500 {
		t.Errorf(
			"price %v, limits %v, %v, %v and %v: want four times its usage for the busy pod alone",
			out.Node.Price, idle.limit, busy.limit, free.limit, some.limit)
	}
	free.demand = 260
	w.run(5)
	if free.limit != 1040 {
		t.Errorf("a pod that uses more than half of its limit has %v, want four times its usage", free.limit)
	}
	free.demand = 0
	w.run(30)
	if free.limit != 1040 || free.changes != 1 {
		t.Errorf("idle again it has %v after %d changes, want its limit to stay", free.limit, free.changes)
	}
	// A changed demand is published although the limit stays.
	before := idle.published.At
	idle.demand = 200
	w.run(int(w.cfg.QuotaInterval.Seconds()) + 3)
	if idle.published.At.Equal(before) {
		t.Error("a changed demand is not published while other pods wait for the quota")
	}
}
