package compare

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// fakeTarget is a cluster whose service is as slow as the mode says.
type fakeTarget struct {
	mode    string
	modes   []string // in their order
	set     time.Time
	limits  map[string]int64 // by mode
	periods Periods
	broken  error // of Periods
	fails   int   // the number of the SetMode that fails; 0: none
	reset   int

	hangs    bool  // Periods
	unlisted error // of Limits
	none     bool  // there are no pods
}

func (f *fakeTarget) SetMode(_ context.Context, mode string) error {
	f.mode, f.set = mode, time.Now()
	f.modes = append(f.modes, mode)
	if len(f.modes) == f.fails {
		return errors.New("it was refused")
	}
	return nil
}

func (f *fakeTarget) Reset(ctx context.Context) error {
	f.reset++
	return ctx.Err()
}

func (f *fakeTarget) Limits(context.Context) (int64, int, error) {
	if f.none || f.unlisted != nil {
		return 0, 0, f.unlisted
	}
	return f.limits[f.mode], 2, nil
}

func (f *fakeTarget) Periods(ctx context.Context) (Periods, error) {
	if f.hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	was := f.periods["a"]
	grow := counter{was.periods + 100, was.throttled + 20}
	if f.mode == Enforce {
		grow.throttled = was.throttled + 5
	}
	f.periods = Periods{"a": grow}
	return f.periods, f.broken
}

func settings() Settings {
	return Settings{
		Namespace: "shop", URL: "http://shop", Baseline: Restore, Pairs: 4, Seed: 3, Rate: 50, Settle: 20 * time.Second,
		Length: 30 * time.Second, Timeout: time.Second,
	}
}

// TestPairs: without MBCAS a request takes 60 ms and with it 20 ms, but for the first 10 s after a change of the mode.
func TestPairs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeTarget{limits: map[string]int64{Enforce: 700, Restore: 500}}
		var mu sync.Mutex
		sent := map[string][]time.Duration{} // by mode, since the change
		c := Comparison{Settings: settings(), Target: f, Say: t.Logf, Send: func(ctx context.Context) error {
			since := time.Since(f.set)
			takes := map[string]time.Duration{Enforce: 20 * time.Millisecond, Restore: 60 * time.Millisecond}[f.mode]
			if f.mode != "" {
				mu.Lock()
				sent[f.mode] = append(sent[f.mode], since)
				mu.Unlock()
			}
			if f.mode != "" && since < 10*time.Second {
				takes = time.Hour // times out
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(takes):
				return nil
			}
		}}
		runs, err := c.Run(t.Context())
		if err != nil || len(runs) != 8 || f.reset != 1 {
			t.Fatalf("%d runs, %v, reset %d times; want 8, and one reset", len(runs), err, f.reset)
		}
		if !slices.Equal(sent[Enforce], sent[Restore]) || len(sent[Enforce]) < 4*50*45 {
			t.Errorf("%d and %d requests, or other arrivals in the two runs of a pair",
				len(sent[Enforce]), len(sent[Restore]))
		}
		first := 0
		for i := 0; i < len(f.modes); i += 2 {
			if f.modes[i] == f.modes[i+1] {
				t.Errorf("pair %d is %v twice", i/2+1, f.modes[i])
			}
			if f.modes[i] == Enforce {
				first++
			}
		}
		if first == 0 || first == 4 {
			t.Errorf("%v: one mode is always the first", f.modes)
		}
		s := Summarise(runs, Restore)
		if s.P99 == nil || s.P99.N != 4 || math.Abs(s.P99.Mean-1.0/3) > 1e-6 || s.P99.High >= 1 {
			t.Errorf("%+v, want a third in 4 pairs", s.P99)
		}
		if s.Throttled == nil || math.Abs(s.Throttled.Mean-0.25) > 1e-6 {
			t.Errorf("throttling %+v, want a quarter", s.Throttled)
		}
		if lines := strings.Join(s.Lines(Restore), "\n"); strings.Contains(lines, "note:") ||
			!strings.Contains(lines, "p99: enforce over restore is 0.333") ||
			!strings.Contains(lines, "lower with MBCAS") {
			t.Error(lines)
		}
	})
}

// TestUnservedCountsAsTheTimeout: an outage is no fast answer.
func TestUnservedCountsAsTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeTarget{}
		c := Comparison{Settings: settings(), Target: f, Say: t.Logf, Send: func(context.Context) error {
			if f.mode == Enforce {
				return errors.New("503")
			}
			time.Sleep(10 * time.Millisecond)
			return nil
		}}
		runs, err := c.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		s := Summarise(runs, Restore)
		told := strings.Contains(strings.Join(s.Notes, ";"), "not served")
		if s.P99 == nil || math.Abs(s.P99.Mean-100) > 1e-6 || !told {
			t.Errorf("%+v, %v; want 1 s over 10 ms, and a note", s.P99, s.Notes)
		}
	})
}

// TestEndsEarly: whatever ends a comparison, the mode is reset, and what was complete is told.
func TestEndsEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, tt := range map[string]struct {
			ends  time.Duration
			fails int
		}{"interrupted": {130 * time.Second, 0}, "refused": {time.Hour, 3}} { // both in the third run
			ctx, cancel := context.WithTimeout(t.Context(), tt.ends)
			f := &fakeTarget{fails: tt.fails}
			send := func(context.Context) error { return nil }
			c := Comparison{Settings: settings(), Target: f, Say: t.Logf, Send: send}
			runs, err := c.Run(ctx)
			cancel()
			if err == nil || len(runs) != 2 || f.reset != 1 || strings.Contains(err.Error(), "reset") {
				t.Errorf("%s: %d runs, %v, reset %d times; want 2, an error and one reset",
					name, len(runs), err, f.reset)
			}
		}
		f := &fakeTarget{}
		refuse := func(context.Context) error { return errors.New("refused") }
		c := Comparison{Settings: settings(), Target: f, Send: refuse}
		if _, err := c.Run(t.Context()); err == nil || len(f.modes) > 0 {
			t.Errorf("no answer: %v, and modes %v were set", err, f.modes)
		}
		for want, x := range map[string]*fakeTarget{
			"forbidden": {unlisted: errors.New("forbidden")}, "no Running pod": {none: true},
		} {
			c := Comparison{Settings: settings(), Target: x, Send: func(context.Context) error { return nil }}
			_, err := c.Run(t.Context())
			if err == nil || !strings.HasPrefix(err.Error(), want) && !strings.Contains(err.Error(), "has "+want) ||
				strings.Contains(err.Error(), "\n") || len(x.modes) > 0 {
				t.Errorf("%s: %q, and modes %v were set", want, err, x.modes)
			}
		}
	})
}

// TestHangingClusters: a kubelet that does not answer costs the figures of throttling.
func TestHangingClusters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		f := &fakeTarget{hangs: true}
		c := Comparison{Settings: settings(), Target: f, Say: t.Logf, Send: func(context.Context) error { return nil }}
		runs, err := c.Run(ctx)
		if err != nil || len(runs) != 8 || f.reset != 1 {
			t.Fatalf("%d runs, %v, reset %d times; want 8, and one reset", len(runs), err, f.reset)
		}
		if r := runs[0]; r.Throttled != nil || r.Unknown == "" || r.Requests == 0 {
			t.Errorf("%+v, want latencies, and that throttling is unknown", r)
		}
	})
}

// TestNotes: what speaks against the figures is told.
func TestNotes(t *testing.T) {
	half := 0.5
	run := func(pair int, mode string, limit int64) Run {
		return Run{Pair: pair, Mode: mode, P99: 10, LimitM: limit, Pods: 1, Throttled: &half}
	}
	two := func(without1, with1, without2, with2 int64) []Run {
		return []Run{
			run(1, Restore, without1), run(1, Enforce, with1), run(2, Enforce, with2), run(2, Restore, without2),
		}
	}
	late := two(500, 700, 500, 700)
	late[3].LateP99 = 11
	unknown := two(500, 700, 500, 700)
	unknown[1].Throttled, unknown[1].Unknown = nil, "forbidden"
	zero := two(500, 700, 500, 700)
	zero[0].Throttled = new(float64)
	for name, tt := range map[string]struct {
		runs []Run
		want string
	}{
		"nothing":      {two(500, 700, 500, 600), ""},
		"no effect":    {two(500, 500, 500, 500), "ratios are noise"},
		"not settled":  {two(500, 700, 650, 600), "had no time to settle"},
		"slow machine": {late, "too slow for the rate"},
		"unknown":      {unknown, "throttling is unknown: forbidden"},
		"zero":         {zero, "throttling has no ratio"},
		"one pair":     {two(500, 700, 500, 700)[:3], "p99 has no ratio"},
	} {
		got := strings.Join(Summarise(tt.runs, Restore).Notes, "; ")
		if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
			t.Errorf("%s: notes %q, want %q", name, got, tt.want)
		}
	}
}

func TestValidate(t *testing.T) {
	if err := settings().Validate(); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*Settings){
		"namespace": func(s *Settings) { s.Namespace = "" }, "url": func(s *Settings) { s.URL = "" },
		"baseline": func(s *Settings) { s.Baseline = "off" }, "pairs": func(s *Settings) { s.Pairs = 1 },
		"rate": func(s *Settings) { s.Rate = 0 }, "length": func(s *Settings) { s.Length = 0 },
	} {
		s := settings()
		change(&s)
		if err := s.Validate(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
