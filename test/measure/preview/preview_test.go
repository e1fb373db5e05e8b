//go:build linux

package main

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mbcas/mbcas/internal/lab/sim"
	"github.com/mbcas/mbcas/test/measure/internal/script"
	"github.com/mbcas/mbcas/test/measure/scripts"
)

// canceling ends a context when a text is written.
type canceling struct {
	strings.Builder
	at     string
	cancel context.CancelFunc
}

func (c *canceling) Write(text []byte) (int, error) {
	if strings.Contains(string(text), c.at) {
		c.cancel()
	}
	return c.Builder.Write(text)
}

// TestPreview: every phase of the demo is shown with the latency of every run, and the hog's limit
// is seen to be lowered.
func TestPreview(t *testing.T) {
	x, err := script.Open(scripts.Files, "demo")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := &canceling{at: "still building", cancel: cancel}
	if err := (settings{progressEvery: time.Hour}).preview(ctx, x, out); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	plan, lines, lowered := x.Plan("mbcas", false, 1), 0, 0
	for line := range strings.Lines(out.String()) {
		fields := strings.Fields(line)
		if len(fields) < 9 || strings.HasPrefix(line, "second") || strings.Count(line, "ms") < 2 {
			continue
		}
		if lines++; strings.Contains(line, "big hog") && fields[len(fields)-2] != "1600m" {
			lowered++
		}
	}
	if want := int(plan.Length() / time.Second); lines < want-5 || lines > want {
		t.Errorf("%d lines of a script of %d s:\n%s", lines, want, out)
	}
	if lowered < 5 {
		t.Errorf("the limit of the big hog is lowered in %d seconds, want most of its phase:\n%s", lowered, out)
	}
}

// TestOpen: a run that the simulator cannot play is left out, and a script that is not there is a
// usage error.
func TestOpen(t *testing.T) {
	x, err := open("weights")
	if err != nil || len(x.Runs) != 3 {
		t.Fatalf("%v, runs %+v", err, x)
	}
	for _, r := range x.Runs {
		if r.IdleHogs {
			t.Errorf("run %s is played", r.Name)
		}
	}
	if _, err := open("opera"); !errors.Is(err, errUsage) {
		t.Errorf("error %v, want one of usage", err)
	}
}

// TestTailIsOfTheWindow: requests count for ten seconds after they ended, and no longer.
func TestTailIsOfTheWindow(t *testing.T) {
	var all sim.Latencies
	var l latencies
	for second := range 40 {
		if second < 20 {
			all.Add(time.Second)
		}
		want := uint64(max(0, min(second+1, tailSeconds, 29-second)))
		tail := l.add(&all)
		if tail.Count != want || (tail.Quantile(0.99) > 0) != (want > 0) {
			t.Errorf("second %d: %d requests with a p99 of %v, want %d", second, tail.Count, tail.Quantile(0.99), want)
		}
	}
}

func TestCommand(t *testing.T) {
	log := filepath.Join(t.TempDir(), "out", "build.log")
	var out strings.Builder
	err := run(t.Context(), []string{"-log", log, "-patience", "1h", "demo", "true"}, &out)
	if err != nil || out.Len() != 0 {
		t.Errorf("a command that ends soon: %v, %q", err, &out)
	}
	err = run(t.Context(), []string{"-log", log, "-patience", "1h", "demo", "sh", "-c", "echo broken; exit 3"}, &out)
	if err == nil || !strings.Contains(err.Error(), "broken") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("a command that fails: %v", err)
	}
	for _, args := range [][]string{nil, {"demo"}, {"opera", "true"}, {"-what"}} {
		if err := run(t.Context(), args, &out); !errors.Is(err, errUsage) {
			t.Errorf("%q: %v, want a usage error", args, err)
		}
	}
}
