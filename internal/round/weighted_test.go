package round

import (
	"testing"

	"github.com/mbcas/mbcas/market"
)

// TestWeightedPodsAreNotCapped: the price is as without weights, and no limit falls for it.
func TestWeightedPodsAreNotCapped(t *testing.T) {
	service := &fakePod{name: "service", request: 1000, declared: 2000, demand: 1500}
	batch := &fakePod{name: "batch", request: 500, declared: 1000, demand: 16000, weighted: true}
	w := newWorld(service, batch)
	out := w.run(60)
	d, _ := decision(out, "batch")
	if out.Node.Price == 0 || d.Bound != market.ByNothing || batch.limit != w.node.Allocatable || batch.changes != 1 {
		t.Errorf("at price %v the weighted pod is bound by %v, has %v after %d changes: want its ceiling after one",
			out.Node.Price, d.Bound, batch.limit, batch.changes)
	}
	batch.weighted = false
	out = w.tick()
	if d, _ = decision(out, "batch"); d.Bound != market.ByPrice || !d.Publish || d.Limit >= 3000 {
		t.Errorf("when it is no more weighted it gets %v, bound by %v, published %v: want it capped at once",
			d.Limit, d.Bound, d.Publish)
	}
	batch.weighted = true
	if w.run(10); batch.limit != w.node.Allocatable {
		t.Errorf("weighted again it has %v: want its ceiling", batch.limit)
	}
}
