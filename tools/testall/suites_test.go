package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
)

// TestBadUsage: a command line that names nothing to run is an error that says what there is.
func TestBadUsage(t *testing.T) {
	tests := map[string]struct {
		args []string
		say  string
	}{
		"unknown suite":   {[]string{"-only", "typo"}, `no suite "typo"; there are check, unit, cluster, fuzz, fidelity, e2e, skew`},
		"suite as a word": {[]string{"fuzz"}, `unexpected argument "fuzz"; a suite is chosen with -only`},
		"unknown flag":    {[]string{"-suite", "fuzz"}, "flag provided but not defined: -suite"},
		"runs of no use":  {[]string{"-fuzzruns", "some"}, "invalid value"},
		"no runs at all":  {[]string{"-fuzzruns", "0"}, "-fuzzruns 0: want at least 1"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr strings.Builder
			if code := run(t.Context(), tc.args, &stdout, &stderr); code != 2 {
				t.Errorf("exit code %d, want 2", code)
			}
			if !strings.Contains(stderr.String(), tc.say) {
				t.Errorf("said %q, want %q in it", stderr.String(), tc.say)
			}
			if stdout.String() != "" {
				t.Errorf("printed %q although nothing was run", stdout.String())
			}
		})
	}
}

func TestChoose(t *testing.T) {
	all := repo{}.suites()
	tests := map[string]struct {
		only  string
		extra []string
		want  string
	}{
		"all tests":                {"", nil, "unit cluster fuzz fidelity e2e"},
		"all tests and the checks": {"", []string{"check"}, "check unit cluster fuzz fidelity e2e"},
		"everything":               {"", []string{"skew", "check"}, "check unit cluster fuzz fidelity e2e skew"},
		"one":                      {"fuzz", nil, "fuzz"},
		"one beside the checks":    {"fuzz", []string{"check"}, "fuzz"},
		"an extra one alone":       {"check", nil, "check"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			chosen, err := choose(all, tc.only, tc.extra...)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, s := range chosen {
				names = append(names, s.name)
			}
			if got := strings.Join(names, " "); got != tc.want {
				t.Errorf("chose %q, want %q", got, tc.want)
			}
		})
	}
}

// TestPlay: what a suite did is counted, and doing nothing is a failure.
func TestPlay(t *testing.T) {
	tests := map[string]struct {
		run                     func(*tally) error
		passed, failed, skipped int
	}{
		"passes":           {func(c *tally) error { c.run("a", nil); return nil }, 1, 0, 0},
		"only skips":       {func(c *tally) error { c.skip("a", "a", "needs root"); return nil }, 0, 0, 1},
		"counts a failure": {func(c *tally) error { c.run("a", errors.New("no")); return nil }, 0, 1, 0},
		"cannot run":       {func(*tally) error { return errors.New("no go") }, 0, 1, 0},
		"does nothing":     {func(*tally) error { return nil }, 0, 1, 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := repo{out: io.Discard, count: newTally(io.Discard, false)}
			r.play(t.Context(), suite{name: "s", run: func(context.Context) error { return tc.run(r.count) }})
			if c := r.count; c.passed != tc.passed || c.failed != tc.failed || c.skipped != tc.skipped {
				t.Errorf("%d passed, %d failed, %d skipped, want %d, %d, %d", c.passed, c.failed, c.skipped, tc.passed, tc.failed, tc.skipped)
			}
		})
	}
}

// TestRaceDetectorMissing: without a C compiler the run says so in its count; in CI it fails.
func TestRaceDetectorMissing(t *testing.T) {
	tests := map[string]struct {
		path, cgo       string
		strict          bool
		failed, skipped int
		say             string
	}{
		"no gcc":       {t.TempDir(), "1", false, 0, 1, "no gcc, which the race detector needs (Debian packages gcc libc6-dev)"},
		"no gcc in CI": {t.TempDir(), "1", true, 1, 0, "skipped, which is a failure with CI=true: no gcc"},
		"no cgo":       {"", "0", false, 0, 1, "CGO_ENABLED=0"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if tc.path != "" {
				t.Setenv("PATH", tc.path)
			}
			t.Setenv("CGO_ENABLED", tc.cgo)
			var out strings.Builder
			r := repo{out: &out, count: newTally(&out, tc.strict)}
			if flags := r.race(); len(flags) > 0 {
				t.Errorf("flags %v, want none", flags)
			}
			r.count.summary()
			if r.count.failed != tc.failed || r.count.skipped != tc.skipped {
				t.Errorf("%d failed, %d skipped, want %d and %d", r.count.failed, r.count.skipped, tc.failed, tc.skipped)
			}
			if !strings.Contains(out.String(), tc.say) {
				t.Errorf("printed %q, want %q in it", out.String(), tc.say)
			}
		})
	}
}
