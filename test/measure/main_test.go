//go:build linux

package main

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mbcas/mbcas/internal/testing/must"
	"github.com/mbcas/mbcas/test/measure/internal/recorder"
	"github.com/mbcas/mbcas/test/measure/scripts"
)

func TestParse(t *testing.T) {
	s, err := parse([]string{"demo"}, io.Discard)
	if err != nil || len(s.scripts) != 1 || s.full || s.keep || s.folder(s.scripts[0]) != "out/demo" {
		t.Errorf("%+v, %v", s, err)
	}
	if s, err := parse([]string{"-full", "quota", "hpa"}, io.Discard); err != nil || len(s.scripts) != 2 || !s.full {
		t.Errorf("%+v, %v", s, err)
	}
	shipped, err := fs.Glob(scripts.Files, "*.yaml")
	if err != nil || len(shipped) < 3 {
		t.Errorf("scripts %q, %v", shipped, err)
	}
	for _, name := range shipped {
		if _, err := parse([]string{strings.TrimSuffix(name, ".yaml")}, io.Discard); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	own := filepath.Join(t.TempDir(), "own.yaml")
	must.Succeed(t, os.WriteFile(own, []byte("name: x\n"), 0o644))
	for _, args := range [][]string{nil, {"opera"}, {"-seed", "x", "demo"}, {"-what"}, {own}} {
		var out bytes.Buffer
		if _, err := parse(args, &out); !errors.Is(err, errUsage) {
			t.Errorf("%q: %v, want a usage error", args, err)
		}
	}
	if _, err := parse([]string{"-h"}, io.Discard); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("-h: %v", err)
	}
}

// TestConsole: a line has the limit and usage of the pods that its phase is about, or the sums
// where it is about all.
func TestConsole(t *testing.T) {
	s, err := parse([]string{"demo", "quota"}, io.Discard)
	must.Succeed(t, err)
	sample := func(app string) recorder.Sample {
		return recorder.Sample{App: app, Ready: 1, Quota: 500, Usage: 123, P99: 88.8, Price: "0.79"}
	}
	for i, c := range []struct {
		run, want string
		at        time.Duration
		samples   []recorder.Sample
	}{
		{"mbcas", "23 mbcas, big hog 89 ms 0.79 500m 123m 500m 123m", 23 * time.Second,
			[]recorder.Sample{sample("checkout"), sample("search"), sample("hog")}},
		{"mbcas", "0.79 2 x 1000m 246m -", time.Second, []recorder.Sample{sample("tenant-1"), sample("tenant-2")}},
	} {
		var out strings.Builder
		console := &console{out: &out}
		console.Begin(s.scripts[i], 70*time.Second)
		console.Show(&recorder.Run{Name: c.run, Plan: s.scripts[i].Plan(c.run, false, 1)}, c.at, c.samples)
		line := strings.Join(strings.Fields(out.String()), " ")
		if !strings.Contains(line, c.want) || !strings.Contains(line, "left)") {
			t.Errorf("line lacks %q:\n%s", c.want, &out)
		}
	}
}
