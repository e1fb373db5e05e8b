package rival

import (
	"slices"
	"testing"
	"time"

	"github.com/mbcas/mbcas/cpu"
)

// 6 cores and three pods: 2 each; the second requests 2.5, so it can't have less than 2.51. The third is not managed and
// uses 1: of the rest, 5 cores, the two get 2.5 each, the second still 2.51.
func TestEqualByHand(t *testing.T) {
	for _, c := range []struct {
		cfg  EqualConfig
		want []cpu.Milli
	}{{DefaultEqual(), []cpu.Milli{2000, 2510, 0}}, {EqualOfRest(), []cpu.Milli{2500, 2510, 0}}} {
		r := on(6, pod(0, 100, 1000), pod(1, 2500, 6000), pod(2, 500, 0))
		if got := r.play(NewEqual(c.cfg), time.Minute, []float64{1, 1, 1}, []float64{0, 0, 0}); !slices.Equal(got, c.want) {
			t.Errorf("%+v: limits %v, want %v", c.cfg, got, c.want)
		}
	}
}
