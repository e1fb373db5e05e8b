package division

import (
	"math"
	"testing"
	"time"

	"github.com/mbcas/mbcas/internal/lab/sim"
	"github.com/mbcas/mbcas/internal/lab/simtest"
)

// TestShadowsTakePart: a pod without a limit, on a node with a supply of 3.6 cores, takes part with
// its budget.
func TestShadowsTakePart(t *testing.T) {
	w := simtest.NewNode(4, sim.PodSpec{Name: "service", Request: 1000, Limit: 2000}, sim.PodSpec{Name: "free", Request: 500}, sim.PodSpec{Name: "own", Request: 100, Limit: 400, OptOut: true})
	s := newSensor()
	for range 60 {
		s.bidders(&w.Snapshot)
		w.Advance(time.Second, 1.6, 2, 0.4)
	}
	bidders, supply := s.bidders(&w.Snapshot)
	if math.Abs(supply-3.6) > 1e-9 || bidders[0].shadow || !bidders[1].shadow || !bidders[2].shadow {
		t.Fatalf("supply %v, bidders %+v: want 3.6, and the last two as shadows", supply, bidders)
	}
	// Their demands are 4 of 3.6 cores. The first one's 1.6 are within its share, and the others
	// have 5 to 1 of the rest.
	shares := maxMin(supply, claims(bidders))
	for i, want := range []float64{1.6, 2 * 5.0 / 6, 2 * 1.0 / 6} {
		if math.Abs(shares[i]-want) > 0.02 {
			t.Errorf("shares %v: want %.3f for the one in place %d", shares, want, i)
		}
	}
	if got := targets(bidders, shares); len(got) != 1 || got[0].pod.ID != 0 {
		t.Errorf("targets %+v: want one, of the service", got)
	}
}

// TestDemandEstimateMatchesMBCAS: on a full node a pod that waits below its share has a higher
// demand than usage, and a throttled pod keeps its demand when its usage falls.
func TestDemandEstimateMatchesMBCAS(t *testing.T) {
	w := simtest.NewNode(2, sim.PodSpec{Name: "starved", Request: 1000, Limit: 2000}, sim.PodSpec{Name: "batch", Request: 500, Limit: 2000})
	s := newSensor()
	play := func(seconds int, starved, batch float64, throttled uint64) {
		for range seconds {
			w.Advance(time.Second, starved, batch)
			w.Pods[0].Pressure += time.Second
			w.Pods[1].Periods += 10
			w.Pods[1].Throttled += throttled
			s.update(&w.Snapshot)
		}
	}
	play(20, 0.4, 1.5, 0) // 95 % of the node
	if e, _ := s.update(&w.Snapshot); math.Abs(e[0].Mean-0.4) > 0.01 {
		t.Fatalf("beside idle CPU its demand is %v, want its usage of 0.4", e[0].Mean)
	}
	play(20, 0.4, 1.6, 0)
	e, _ := s.update(&w.Snapshot)
	if math.Abs(e[0].Mean-0.8) > 0.01 {
		t.Errorf("starved its demand is %v, want twice its usage of 0.4", e[0].Mean)
	}
	w.Pods[1].Limit = 500
	play(20, 0.4, 0.5, 10)
	if e, _ := s.update(&w.Snapshot); math.Abs(e[1].Mean-1.6) > 0.01 {
		t.Errorf("limited to 0.5 its demand is %v, want 1.6 as before", e[1].Mean)
	}
}
