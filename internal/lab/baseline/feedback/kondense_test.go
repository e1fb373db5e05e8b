package feedback

import (
	"slices"
	"testing"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/lab/sim"
	"github.com/mbcas/mbcas/internal/lab/simtest"
)

// Limit 1, target 0.8. Use 0.84 needs 1.05: the gap is 0.05, (6 x 0.05)^2 = 0.09 come on top: +14
// %. Use 1 needs 1.25: 0.25 + 2.25 is cut to +50 %. Use 0.76 needs 0.95: -5 %. Use 0.4 needs 0.5:
// -50 % is cut to -10 %.
func TestKondenseByHand(t *testing.T) {
	for use, want := range map[float64]float64{0.84: 0.14, 1: 0.5, 0.76: -0.05, 0.4: -0.1, 0.8: 0} {
		if got := kondenseFactor(use, 1); !simtest.AlmostEqual(got, want) {
			t.Errorf("use %v: change %v, want %v", use, got, want)
		}
	}
	for _, s := range []struct {
		limit   cpu.Milli
		factor  float64
		request cpu.Milli
		want    cpu.Milli
	}{{1000, 0.14, 100, 1140}, {33, -0.1, 0, 29}, {10, -0.1, 0, 10}, {1000, -0.1, 950, 960}, {90000, 0.5, 0, 100000}} {
		if got := kondenseNext(s.limit, s.factor, s.request); got != s.want {
			t.Errorf("%v by %v at request %v: %v, want %v", s.limit, s.factor, s.request, got, s.want)
		}
	}
}

// From 1 core, use 0.4: the need is 0.5, so it goes down by a tenth each second: 900, 810, 729,
// 656, 590, 531, and then by 0.058 to 500. The kernel's is rounded up to 10m.
func TestKondenseFollows(t *testing.T) {
	p := NewKondense()
	r := simtest.NewNode(4, simtest.Managed(100, 1000))
	for i, want := range []cpu.Milli{1000, 900, 810, 730, 660, 590, 540, 500, 500} {
		if got := r.Run(p, time.Duration(i)*time.Second, []float64{0.4}, []float64{0}); i > 0 && got[0] != want {
			t.Errorf("after %d s: limit %v, want %v", i, got[0], want)
		}
	}
}

// Less than 1 % is not worth a resize: at a limit of 1, a use of 0.7924 needs 0.9905, and one of
// 0.7916 needs 0.9895. The mean is that of six samples, 5 s: after 20 s at 0.8, one at 0.72 makes
// it 0.784, which needs 0.98.
func TestKondenseUsesFiveSeconds(t *testing.T) {
	for _, c := range []struct {
		seconds      int
		before, last float64
		want         []sim.Action
	}{
		{0, 0, 0.7924, nil},
		{0, 0, 0.7916, []sim.Action{{Pod: 1, Limit: 990, Delay: sim.ResizeDelay}}},
		{20, 0.8, 0.72, []sim.Action{{Pod: 1, Limit: 980, Delay: sim.ResizeDelay}}},
	} {
		p := NewKondense()
		w := simtest.NewNode(4, sim.PodSpec{}, sim.PodSpec{Request: 100, Limit: 1000})
		for range c.seconds {
			p.Decide(&w.Snapshot)
			w.Advance(time.Second, 0, c.before)
		}
		p.Decide(&w.Snapshot)
		w.Advance(time.Second, 0, c.last)
		actions, _ := p.Decide(&w.Snapshot)
		if !slices.Equal(actions, c.want) {
			t.Errorf("%d s of %v and then %v cores: %v, want %v", c.seconds, c.before, c.last, actions, c.want)
		}
	}
}
