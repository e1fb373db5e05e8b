package round

import (
	"testing"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/market"
)

// TestCapBand: a budget that buys 1000m, with a band of a tenth.
func TestCapBand(t *testing.T) {
	cfg := DefaultConfig()
	for _, c := range []struct {
		demand, published cpu.Milli
		want              market.Bound
	}{
		{900, 4000, market.ByNothing},
		{1090, 4000, market.ByNothing}, // above, but not clearly
		{1110, 4000, market.ByPrice},
		{1090, 1000, market.ByPrice}, // it is capped already
		{900, 1000, market.ByNothing},
		{1090, 0, market.ByPrice}, // nothing was published
	} {
		bid := market.Bid{Budget: 500, Demand: c.demand, Floor: 100, Ceiling: 4000}
		e := bidder{managed: true, published: c.published, bid: bid}
		if got := e.bound(cfg, 0.5); got != c.want {
			t.Errorf("demand %v, published %v: bound by %v, want %v", c.demand, c.published, got, c.want)
		}
	}
}

// TestJustAboveItsShareIsNotCapped: beside a saturating pod of the same budget the share of a
// service is half of the supply of 3600m.
func TestJustAboveItsShareIsNotCapped(t *testing.T) {
	batch := &fakePod{name: "batch", request: 500, declared: 4000, demand: 8000}
	service := &fakePod{name: "service", request: 500, declared: 4000, demand: 1700}
	w := newWorld(batch, service)
	w.cfg.TrimGain, w.cfg.PriceBand = 0, 0.01 // the price follows the demands at once
	for _, step := range []struct {
		want   cpu.Milli
		capped bool
	}{
		{1700, false},
		{1900, false}, // less than a tenth above its share
		{2200, true},
		{1900, true}, // throttled at its limit, its estimate is as high as before
		{1700, false},
	} {
		service.demand = step.want
		w.run(60)
		if service.limit < 2000 != step.capped {
			t.Errorf("with a demand of %v the limit is %v", step.want, service.limit)
		}
	}
}
