//go:build linux

package runner

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mbcas/mbcas/test/evaluation/internal/plan"
	"github.com/mbcas/mbcas/test/evaluation/internal/results"
)

// small is a plan of two policies and two repeats.
func small() plan.Plan {
	s := plan.Situation{Name: "step", Length: time.Minute, Policies: []string{"a", "b"}}
	return plan.Plan{
		Seed: 1, Repeats: 2, Situations: []plan.Situation{s}, Policies: []plan.Policy{{Name: "a"}, {Name: "b"}},
	}
}

// runner is one of that plan, which notes what it plays; play may be nil.
func runner(t *testing.T, played *[]string, play func(context.Context, plan.Cell) error) Runner {
	return Runner{
		Plan: small(), Results: results.Folder(t.TempDir()), Say: t.Logf,
		Settings:    func(plan.Cell) string { return "{}" },
		Calibration: results.Calibration{RequestMS: map[string]float64{"web": 1}},
		Play: func(ctx context.Context, c plan.Cell, out *results.Cell) error {
			*played = append(*played, c.Name())
			out.Services = []results.Service{{Name: "web", P99: 1}}
			if play == nil {
				return nil
			}
			return play(ctx, c)
		},
	}
}

func TestResumes(t *testing.T) {
	var played []string
	fails := "step--a--1"
	r := runner(t, &played, func(_ context.Context, c plan.Cell) error {
		if c.Name() == fails {
			return errors.New("no pod is Ready")
		}
		return nil
	})
	if left, err := r.Run(t.Context(), time.Time{}); err != nil || left.Cells != 0 || len(played) != 4 {
		t.Fatalf("left %+v, %v; played %v", left, err, played)
	}
	played, fails = nil, ""
	if _, err := r.Run(t.Context(), time.Time{}); err != nil || !slices.Equal(played, []string{"step--a--1"}) {
		t.Errorf("%v: played %v again, want the one that failed", err, played)
	}
	played = nil
	if _, err := r.Run(t.Context(), time.Time{}); err != nil || len(played) != 0 {
		t.Errorf("%v: played %v again, want none", err, played)
	}
	played, r.Calibration.RequestMS = nil, map[string]float64{"web": 2}
	if _, err := r.Run(t.Context(), time.Time{}); err != nil || len(played) != 4 {
		t.Errorf("%v: with another calibration %v were played, want all", err, played)
	}
	played, r.Setup.MBCAS = nil, "v2"
	if _, err := r.Run(t.Context(), time.Time{}); err != nil || len(played) != 4 {
		t.Errorf("%v: with another version %v were played, want all", err, played)
	}
	played, r.Settings = nil, func(c plan.Cell) string {
		if c.Policy.Name == "b" {
			return `{"history": "1m"}`
		}
		return "{}"
	}
	_, err := r.Run(t.Context(), time.Time{})
	if err != nil || len(played) != 2 || !strings.Contains(played[0], "--b--") {
		t.Errorf("%v: with other settings of b %v were played, want those of b", err, played)
	}
	got, _, err := r.Results.Read("step--b--1")
	if text, ok, err2 := r.Results.Settings(got.Settings); !ok || !strings.Contains(text, "history") {
		t.Errorf("the settings of b are not kept: %q, %v, %v", text, err, err2)
	}
}

func TestAttemptsAreKept(t *testing.T) {
	var played []string
	reason := "first"
	r := runner(t, &played, func(_ context.Context, c plan.Cell) error {
		if c.Name() == "step--a--1" && reason != "" {
			return errors.New(reason)
		}
		return nil
	})
	for _, reason = range []string{"first", "second", ""} {
		if _, err := r.Run(t.Context(), time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	got, _, err := r.Results.Read("step--a--1")
	if err != nil || got.Error != "" || len(got.Failed) != 2 ||
		got.Failed[0].Error != "first" || got.Failed[1].Error != "second" {
		t.Errorf("%+v, %v; want figures after two attempts, with their reasons", got, err)
	}
	r.Calibration.RequestMS = map[string]float64{"web": 2}
	if _, err := r.Run(t.Context(), time.Time{}); err != nil {
		t.Fatal(err)
	}
	if got, _, err := r.Results.Read("step--a--1"); err != nil || len(got.Failed) != 0 {
		t.Errorf("%+v, %v: the attempts of another key are not this cell's", got, err)
	}
}

func TestFailureIsAResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var played []string
		r := runner(t, &played, func(ctx context.Context, c plan.Cell) error {
			if c.Policy.Name == "a" {
				<-ctx.Done() // hangs
			}
			return nil
		})
		if _, err := r.Run(t.Context(), time.Time{}); err != nil || len(played) != 4 {
			t.Fatalf("%v: played %v", err, played)
		}
		for policy, want := range map[string]string{"a": "did not end", "b": ""} {
			got, ok, err := r.Results.Read("step--" + policy + "--1")
			if err != nil || !ok || !strings.Contains(got.Error, want) || (want == "") != (len(got.Services) == 1) {
				t.Errorf("%s: %+v, %v, %v; want the error %q", policy, got, ok, err, want)
			}
		}
	})
}

func TestStopsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var played []string
		r := runner(t, &played, func(_ context.Context, c plan.Cell) error {
			time.Sleep(c.Takes())
			return nil
		})
		takes := r.Plan.Cells()[0].Takes()
		left, err := r.Run(t.Context(), time.Now().Add(2*takes+takes/2))
		if err != nil || len(played) != 2 || left.Cells != 2 || left.Takes != 2*takes {
			t.Errorf("%v: played %v, left %+v; want two and two", err, played, left)
		}
	})
}

func TestGivesUp(t *testing.T) {
	var played []string
	broken := true
	r := runner(t, &played, func(context.Context, plan.Cell) error {
		if broken || len(played) == 3 {
			return errors.New("the cluster is gone")
		}
		return nil
	})
	r.Plan.Repeats = 5
	left, err := r.Run(t.Context(), time.Time{})
	if err == nil || len(played) != tooMany || left.Cells != 10-tooMany {
		t.Errorf("%v: played %d, left %+v; want to give up after %d", err, len(played), left, tooMany)
	}
	played, broken = nil, false
	if left, err := r.Run(t.Context(), time.Time{}); err != nil || len(played) != 10 || left.Cells != 0 {
		t.Errorf("one failure: %v, played %d, left %+v; want all to be played", err, len(played), left)
	}
}

// TestInterruptionIsAnAttempt: no figure of half a cell is kept, and no attempt is hidden. Figures of another setup are
// not lost by it.
func TestInterruptionIsAnAttempt(t *testing.T) {
	var played []string
	stop := func() {}
	r := runner(t, &played, func(ctx context.Context, _ plan.Cell) error {
		stop()
		return ctx.Err()
	})
	interrupt := func() {
		t.Helper()
		var ctx context.Context
		ctx, stop = context.WithCancel(t.Context())
		played = nil
		if _, err := r.Run(ctx, time.Time{}); !errors.Is(err, context.Canceled) || len(played) != 1 {
			t.Errorf("%v: played %v", err, played)
		}
		stop = func() {}
	}
	interrupt()
	name := played[0]
	got, ok, err := r.Results.Read(name)
	if !ok || err != nil || got.Error != results.Interrupted || len(got.Services) > 0 {
		t.Errorf("%s: %+v, %v, %v; want an attempt without figures", name, got, ok, err)
	}
	if _, err := r.Run(t.Context(), time.Time{}); err != nil {
		t.Fatal(err)
	}
	got, _, err = r.Results.Read(name)
	if err != nil || got.Error != "" || len(got.Failed) != 1 || got.Failed[0].Error != results.Interrupted {
		t.Errorf("played again: %+v, %v; want figures, and the attempt that was interrupted", got, err)
	}
	r.Setup.MBCAS = "v2"
	interrupt()
	if got, _, err := r.Results.Read(name); err != nil || len(got.Services) != 1 {
		t.Errorf("with another version: %+v, %v; want the figures of the first", got, err)
	}
}
