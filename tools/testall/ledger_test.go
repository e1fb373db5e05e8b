package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mbcas/mbcas/internal/testing/must"
)

// TestLedger: runs are kept up to a bound, also beside a line that is broken; a test counts as
// flaky for its next runs.
func TestLedger(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mbcas", "ledger.jsonl")
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	const runs = keptRuns + 5
	for i := range runs {
		flaky := map[bool]string{true: outcomeFlaky, false: "pass"}
		err := appendLedger(path, start.Add(time.Duration(i)*time.Hour), "abc", []record{
			{Package: "p", Test: fmt.Sprintf("T%d", i), Outcome: "pass", Seconds: float64(i)},
			{Package: "p", Test: "Lately", Outcome: flaky[i == runs-flakyRuns]},
			{Package: "p", Test: "Before", Outcome: flaky[i == runs-flakyRuns-1]},
		})
		must.Succeed(t, err)
		if i == runs/2 {
			file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
			must.Succeed(t, err)
			fmt.Fprintln(file, `{"run": "20`)
			file.Close()
		}
	}
	all, err := readLedger(path)
	if err != nil || len(all) != 3*keptRuns || all[0].Test != "T5" {
		t.Fatalf("%d records, the first %+v, %v; want those of %d runs", len(all), all[0], err, keptRuns)
	}
	if got := flakyIn(all); !slices.Equal(got, []string{"p Lately"}) {
		t.Errorf("flaky in their last %d runs: %v, want Lately alone", flakyRuns, got)
	}
	var out strings.Builder
	printLedger(&out, all)
	for _, want := range []string{
		"slowest of 3 tests in the run of 2026-01-02T20:00:00Z at abc:\n    44.0 s  p T44 (pass, load 0.0)\n",
		"  2026-01-02T01:00:00Z  abc  flaky  p Lately (load 0.0, steal 0.0 %)\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, out.String())
		}
	}
}

// TestEmptyLedger: before the first run, make ledger prints what adds one.
func TestEmptyLedger(t *testing.T) {
	all, err := readLedger(filepath.Join(t.TempDir(), "ledger.jsonl"))
	var out strings.Builder
	printLedger(&out, all)
	if err != nil || out.String() != "no run is on record; make test adds one\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
}

// TestRecords: a record has the outcome and the time of a test with its subtests, and no subtest
// has one of its own.
func TestRecords(t *testing.T) {
	r := newResults(&strings.Builder{}, true)
	err := r.read(strings.NewReader(`
		{"Action":"pass","Package":"p","Test":"A/sub","Elapsed":1}
		{"Action":"fail","Package":"p","Test":"A","Elapsed":1.5}`))
	if err != nil || len(r.ended) != 1 {
		t.Fatalf("%+v, %v; want one record", r.ended, err)
	}
	if got := r.ended[0]; got.name() != "p A" || got.Outcome != "fail" || got.Seconds != 1.5 {
		t.Errorf("%+v", got)
	}
}
