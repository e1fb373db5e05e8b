package feedback

import (
	"testing"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/lab/sim"
	"github.com/mbcas/mbcas/internal/lab/simtest"
)

// Threshold 0.5: 1 core of use makes a limit of 2 at 15 s. Then 0.2 cores of use recommend 0.4, but
// the 2 counts for 20 decisions, at 15 s, 30 s, ..., 300 s; at 315 s it is gone.
//
// Fast, threshold 0.7: 0.7 cores make 1 after a second, whatever was used in the minute before the
// first sample; 0.07 make 0.1 only when 20 s have passed.
func TestK8sCPUByHand(t *testing.T) {
	type step struct {
		until time.Duration
		use   float64
		want  cpu.Milli
	}
	for _, c := range []struct {
		policy sim.Policy
		limit  cpu.Milli
		begin  time.Duration
		steps  []step
	}{
		{NewK8sCPU(0.5, false), 1000, 0, []step{{14, 1, 1000}, {15, 1, 2000}, {300, 0.2, 2000}, {315, 0.2, 400}}},
		{NewK8sCPU(0.7, true), 600, time.Minute, []step{{0, 0.3, 600}, {1, 0.7, 1000}, {20, 0.07, 1000}, {21, 0.07, 100}}},
	} {
		r := simtest.NewNode(4, simtest.Managed(50, c.limit))
		r.Next = c.begin
		for _, s := range c.steps {
			if got := r.Run(c.policy, c.begin+s.until*time.Second, []float64{s.use}, []float64{0}); got[0] != s.want {
				t.Errorf("threshold of a limit of %v, at %d s: limit %v, want %v", c.limit, s.until, got[0], s.want)
			}
		}
	}
}
