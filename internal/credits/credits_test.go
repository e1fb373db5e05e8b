package credits

import (
	"math"
	"testing"
	"time"
)

func TestSavings(t *testing.T) {
	c := Config{MaxFactor: 3, MaxSaved: time.Minute, HalfLife: 10 * time.Second}
	for _, s := range []struct {
		what          string
		saved         time.Duration
		unused        float64
		elapsed, want time.Duration
	}{
		{"half of the share is left for 2 s", 0, 0.5, 2 * time.Second, time.Second},
		{"a half-life at the share", 40 * time.Second, 0, 10 * time.Second, 20 * time.Second},
		{"twice the share for more than was saved", time.Second, -1, 2 * time.Second, 0},
		{"more than a pod can save", time.Minute, 1, 50 * time.Second, 50*time.Second + time.Minute/32},
		{"no time", 30 * time.Second, 1, 0, 30 * time.Second},
	} {
		if got := c.Next(s.saved, s.unused, s.elapsed); math.Abs((got - s.want).Seconds()) > 1e-6 {
			t.Errorf("%s: %v saved, want %v", s.what, got, s.want)
		}
	}
	for saved, want := range map[time.Duration]float64{0: 1, 30 * time.Second: 2, time.Minute: 3} {
		if got := c.Factor(saved); got != want {
			t.Errorf("%v saved: factor %v, want %v", saved, got, want)
		}
	}
}

func TestValidate(t *testing.T) {
	if err := Off().Validate(); err != nil || Off().Enabled() {
		t.Errorf("off: %v, enabled %v", err, Off().Enabled())
	}
	for _, c := range []Config{
		{MaxFactor: 0.5, MaxSaved: 1, HalfLife: 1}, {MaxFactor: 11, MaxSaved: 1, HalfLife: 1}, {MaxFactor: math.NaN(), MaxSaved: 1, HalfLife: 1},
		{MaxFactor: 2, HalfLife: 1}, {MaxFactor: 2, MaxSaved: 1},
	} {
		if c.Validate() == nil {
			t.Errorf("%+v is valid", c)
		}
	}
}
