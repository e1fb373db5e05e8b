package division

import (
	"slices"
	"testing"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/lab/simtest"
)

// 3.6 cores are for sale. Weights 1 and 0.5, demands 1 and 2: the bids 1000 x 1 and 500 x 2 are
// equal, so the limits are to be 1.8 each. If the second uses 4, its bid is twice the first one's:
// to claim pays.
//
// The first stands at 1.1, the second at 4. Decisions fall at 15 s, 30 s, ..., each pod changes
// each 30 s at most, by x1.5 at most: 1.1 -> 1.65 (15 s), then 1.65 -> 1.8 is 9 %, which is not
// worth it. 4 -> 2.67 (15 s) -> 1.8 (45 s: 2.67/1.5 = 1.78). After the decision at 45 s the second
// pod, just lowered, uses 4 cores: 1.2 and 2.4 are due. At 60 s the first is lowered, and at 75 s,
// 30 s after its last change, the second is raised. On another node 1.63 -> 1.8 is 10.4 %, which
// is worth a resize.
func TestProportionalBidsStepsAndCooldown(t *testing.T) {
	r := simtest.NewNode(4, simtest.Managed(1000, 1100), simtest.Managed(500, 4000))
	p := NewProportionalBids()
	for _, c := range []struct {
		until  time.Duration
		second float64 // cores that it uses
		want   []cpu.Milli
	}{
		{14 * time.Second, 2, []cpu.Milli{1100, 4000}},
		{15 * time.Second, 2, []cpu.Milli{1650, 2670}},
		{44 * time.Second, 2, []cpu.Milli{1650, 2670}},
		{45 * time.Second, 2, []cpu.Milli{1650, 1800}},
		{59 * time.Second, 4, []cpu.Milli{1650, 1800}},
		{74 * time.Second, 4, []cpu.Milli{1200, 1800}},
		{75 * time.Second, 4, []cpu.Milli{1200, 2400}},
	} {
		if got := r.Run(p, c.until, []float64{1, c.second}, []float64{0, 0}); !slices.Equal(got, c.want) || r.Next != c.until+time.Second {
			t.Errorf("at %v: limits %v, want %v; next call at %v", c.until, got, c.want, r.Next)
		}
	}
	r = simtest.NewNode(4, simtest.Managed(1000, 1630), simtest.Managed(500, 1800))
	got := r.Run(NewProportionalBids(), 15*time.Second, []float64{1, 2}, []float64{0, 0})
	if !slices.Equal(got, []cpu.Milli{1800, 1800}) {
		t.Errorf("limits %v, want 1.8 each", got)
	}
}
