//go:build linux

package main

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mbcas/mbcas/test/measure/internal/recorder"
)

func TestParse(t *testing.T) {
	s, err := parse([]string{"demo"}, io.Discard)
	if err != nil || len(s.scripts) != 1 || s.full || s.keep || s.folder(s.scripts[0]) != "out/demo" {
		t.Errorf("%+v, %v", s, err)
	}
	if s, err := parse([]string{"-full", "quota", "hpa"}, io.Discard); err != nil || len(s.scripts) != 2 || !s.full {
		t.Errorf("%+v, %v", s, err)
	}
	own := filepath.Join(t.TempDir(), "own.yaml")
	if err := os.WriteFile(own, []byte("name: x\n"), 0o644); err != nil {
		t.Fatal(err)
	}
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

func samples(app string) []recorder.Sample {
	return []recorder.Sample{{App: app, Ready: 1, Request: 100, Limit: 500, Quota: 500, Usage: 123, Throttled: 45.6, P50: 9.4, P99: 88.8}}
}

func TestPlainTablesAreRare(t *testing.T) {
	s, err := parse([]string{"demo"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	c := newConsole(&out)
	run := &recorder.Run{Name: "static", Plan: s.scripts[0].Plan("static", true, 1)}
	for at := range 20 { // base is 15 s long
		c.Show(s.scripts[0], run, time.Duration(at)*time.Second, samples("checkout"))
	}
	if n := strings.Count(out.String(), "run static"); n != 3 { // at 0, 10 and when the phase changes
		t.Errorf("%d tables in 20 s, want 3:\n%s", n, &out)
	}
	if strings.Contains(out.String(), "\x1b") {
		t.Error("escape codes where there is no terminal")
	}
	for _, want := range []string{"checkout", "100m", "500m", "123m", "46", "9", "89"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("table lacks %s:\n%s", want, &out)
		}
	}
}

func TestTerminalIsDrawnOver(t *testing.T) {
	s, err := parse([]string{"quota"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	c := &console{out: &out, terminal: true}
	run := &recorder.Run{Name: "mbcas", Plan: s.scripts[0].Plan("mbcas", false, 1)}
	group := append(samples("tenant-1"), samples("tenant-2")...)
	c.Show(s.scripts[0], run, 0, group)
	if lines := strings.Count(out.String(), "\n"); lines != 4 || !strings.Contains(out.String(), "1000m") {
		t.Errorf("want one line for the workloads of a group, with the sum of their limits:\n%s", &out)
	}
	c.Show(s.scripts[0], run, time.Second, group)
	if !strings.Contains(out.String(), "\x1b[4A") {
		t.Errorf("the second table does not go back over the first: %q", out.String())
	}
	c.Say("done")
	before := out.Len()
	c.Show(s.scripts[0], run, 2*time.Second, group)
	if strings.Contains(out.String()[before:], "\x1b") {
		t.Error("a line that should stay is drawn over")
	}
}
