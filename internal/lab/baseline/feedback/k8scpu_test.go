package feedback

import (
	"slices"
	"testing"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/lab/simtest"
)

// Threshold 0.5: 1 core of use makes a limit of 2 at 15 s. Then 0.2 cores of use recommend 0.4, but
// the 2 counts for 20 decisions, at 15 s, 30 s, ..., 300 s; at 315 s it is gone.
func TestK8sCPUByHand(t *testing.T) {
	p := NewK8sCPU(0.5, false)
	r := simtest.NewNode(4, simtest.ManagedPod(0, 100, 1000))
	for _, c := range []struct {
		until time.Duration
		use   float64
		want  cpu.Milli
	}{{14 * time.Second, 1, 1000}, {15 * time.Second, 1, 2000}, {300 * time.Second, 0.2, 2000}, {315 * time.Second, 0.2, 400}} {
		if got := r.Run(p, c.until, []float64{c.use}, []float64{0}); !slices.Equal(got, []cpu.Milli{c.want}) {
			t.Errorf("at %v: limit %v, want %v", c.until, got, c.want)
		}
	}
}

// Threshold 0.7: 0.7 cores make 1 after a second, whatever was used in the minute before the first
// sample; 0.07 make 0.1 only when 20 s have passed.
func TestK8sCPUFastByHand(t *testing.T) {
	p := NewK8sCPU(0.7, true)
	r := simtest.NewNode(4, simtest.ManagedPod(0, 50, 600))
	r.Next = time.Minute
	r.Run(p, time.Minute, []float64{0.3}, []float64{0})
	for _, c := range []struct {
		until time.Duration
		use   float64
		want  cpu.Milli
	}{{time.Second, 0.7, 1000}, {20 * time.Second, 0.07, 1000}, {21 * time.Second, 0.07, 100}} {
		if got := r.Run(p, time.Minute+c.until, []float64{c.use}, []float64{0}); !slices.Equal(got, []cpu.Milli{c.want}) {
			t.Errorf("at %v: limit %v, want %v", c.until, got, c.want)
		}
	}
}
