package rival

import (
	"math"
	"testing"
	"time"

	"github.com/mbcas/mbcas/internal/sim"
)

func captainAt(limit float64, c CaptainConfig) *captained {
	p := &sim.PodReading{}
	s := c.start(&sim.Reading{}, p)
	s.limit, s.last = limit, limit
	return s
}

// play is one second: ten ticks, the first so many of them throttled.
func (c CaptainConfig) play(s *captained, throttled int, use float64) {
	for i := range 10 {
		t := 0.0
		if i < throttled {
			t = 1
		}
		c.tick(s, t, use, i == 9)
	}
}

// Target 0.1, limit 2. Five of ten periods are throttled: ratio 0.5, 0.2 more than 3 x 0.1, so the limit is 2 x 1.2 = 2.4,
// and the margin 3 + 0.5 - 0.1 = 3.4.
func TestCaptainRaisesByHand(t *testing.T) {
	c := DefaultCaptain(0.1)
	s := captainAt(2, c)
	c.play(s, 5, 2)
	if !near(s.limit, 2.4) || !near(s.margin, 3.4) || s.lowered {
		t.Errorf("limit %v, margin %v, lowered %v; want 2.4, 3.4, false", s.limit, s.margin, s.lowered)
	}
}

// Target 0.1, limit 4, use 1 core, not throttled. Of the 50 looks 10 are 1 and 40 are 0: mean 0.2, sum of squares
// 10 x 0.8^2 + 40 x 0.2^2 = 8, deviation sqrt(8/49) = 0.4041. Margin 3 - 0.1 = 2.9. Enough is 1 + 2.9 x 0.4041 = 2.1718,
// below 0.9 x 4, and above half of 4: the new limit. In the next second 4 of the ticks are throttled. After the fourth
// the ratio is 0.4 > 0.3, and the last decision lowered: back to 2 x 4 - 2.1718 = 5.8282, margin 2.9 + 0.4 - 0.1 = 3.2.
func TestCaptainLowersAndRollsBackByHand(t *testing.T) {
	c := DefaultCaptain(0.1)
	s := captainAt(4, c)
	c.play(s, 0, 1)
	want := 1 + 2.9*math.Sqrt(8.0/49)
	if !near(s.limit, want) || !s.lowered {
		t.Fatalf("limit %v, lowered %v; want %v, true", s.limit, s.lowered, want)
	}
	for range 3 {
		c.tick(s, 1, 1, false)
	}
	if !near(s.limit, want) {
		t.Fatalf("after three throttled periods: limit %v, want %v still: 0.3 is not more than 3 x 0.1", s.limit, want)
	}
	c.tick(s, 1, 1, false)
	if !near(s.limit, 8-want) || !near(s.margin, 3.2) || s.lowered {
		t.Errorf("limit %v, margin %v, lowered %v; want %v, 3.2, false", s.limit, s.margin, s.lowered, 8-want)
	}
}

// An idle pod goes from 1 core to half of it each second, to 10m: 1, 0.5, ..., 1/128 < 0.01 after seven.
func TestCaptainHalvesAtMost(t *testing.T) {
	c := DefaultCaptain(0.02)
	s := captainAt(1, c)
	for i, want := range []float64{0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.01, 0.01} {
		if c.play(s, 0, 0); !near(s.limit, want) {
			t.Fatalf("after %d s: limit %v, want %v", i+1, s.limit, want)
		}
	}
}

// A hog is throttled in every period, so its limit grows by 1 + 1 - 3 x 0.02 = 1.94 each second, on the first one from
// 0.5 to 0.97.
func TestCaptainInTheSimulator(t *testing.T) {
	s := sim.Run(hogAlone(), NewCaptain(DefaultCaptain(0.02)))
	first := s.Pods[0].Changes[0]
	if first.At < time.Second || first.At > 1200*time.Millisecond || first.From != 500 || first.To < 900 || first.To > 970 {
		t.Errorf("first change %+v; want 500m to 900m-970m within 1.2 s", first)
	}
}
