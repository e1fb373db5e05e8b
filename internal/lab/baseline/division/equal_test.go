package division

import (
	"slices"
	"testing"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/lab/simtest"
)

// 6 cores and three pods: 2 each; the second requests 2.5, so it can't have less than 2.51. The
// third is not managed and uses 1: of the rest, 5 cores, the two get 2.5 each, the second still
// 2.51.
func TestEqualByHand(t *testing.T) {
	for _, c := range []struct {
		rest bool
		want []cpu.Milli
	}{{false, []cpu.Milli{2000, 2510, 0}}, {true, []cpu.Milli{2500, 2510, 0}}} {
		r := simtest.NewNode(6, simtest.Managed(100, 1000), simtest.Managed(2500, 6000), simtest.Managed(500, 0))
		if got := r.Run(NewEqual(c.rest), time.Minute, []float64{1, 1, 1}, []float64{0, 0, 0}); !slices.Equal(got, c.want) {
			t.Errorf("rest %v: limits %v, want %v", c.rest, got, c.want)
		}
		if _, next := NewEqual(c.rest).Decide(&r.Snapshot); next != r.Now+15*time.Second {
			t.Errorf("rest %v: next call at %v, want in 15 s", c.rest, next)
		}
	}
}

// The node reserves 1 of 6 cores for the system, which uses more; the unmanaged pod uses some, too.
// Two pods share the rest of 5. System usage is smoothed as in MBCAS, so it is measured for a long
// time.
func TestEqualOfRestLeavesTheSystemItsUse(t *testing.T) {
	for _, c := range []struct {
		system, unmanaged float64
		want              cpu.Milli
	}{{0.5, 1, 2000}, {2, 1, 1500}, {1, 4.9, 110}} {
		r := simtest.NewNode(6, simtest.Managed(100, 1000), simtest.Managed(100, 1000), simtest.Managed(500, 0))
		r.Allocatable = 5000
		p := NewEqual(true)
		p.Decide(&r.Snapshot)
		r.Now = 10 * time.Minute
		r.Pods[2].Usage = time.Duration(c.unmanaged * float64(r.Now))
		r.Kubepods = r.Pods[2].Usage
		r.Usage = r.Kubepods + time.Duration(c.system*float64(r.Now))
		actions, _ := p.Decide(&r.Snapshot)
		if len(actions) != 2 || actions[0].Limit != c.want || actions[1].Limit != c.want {
			t.Errorf("system %v, unmanaged %v: %v, want limits of %v", c.system, c.unmanaged, actions, c.want)
		}
	}
}
