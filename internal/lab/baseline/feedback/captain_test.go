package feedback

import (
	"math"
	"testing"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/lab/sim"
	"github.com/mbcas/mbcas/internal/lab/simtest"
)

func captainAt(limit float64) *captainPod {
	s := startCaptain(&sim.Snapshot{}, &sim.PodSnapshot{})
	s.limit, s.last = limit, limit
	return s
}

// play is one second: ten ticks, the first so many of them throttled.
func (c *Captain) play(s *captainPod, throttled int, use float64) {
	for i := range 10 {
		t := 0.0
		if i < throttled {
			t = 1
		}
		c.tick(s, t, use, i == 9)
	}
}

// Target 0.1, limit 2. Five of ten periods are throttled: ratio 0.5, 0.2 more than 3 x 0.1, so the
// limit is 2 x 1.2 = 2.4, and the margin 3 + 0.5 - 0.1 = 3.4.
func TestCaptainRaisesByHand(t *testing.T) {
	c := NewCaptain(0.1)
	s := captainAt(2)
	c.play(s, 5, 2)
	if !simtest.AlmostEqual(s.limit, 2.4) || !simtest.AlmostEqual(s.margin, 3.4) || s.lowered {
		t.Errorf("limit %v, margin %v, lowered %v; want 2.4, 3.4, false", s.limit, s.margin, s.lowered)
	}
}

// Target 0.1, limit 4, use 1 core, not throttled. Of the 50 samples 10 are 1 and 40 are 0: mean
// 0.2, sum of squares 10 x 0.8^2 + 40 x 0.2^2 = 8, deviation sqrt(8/49) = 0.4041. Margin 3 - 0.1 =
// 2.9. Enough is 1 + 2.9 x 0.4041 = 2.1718, below 0.9 x 4, and above half of 4: the new limit. In
// the next second 4 of the ticks are throttled. After the fourth the ratio is 0.4 > 0.3, and the
// last decision lowered: back to 2 x 4 - 2.1718 = 5.8282, margin 2.9 + 0.4 - 0.1 = 3.2. The
// throttled ticks are forgotten, and the rest of the second is calm: margin 3.1, and of the samples
// 20 are 1: mean 0.4, sum of squares 20 x 0.6^2 + 30 x 0.4^2 = 12. Enough is 1 + 3.1 x sqrt(12/49)
// = 2.534, below half of the limit: 2.9141. Throttled again, it goes back to 2 x 5.8282 - 2.9141.
func TestCaptainLowersAndRollsBackByHand(t *testing.T) {
	c := NewCaptain(0.1)
	s := captainAt(4)
	c.play(s, 0, 1)
	want := 1 + 2.9*math.Sqrt(8.0/49)
	if !simtest.AlmostEqual(s.limit, want) || !s.lowered {
		t.Fatalf("limit %v, lowered %v; want %v, true", s.limit, s.lowered, want)
	}
	for range 3 {
		c.tick(s, 1, 1, false)
	}
	if !simtest.AlmostEqual(s.limit, want) {
		t.Fatalf("after three throttled periods: limit %v, want %v still: 0.3 is not more than 3 x 0.1", s.limit, want)
	}
	c.tick(s, 1, 1, false)
	if !simtest.AlmostEqual(s.limit, 8-want) || !simtest.AlmostEqual(s.margin, 3.2) || s.lowered {
		t.Errorf("limit %v, margin %v, lowered %v; want %v, 3.2, false", s.limit, s.margin, s.lowered, 8-want)
	}
	for i := range 6 {
		c.tick(s, 0, 1, i == 5)
	}
	if back := 8 - want; !simtest.AlmostEqual(s.limit, back/2) || !simtest.AlmostEqual(s.margin, 3.1) || !s.lowered {
		t.Errorf("after the second: limit %v, margin %v, lowered %v; want %v, 3.1, true", s.limit, s.margin, s.lowered, back/2)
	}
	for range 4 {
		c.tick(s, 1, 1, false)
	}
	if want := 1.5 * (8 - want); !simtest.AlmostEqual(s.limit, want) {
		t.Errorf("rolled back again: limit %v, want %v", s.limit, want)
	}
}

// As above, but the last three of ten ticks are throttled: 0.3 is not more than 3 x 0.1, so margin
// 3.2, and the limit is lowered to 1 + 3.2 x sqrt(8/49) = 2.2930. A throttled tick after it does
// not add to those before. When the last three ticks of this second are throttled, too, the
// rollback falls on the tick of the decision: first back to 5.7070, margin 3.5; then nothing
// throttled is left, margin 3.4, and enough is 1 + 3.4 x sqrt(12/49) = 2.683, below half of the
// limit: 2.8535.
func TestCaptainForgetsThrottlingAtDecisions(t *testing.T) {
	c := NewCaptain(0.1)
	s := captainAt(4)
	ticks := func(throttled ...float64) {
		for i, x := range throttled {
			c.tick(s, x, 1, i == len(throttled)-1)
		}
	}
	want := 1 + 3.2*math.Sqrt(8.0/49)
	if ticks(0, 0, 0, 0, 0, 0, 0, 1, 1, 1); !simtest.AlmostEqual(s.limit, want) {
		t.Fatalf("limit %v, want %v", s.limit, want)
	}
	if c.tick(s, 1, 1, false); !simtest.AlmostEqual(s.limit, want) {
		t.Fatalf("one throttled tick after the decision: limit %v, want %v still", s.limit, want)
	}
	if ticks(0, 0, 0, 0, 0, 0, 1, 1, 1); !simtest.AlmostEqual(s.limit, (8-want)/2) || !simtest.AlmostEqual(s.margin, 3.4) {
		t.Errorf("limit %v, margin %v; want %v, 3.4", s.limit, s.margin, (8-want)/2)
	}
}

// Use was 1 core for 5 s, so enough is 1 core, whatever the margin: below 0.9 x 1.12 = 1.008, but
// not below 0.9 x 1.1 = 0.99. In 40 s without throttling the margin falls by 0.1 each, from 3 to 0
// and no further.
func TestCaptainLeavesASmallExcess(t *testing.T) {
	c := NewCaptain(0.1)
	for limit, want := range map[float64]float64{1.12: 1, 1.1: 1.1} {
		s := captainAt(limit)
		for i := range s.usages {
			s.usages[i] = 1
		}
		for range 40 {
			c.play(s, 0, 1)
		}
		if !simtest.AlmostEqual(s.limit, want) || s.margin != 0 || s.lowered {
			t.Errorf("from %v: limit %v, margin %v, lowered %v; want %v, 0, false", limit, s.limit, s.margin, s.lowered, want)
		}
	}
}

// An idle pod goes from 1 core to half of it each second, to 10m: 1, 0.5, ..., 1/128 < 0.01 after
// seven. At a target of 0, too: no throttling is not more than 0.
func TestCaptainHalvesAtMost(t *testing.T) {
	for _, target := range []float64{0, 0.02} {
		c := NewCaptain(target)
		s := captainAt(1)
		for i, want := range []float64{0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.01, 0.01} {
			if c.play(s, 0, 0); !simtest.AlmostEqual(s.limit, want) {
				t.Fatalf("target %v, after %d s: limit %v, want %v", target, i+1, s.limit, want)
			}
		}
	}
}

// A pod that has run for a minute, throttled all the time, is looked at each 100 ms and decided on
// each second. It uses 1 core of 2, and is not throttled any more. After 4 s ten of the samples are
// 0, so enough is 1 + 2.6 x 0.4041 = 2.05 still, above 0.9 x 2; after 5 s all are 1, and the limit
// is 1.
func TestCaptainDecidesEverySecond(t *testing.T) {
	p := NewCaptain(0.1)
	r := simtest.NewNode(4, simtest.Managed(100, 2000))
	r.Next = time.Minute
	r.Run(p, time.Minute, []float64{1}, []float64{1})
	for _, c := range []struct {
		until time.Duration
		want  cpu.Milli
	}{{time.Second, 2000}, {4900 * time.Millisecond, 2000}, {5 * time.Second, 1000}} {
		if got := r.Run(p, time.Minute+c.until, []float64{1}, []float64{0}); got[0] != c.want {
			t.Errorf("after %v: limit %v, want %v", c.until, got[0], c.want)
		}
	}
}
