package division

import (
	"slices"
	"testing"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/lab/simtest"
)

// Supply 4, weights 1 and 3, peaks 1 and 2: both are met, and of the 1 that is left over a quarter
// and three quarters go to them: 1.25 and 2.75. Peaks of 3 and 6: 1 and 3, nothing is left. A floor
// of 1.5 is met in full: 1.5 and 2.5. One of 5 is, too, though nothing is left for the other.
// Without weights there are the floors alone.
func TestStrictByHand(t *testing.T) {
	for _, c := range []struct{ a, b, floor, first, second float64 }{{1, 2, 0, 1.25, 2.75}, {3, 6, 0, 1, 3}, {3, 6, 1.5, 1.5, 2.5}, {3, 6, 5, 5, 0}} {
		got := partition(4, []claim{{1, c.a, c.floor, false}, {3, c.b, 0, false}})
		if !simtest.AlmostEqual(got[0], c.first) || !simtest.AlmostEqual(got[1], c.second) {
			t.Errorf("peaks %v and %v: limits %v, want %v and %v", c.a, c.b, got, c.first, c.second)
		}
	}
	if got := partition(4, []claim{{1, 1, 0, false}, {3, 1, 0, true}}); !simtest.AlmostEqual(got[0], 3) || !simtest.AlmostEqual(got[1], 1) {
		t.Errorf("beside one that uses no more than 1: %v, want 3 and 1", got)
	}
	if got := partition(4, []claim{{0, 1, 0.1, false}, {0, 1, 0.2, false}}); !simtest.AlmostEqual(got[0], 0.1) || !simtest.AlmostEqual(got[1], 0.2) {
		t.Errorf("a pod without weight gets %v, want the floors", got)
	}
}

// 3.6 cores. The first used 2 cores once and then 0.2, the second always 2. Equal weights: peaks 2
// and 2 make 1.8 each as long as the peak counts (300 s). Then the floor of the first, 0.51, and
// the peak of 2 are met, and 1.09 is shared: 1.055 and 2.545, in steps of 10m 1.05 and 2.54. The
// first goes to 1.8/1.5 at once.
func TestStrictKeepsPeaks(t *testing.T) {
	r := simtest.NewNode(4, simtest.Managed(500, 1800), simtest.Managed(500, 1800))
	p := NewStrict()
	if _, next := p.Decide(&r.Snapshot); next != time.Second {
		t.Errorf("next call at %v, want in 1 s", next)
	}
	r.Run(p, 20*time.Second, []float64{2, 2}, []float64{0, 0})
	if got, want := r.Run(p, 319*time.Second, []float64{0.2, 2}, []float64{0, 0}), []cpu.Milli{1800, 1800}; !slices.Equal(got, want) {
		t.Errorf("while the peak counts: limits %v, want %v", got, want)
	}
	if got, want := r.Run(p, 320*time.Second, []float64{0.2, 2}, []float64{0, 0}), []cpu.Milli{1200, 2540}; !slices.Equal(got, want) {
		t.Errorf("as the peak is gone: limits %v, want %v", got, want)
	}
	if got, want := r.Run(p, 340*time.Second, []float64{0.2, 2}, []float64{0, 0}), []cpu.Milli{1050, 2540}; !slices.Equal(got, want) {
		t.Errorf("after the peak: limits %v, want %v", got, want)
	}
}
