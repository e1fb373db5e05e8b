package record

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mbcas/mbcas/test/demo/internal/script"
	"github.com/mbcas/mbcas/test/internal/traffic"
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

func TestCSVRoundTrip(t *testing.T) {
	want := []Run{{Name: "static", Script: play, Samples: []Sample{
		{At: 1500 * time.Millisecond, Phase: "a", App: "x", Request: 1, Limit: 2, Quota: 3, Use: 4, Throttled: 5.5, Ratio: 0.25, Demand: 6, Price: "1.500", P50: 7.5, P99: 8.5},
		{At: 2 * time.Second, Phase: "b", App: "y"},
	}}, {Name: "mbcas", Script: play, Samples: []Sample{{Phase: "a", App: "x"}}}}
	var text strings.Builder
	if err := WriteCSV(&text, want); err != nil {
		t.Fatal(err)
	}
	got, err := ReadCSV(strings.NewReader(text.String()), map[string]script.Script{"static": play, "mbcas": play})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
