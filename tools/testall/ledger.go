package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"
)

const (
	// keptRuns is how many runs the ledger keeps: 2,000 tests of 200 bytes each.
	keptRuns = 40
	// flakyRuns is for how many of its runs a test counts as flaky.
	flakyRuns = 20

	outcomeFlaky = "flaky"
)

// record is a line of the ledger: a test, with its subtests, in one run.
type record struct {
	Run     time.Time `json:"run"`    // its start
	Commit  string    `json:"commit"` // with "-dirty" where files differ from it
	Package string    `json:"package"`
	Test    string    `json:"test"`
	Outcome string    `json:"outcome"` // pass, fail, skip or flaky
	Seconds float64   `json:"seconds"`
	// Load is the load average over the last minute as the test ended. Steal is the share of CPU time
	// that the hypervisor took since the run began, in percent. They are 0 where the system does not
	// report them.
	Load  float64 `json:"load"`
	Steal float64 `json:"steal"`
}

// addRecord notes the end of a test.
func (r *results) addRecord(e event) {
	ended := record{Package: e.Package, Test: e.Test, Outcome: e.Action, Seconds: e.Elapsed, Load: loadAverage()}
	if total, stolen := cpuTime(); total > r.total0 {
		ended.Steal = 100 * (stolen - r.stolen0) / (total - r.total0)
	}
	r.ended = append(r.ended, ended)
}

func (r record) name() string { return r.Package + " " + r.Test }

// ledgerPath is outside of the clone, so that runs of other clones are in it.
func ledgerPath() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = os.TempDir()
	}
	return filepath.Join(dir, "mbcas", "ledger.jsonl")
}

// readLedger returns the records of the file, oldest run first; none where there is no file. A line
// that is no record is left out.
func readLedger(path string) ([]record, error) {
	text, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("read the ledger of test runs: %w", err)
	}
	var all []record
	for line := range bytes.Lines(text) {
		var r record
		if json.Unmarshal(line, &r) == nil {
			all = append(all, r)
		}
	}
	slices.SortStableFunc(all, func(a, b record) int { return a.Run.Compare(b.Run) })
	return all, nil
}

// lastRuns are the records of the last n runs.
func lastRuns(all []record, n int) []record {
	var runs []time.Time
	for _, r := range all {
		if len(runs) == 0 || !runs[len(runs)-1].Equal(r.Run) {
			runs = append(runs, r.Run)
		}
	}
	if len(runs) <= n {
		return all
	}
	first := slices.IndexFunc(all, func(r record) bool { return r.Run.Equal(runs[len(runs)-n]) })
	return all[first:]
}

// flakyIn are the tests that were flaky in one of the last flakyRuns of their own runs, sorted.
func flakyIn(all []record) []string {
	var names []string
	runs := map[string]int{}
	for _, r := range slices.Backward(all) {
		name := r.name()
		if runs[name]++; runs[name] <= flakyRuns && r.Outcome == outcomeFlaky && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// appendLedger adds the records of a run to the file, and drops the oldest runs.
func appendLedger(path string, run time.Time, commit string, ended []record) error {
	for i := range ended {
		ended[i].Run, ended[i].Commit = run, commit
	}
	before, err := readLedger(path)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	lines := json.NewEncoder(&text)
	for _, r := range slices.Concat(lastRuns(before, keptRuns-1), ended) {
		if err := lines.Encode(r); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write the ledger of test runs: %w", err)
	}
	// Where two runs end at once the records of one are lost; a file that is half written would lose
	// all.
	file, err := os.CreateTemp(filepath.Dir(path), "ledger-")
	if err != nil {
		return fmt.Errorf("write the ledger of test runs: %w", err)
	}
	_, err = file.Write(text.Bytes())
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write the ledger of test runs: %w", err), os.Remove(file.Name()))
	}
	return nil
}

// printLedger prints the ten slowest tests of the last run, and the flaky ones of all runs that are
// kept.
func printLedger(out io.Writer, all []record) {
	w := bufio.NewWriter(out)
	defer w.Flush()
	if len(all) == 0 {
		fmt.Fprintln(w, "no run is on record; make test adds one")
		return
	}
	last := slices.Clone(lastRuns(all, 1))
	slices.SortStableFunc(last, func(a, b record) int { return cmp.Compare(b.Seconds, a.Seconds) })
	fmt.Fprintf(w, "slowest of %d tests in the run of %s at %s:\n", len(last), last[0].Run.Format(time.RFC3339),
		last[0].Commit)
	for _, r := range last[:min(10, len(last))] {
		fmt.Fprintf(w, "  %6.1f s  %s (%s, load %.1f)\n", r.Seconds, r.name(), r.Outcome, r.Load)
	}
	fmt.Fprintln(w, "failed or flaky in the runs on record:")
	var some bool
	for _, r := range all {
		if r.Outcome == "fail" || r.Outcome == outcomeFlaky {
			some = true
			fmt.Fprintf(w, "  %s  %s  %s  %s", r.Run.Format(time.RFC3339), r.Commit, r.Outcome, r.name())
			fmt.Fprintf(w, " (load %.1f, steal %.1f %%)\n", r.Load, r.Steal)
		}
	}
	if !some {
		fmt.Fprintln(w, "  none")
	}
}
