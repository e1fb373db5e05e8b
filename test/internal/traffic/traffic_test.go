package traffic

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestArrivals(t *testing.T) {
	segments := []Segment{{100 * time.Second, 10}, {100 * time.Second, 0}, {100 * time.Second, 80}}
	var n [3]float64
	for _, a := range Arrivals(1, segments) {
		n[int(a/(100*time.Second))]++
	}
	if n[1] != 0 || math.Abs(n[0]-1000) > 100 || math.Abs(n[2]-8000) > 400 {
		t.Errorf("%v arrivals, want about 1000, none, and about 8000", n)
	}
	third := Arrivals(3, segments)
	if !slices.Equal(third, Arrivals(3, segments)) || slices.Equal(third, Arrivals(4, segments)) {
		t.Error("arrivals do not depend on the seed alone")
	}
}

// One request at a time takes 100 ms and one comes every 10 ms, so the n-th ends after n x 100 ms.
// A generator that waited, or counted from the sending, would see 100 ms each.
func TestLatencyCountsFromTheIntendedArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := make(chan struct{}, 1)
		g := Generator{InFlight: 100, Timeout: time.Minute, Send: func(context.Context) error {
			server <- struct{}{}
			time.Sleep(100 * time.Millisecond)
			<-server
			return nil
		}}
		var at []time.Duration
		for i := range 5 {
			at = append(at, time.Duration(i)*10*time.Millisecond)
		}
		var got []time.Duration
		g.Run(t.Context(), time.Now(), at, func(r Result) {
			if r.Status != Served || r.Late != 0 {
				t.Errorf("%+v: want served, sent on time", r)
			}
			got = append(got, r.Latency)
		})
		slices.Sort(got)
		ms := time.Millisecond
		if want := []time.Duration{100 * ms, 190 * ms, 280 * ms, 370 * ms, 460 * ms}; !slices.Equal(got, want) {
			t.Errorf("latencies %v, want %v", got, want)
		}
	})
}

// TestUnservedCountsAsTheTimeout: also a refusal, which is no fast answer, and what is never sent.
func TestUnservedCountsAsTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent atomic.Int32
		g := Generator{InFlight: 2, Timeout: time.Second, Send: func(ctx context.Context) error {
			if sent.Add(1) == 1 {
				return errors.New("refused")
			}
			<-ctx.Done() // hangs
			return ctx.Err()
		}}
		n := map[Status]int{}
		arrivals := []time.Duration{0, 1e6, 1e6 + 1, 1e6 + 2, 1e6 + 3}
		g.Run(t.Context(), time.Now(), arrivals, func(r Result) {
			n[r.Status]++
			if r.Latency != time.Second {
				t.Errorf("%+v: an unserved request counts as the timeout", r)
			}
		})
		if n[Failed] != 1 || n[TimedOut] != 2 || n[Overload] != 2 || sent.Load() != 3 {
			t.Errorf("%v by status, %d sent; want 1 failed, 2 timed out, 2 beyond the bound, 3 sent", n, sent.Load())
		}
	})
}

func TestStopsWhenTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		g := Generator{InFlight: 1, Timeout: time.Second, Send: func(context.Context) error { return nil }}
		n := 0
		g.Run(ctx, time.Now(), []time.Duration{time.Second, time.Hour}, func(Result) { n++ })
		if n != 1 {
			t.Errorf("%d requests, want 1", n)
		}
	})
}

func TestQuantile(t *testing.T) {
	values := func() []int { return []int{5, 1, 4, 2, 3} }
	for q, want := range map[float64]int{0: 1, 0.2: 1, 0.21: 2, 0.5: 3, 0.99: 5, 1: 5} {
		if got, ok := Quantile(values(), q); !ok || got != want {
			t.Errorf("quantile %v is %d, %v; want %d", q, got, ok, want)
		}
	}
	if _, ok := Quantile([]int(nil), 0.5); ok {
		t.Error("nothing has a median")
	}
}
