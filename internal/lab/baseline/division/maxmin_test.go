package division

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/lab/sim"
	"github.com/mbcas/mbcas/internal/lab/simtest"
)

// Three: supply 6, weights 1, 1, 2. Demand per weight: 0.5, 4, 2. First: its share is 6 x 1/4 =
// 1.5, it wants 0.5: it gets 0.5, 5.5 are left for weights 1 and 2. Third: its share is 5.5 x 2/3
// = 3.667, it wants 4: it gets 3.667. Second: the rest, 1.833.
//
// Smallest first: the bidder with the least demand per weight is served first, whatever its index.
// Of 0.9 one of two equals wants 0.2, the other the rest. Of 3.3 the second weighs 2 and wants 2,
// less than its share of 2.2; the first gets the rest.
//
// Floors: supply 3, weights 1 and 2, both want 5: 1 and 2. A floor of 1.5 for the first leaves 1.5
// for the second. A floor above the demand has no effect: with a demand of 0.2 the first gets 0.2,
// and the second 2.8. A floor above the supply leaves nothing. Without weights there are the
// floors alone.
func TestMaxMinByHand(t *testing.T) {
	for name, c := range map[string]struct {
		supply float64
		claims []claim
		want   []float64
	}{
		"three":                   {6, []claim{{1, 0.5, 0, false}, {1, 4, 0, false}, {2, 4, 0, false}}, []float64{0.5, 5.5 / 3, 11.0 / 3}},
		"smallest first, equals":  {0.9, []claim{{1, 5, 0, false}, {1, 0.2, 0, false}}, []float64{0.7, 0.2}},
		"smallest first, weights": {3.3, []claim{{1, 2, 0, false}, {2, 2, 0, false}}, []float64{1.3, 2}},
		"no floor":                {3, []claim{{1, 5, 0, false}, {2, 5, 0, false}}, []float64{1, 2}},
		"floor":                   {3, []claim{{1, 5, 1.5, false}, {2, 5, 0, false}}, []float64{1.5, 1.5}},
		"floor above demand":      {3, []claim{{1, 0.2, 1.5, false}, {2, 5, 0, false}}, []float64{0.2, 2.8}},
		"floor above supply":      {1, []claim{{1, 5, 2, false}, {1, 5, 0, false}}, []float64{2, 0}},
		"no weights":              {3, []claim{{0, math.Inf(1), 0.1, false}, {0, math.Inf(1), 0.2, false}}, []float64{0.1, 0.2}},
	} {
		if got := maxMin(c.supply, c.claims); !slices.EqualFunc(got, c.want, simtest.AlmostEqual) {
			t.Errorf("%s: shares %v, want %v", name, got, c.want)
		}
	}
}

// Uses of 1 and 0.4 with half as much room are 1.5 and 0.6. For Karma, 1 and 0.333 are 150 slices
// and 49.95, so 50. The way there begins after 10 s, with 2/1.5 at most.
func TestDemandIsScaled(t *testing.T) {
	for name, c := range map[string]struct {
		policy sim.Policy
		second float64 // cores that it uses
		want   cpu.Milli
	}{"max-min": {NewMaxMin(1.5), 0.4, 600}, "karma": {NewKarma(1.5), 0.333, 500}} {
		r := simtest.NewNode(4, simtest.Managed(100, 2000), simtest.Managed(100, 2000))
		if _, next := c.policy.Decide(&r.Snapshot); next != time.Second {
			t.Errorf("%s: next call at %v, want in 1 s", name, next)
		}
		for _, step := range []struct{ until, want cpu.Milli }{{10, 1340}, {60, c.want}} {
			got := r.Run(c.policy, time.Duration(step.until)*time.Second, []float64{1, c.second}, []float64{0, 0})
			if !slices.Equal(got, []cpu.Milli{1500, step.want}) {
				t.Errorf("%s, after %d s: limits %v, want 1500m and %v", name, step.until, got, step.want)
			}
		}
	}
}
