package cpu

import (
	"encoding/json"
	"math"
	"testing"
	"time"
)

func TestRounding(t *testing.T) {
	for _, c := range []struct{ in, step, down, up Milli }{
		{0, 10, 0, 0}, {9, 10, 0, 10}, {10, 10, 10, 10}, {1234, 10, 1230, 1240},
		{-5, 10, -10, 0}, {7, 0, 7, 7},
	} {
		if got := c.in.RoundDown(c.step); got != c.down {
			t.Errorf("%v.RoundDown(%v) = %v, want %v", c.in, c.step, got, c.down)
		}
		if got := c.in.RoundUp(c.step); got != c.up {
			t.Errorf("%v.RoundUp(%v) = %v, want %v", c.in, c.step, got, c.up)
		}
	}
}

func TestFromCoresIsFinite(t *testing.T) {
	for in, want := range map[float64]Milli{0.0004: 0, 0.0005: 1, 1.5: 1500, math.Inf(1): 0, 1e300: 0} {
		if got := FromCores(in); got != want {
			t.Errorf("FromCores(%v) = %v, want %v", in, got, want)
		}
	}
	if got := FromCores(math.NaN()); got != 0 {
		t.Errorf("FromCores(NaN) = %v, want 0", got)
	}
	if got := FromUsage(500*time.Millisecond, time.Second); got != 500 {
		t.Errorf("half a core for a second = %v, want 500m", got)
	}
	if got := FromUsage(time.Second, 0); got != 0 {
		t.Errorf("no time passed = %v, want 0m", got)
	}
}

func TestClampFloorWins(t *testing.T) {
	if got := Milli(50).Clamp(100, 80); got != 100 {
		t.Errorf("crossed bounds give %v, want the floor 100m", got)
	}
}

func TestTextHasOneSpelling(t *testing.T) {
	out, err := json.Marshal(map[string]Milli{"x": 1500})
	if err != nil || string(out) != `{"x":"1500m"}` {
		t.Fatalf("Marshal = %s, %v", out, err)
	}
	var back map[string]Milli
	if err := json.Unmarshal(out, &back); err != nil || back["x"] != 1500 {
		t.Fatalf("Unmarshal = %v, %v", back, err)
	}
	for _, bad := range []string{`{"x":"1.5"}`, `{"x":"2"}`, `{"x":"m"}`, `{"x":1500}`, `{"x":"1e3m"}`} {
		if err := json.Unmarshal([]byte(bad), &back); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
}
