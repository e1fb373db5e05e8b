package round

import (
	"testing"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/market"
)

// TestWhoIsHeld: a budget that buys 1000m, with a band of a tenth.
func TestWhoIsHeld(t *testing.T) {
	cfg := DefaultConfig()
	for _, c := range []struct {
		demand, offered cpu.Milli
		want            market.Bound
	}{
		{900, 4000, market.ByNothing},
		{1090, 4000, market.ByNothing}, // above, but not clearly
		{1110, 4000, market.ByPrice},
		{1090, 1000, market.ByPrice}, // it is held already
		{900, 1000, market.ByNothing},
		{1090, 0, market.ByPrice}, // nothing was published
	} {
		e := bidder{managed: true, published: c.offered, bid: market.Bid{Budget: 500, Demand: c.demand, Floor: 100, Ceiling: 4000}}
		if got := e.bound(cfg, 0.5); got != c.want {
			t.Errorf("demand %v, offered %v: held by %v, want %v", c.demand, c.offered, got, c.want)
		}
	}
}

// TestJustAboveItsShareIsNotHeld: beside a hog of the same budget a service's share is half of the 3600m that can be sold.
func TestJustAboveItsShareIsNotHeld(t *testing.T) {
	hog := &tenant{name: "hog", request: 500, declared: 4000, want: 8000}
	service := &tenant{name: "service", request: 500, declared: 4000, want: 1700}
	w := newWorld(hog, service)
	w.cfg.TrimGain, w.cfg.PriceBand = 0, 0.01 // the price is what the demands say
	for _, step := range []struct {
		want  cpu.Milli
		holds bool
	}{
		{1700, false},
		{1900, false}, // less than a tenth above its share
		{2200, true},
		{1900, true}, // throttled at its limit, it shows as much as before
		{1700, false},
	} {
		service.want = step.want
		w.run(60)
		if service.limit < 2000 != step.holds {
			t.Errorf("wanting %v it has a limit of %v", step.want, service.limit)
		}
	}
}
