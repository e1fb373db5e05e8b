package division

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/lab/simtest"
)

// Supply 6, weights 1, 1, 2. Demand per weight: 0.5, 4, 2.
// First: its share is 6 x 1/4 = 1.5, it wants 0.5: it gets 0.5, 5.5 are left for weights 1 and 2.
// Third: its share is 5.5 x 2/3 = 3.667, it wants 4: it gets 3.667. Second: the rest, 1.833.
func TestMaxMinByHand(t *testing.T) {
	got := maxMin(6, []claim{{weight: 1, demand: 0.5}, {weight: 1, demand: 4}, {weight: 2, demand: 4}})
	want := []float64{0.5, 5.5 / 3, 11.0 / 3}
	if !slices.EqualFunc(got, want, simtest.AlmostEqual) {
		t.Errorf("shares %v, want %v", got, want)
	}
}

// The bidder with the least demand per weight is served first, whatever its index. Of 0.9 one of two
// equals wants 0.2, the other the rest. Of 3.3 the second weighs 2 and wants 2, less than its share
// of 2.2; the first gets the rest.
func TestMaxMinServesTheSmallestFirst(t *testing.T) {
	for _, c := range []struct {
		supply        float64
		claims        []claim
		first, second float64
	}{
		{0.9, []claim{{1, 5, 0, false}, {1, 0.2, 0, false}}, 0.7, 0.2},
		{3.3, []claim{{1, 2, 0, false}, {2, 2, 0, false}}, 1.3, 2},
	} {
		if got := maxMin(c.supply, c.claims); !simtest.AlmostEqual(got[0], c.first) || !simtest.AlmostEqual(got[1], c.second) {
			t.Errorf("supply %v: %v, want %v and %v", c.supply, got, c.first, c.second)
		}
	}
}

// A floor above the supply leaves nothing.
func TestMaxMinKeepsFloorsAboveTheSupply(t *testing.T) {
	if got := maxMin(1, []claim{{1, 5, 2, false}, {1, 5, 0, false}}); !simtest.AlmostEqual(got[0], 2) || !simtest.AlmostEqual(got[1], 0) {
		t.Errorf("shares %v, want 2 and 0", got)
	}
}

// Uses of 1 and 0.4 with half as much room are 1.5 and 0.6. The way there begins after 10 s, with
// 2/1.5 at most.
func TestMaxMinScalesDemand(t *testing.T) {
	r := simtest.NewNode(4, simtest.ManagedPod(0, 100, 2000), simtest.ManagedPod(1, 100, 2000))
	p := NewMaxMin(1.5)
	if _, next := p.Decide(&r.Snapshot); next != time.Second {
		t.Errorf("next call at %v, want in 1 s", next)
	}
	for until, want := range []cpu.Milli{10: 1340, 60: 600} {
		got := r.Run(p, time.Duration(until)*time.Second, []float64{1, 0.4}, []float64{0, 0})
		if want > 0 && !slices.Equal(got, []cpu.Milli{1500, want}) {
			t.Errorf("after %d s: limits %v, want 1500m and %v", until, got, want)
		}
	}
}

// Supply 3, weights 1 and 2, both want 5: 1 and 2. A floor of 1.5 for the first leaves 1.5 for the
// second. A floor above the demand has no effect: with a demand of 0.2 the first gets 0.2, and the
// second 2.8.
func TestMaxMinKeepsFloors(t *testing.T) {
	for _, c := range []struct{ demand, floor, first, second float64 }{{5, 0, 1, 2}, {5, 1.5, 1.5, 1.5}, {0.2, 1.5, 0.2, 2.8}} {
		got := maxMin(3, []claim{{1, c.demand, c.floor, false}, {2, 5, 0, false}})
		if !simtest.AlmostEqual(got[0], c.first) || !simtest.AlmostEqual(got[1], c.second) {
			t.Errorf("demand %v and floor %v: %v, want %v and %v", c.demand, c.floor, got, c.first, c.second)
		}
	}
}

func TestMaxMinWithoutWeights(t *testing.T) {
	got := maxMin(3, []claim{{0, math.Inf(1), 0.1, false}, {0, math.Inf(1), 0.2, false}})
	if !simtest.AlmostEqual(got[0], 0.1) || !simtest.AlmostEqual(got[1], 0.2) {
		t.Errorf("a pod without weight gets %v, want the floors", got)
	}
}

// 4 cores less 10 % are 3.6. Requests of 1 and 0.5 weigh 2:1. Both use 2 cores, throttled in no
// period, so they want 2 each: 2.4 would be the first one's share, it gets 2; the second gets the
// other 1.6. Lowering from 3 goes by /1.5 each 15 s: 3 -> 2 at once, and 3 -> 2 -> 1.6.
func TestMaxMinLimitIsTheAllotment(t *testing.T) {
	r := simtest.NewNode(4, simtest.ManagedPod(0, 1000, 3000), simtest.ManagedPod(1, 500, 3000))
	got := r.Run(NewMaxMin(1), 40*time.Second, []float64{2, 2}, []float64{0, 0})
	if want := []cpu.Milli{2000, 1600}; !slices.Equal(got, want) {
		t.Errorf("limits %v, want %v", got, want)
	}
}
