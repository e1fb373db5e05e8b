package record

import (
	"testing"
	"time"

	"github.com/mbcas/mbcas/test/demo/internal/script"
	"github.com/mbcas/mbcas/test/demo/internal/traffic"
)

var play = script.Script{{Name: "a", For: 10 * time.Second}, {Name: "b", For: 20 * time.Second}}

// A request due in phase a that was answered in phase b is a's.
func TestRequestsBelongToTheirIntendedPhase(t *testing.T) {
	r := Run{Script: play, Requests: map[string][]traffic.Result{"x": {
		{At: 12 * time.Second, Latency: 20 * time.Millisecond},
		{At: 9 * time.Second, Latency: 15 * time.Second, Status: traffic.TimedOut},
		{At: time.Second, Latency: 10 * time.Millisecond},
	}}}
	if p99, ok := r.Latency("x", "a", 0.99); !ok || p99 != 15000 {
		t.Errorf("p99 of a is %v, %v; want 15000 ms", p99, ok)
	}
	if p99, ok := r.Latency("x", "b", 0.99); !ok || p99 != 20 {
		t.Errorf("p99 of b is %v, %v; want 20 ms", p99, ok)
	}
	if _, ok := r.Latency("y", "a", 0.99); ok {
		t.Error("a service without requests has a latency")
	}
	if unserved, all := r.Unserved("x", "a"); unserved != 1 || all != 2 {
		t.Errorf("%d of %d unserved, want 1 of 2", unserved, all)
	}
}

func TestThrottledAfterTheStep(t *testing.T) {
	r := Run{Script: play}
	for s := 1; s <= 30; s++ {
		throttled := 0.0
		switch {
		case s <= 15:
			throttled = 900 // before the step, and in its first five seconds
		case s <= 20:
			throttled = 30
		}
		r.Samples = append(r.Samples, Sample{At: time.Duration(s) * time.Second, App: "x", Throttled: throttled})
	}
	if got, ok := r.Throttled("x", "b"); !ok || got != 10 {
		t.Errorf("throttled %v ms/s, %v; want 10", got, ok)
	}
	if _, ok := r.Throttled("y", "b"); ok {
		t.Error("what was not sampled has a figure")
	}
}
