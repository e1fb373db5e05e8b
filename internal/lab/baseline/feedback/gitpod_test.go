package feedback

import (
	"slices"
	"testing"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/lab/simtest"
)

// Bandwidth 4. All three have fixed limits of 1, burst limits of 3. In the last interval they used
// 0.3, 0.5 and 1, so 1.8 is booked. Throttled were the second and the third. Least use first: the
// first keeps 1; the second bursts, 1.8 + 3 is booked; the third finds 4.8 of 4 booked and keeps 1.
// If the first had been throttled, too, only it would burst.
func TestGitpodByHand(t *testing.T) {
	for _, c := range []struct {
		first float64
		want  []cpu.Milli
	}{{0, []cpu.Milli{1000, 3000, 1000}}, {0.5, []cpu.Milli{3000, 1000, 1000}}} {
		p := NewGitpod()
		r := simtest.NewNode(4, simtest.Managed(100, 1000), simtest.Managed(100, 1000), simtest.Managed(100, 1000))
		throttled := []float64{c.first, 0.2, 1}
		if got := r.Run(p, 15*time.Second, []float64{0.3, 0.5, 1}, throttled); !slices.Equal(got, []cpu.Milli{1000, 1000, 1000}) {
			t.Fatalf("throttled for the first time: limits %v, want the fixed ones", got)
		}
		if got := r.Run(p, 30*time.Second, []float64{0.3, 0.5, 1}, throttled); !slices.Equal(got, c.want) {
			t.Errorf("first throttled in %v of the periods: limits %v, want %v", c.first, got, c.want)
		}
	}
}

// The pods have run for a minute and were throttled once when they are first seen, so the next
// interval can make them burst. Since then the third has used less than the second, so it goes
// first, and books 3 after the 1.8 in use; the first is not throttled, and gets its fixed limit. A
// pod that is no longer throttled gets that as well. When no more than 1.8 are there, no pod
// bursts.
func TestGitpodCountsFromTheFirstSample(t *testing.T) {
	for allocatable, third := range map[cpu.Milli]cpu.Milli{4000: 3000, 1800: 1000} {
		p := NewGitpod()
		r := simtest.NewNode(4, simtest.Managed(100, 1000), simtest.Managed(100, 1000), simtest.Managed(100, 1000))
		r.Allocatable = allocatable
		r.Next, r.ThrottledPeriods, r.Pods[0].Limit = time.Minute, []float64{1, 1, 1}, 1500
		use, calm := []float64{0.3, 1, 0.5}, []float64{0, 0, 0}
		for _, c := range []struct {
			until          time.Duration
			use, throttled []float64
			want           []cpu.Milli
		}{
			{time.Minute, []float64{0.1, 0.1, 0.9}, calm, []cpu.Milli{1500, 1000, 1000}},
			{75 * time.Second, use, []float64{0, 1, 0.2}, []cpu.Milli{1000, 1000, third}},
			{90 * time.Second, use, calm, []cpu.Milli{1000, 1000, 1000}},
		} {
			if got := r.Run(p, c.until, c.use, c.throttled); !slices.Equal(got, c.want) {
				t.Errorf("allocatable %v, at %v: limits %v, want %v", allocatable, c.until, got, c.want)
			}
		}
	}
}

// One alone bursts, and a pod of a higher class goes first, although it has used more.
func TestGitpodClassGoesFirst(t *testing.T) {
	alone := simtest.NewNode(4, simtest.Managed(100, 1000))
	if got := alone.Run(NewGitpod(), 30*time.Second, []float64{1}, []float64{1}); got[0] != 3000 {
		t.Errorf("alone: limit %v, want 3000m", got[0])
	}
	r := simtest.NewNode(3, simtest.Managed(100, 1000), simtest.Managed(100, 1000))
	r.Pods[1].Spec.Priority = 2000
	got := r.Run(NewGitpod(), 46*time.Second, []float64{0.3, 0.5}, []float64{1, 1})
	if want := []cpu.Milli{1000, 3000}; !slices.Equal(got, want) {
		t.Errorf("limits %v, want %v", got, want)
	}
}
