package main

import (
	"fmt"
	"io"
	"sort"
	"strings"
)

// event is one line of `go test -json`.
type event struct {
	Action     string
	Package    string
	ImportPath string // instead of Package, on lines of a build
	Test       string
	Output     string
	Elapsed    float64
}

// optional is how a skip says that nothing is wrong with this machine: such a skip is
// counted and never fails, also when skips are not allowed.
const optional = "optional: "

// tally counts tests over any number of `go test` runs. A test and each of its subtests
// count as one each.
type tally struct {
	out     io.Writer
	strict  bool   // a skip is a failure
	perTest bool   // a line for each test as it ends, not only for each package
	where   string // added to the names of packages that are tested in several surroundings, or ""

	passed, failed, skipped int
	failures                []string
	skips                   []string

	output  map[[2]string][]string // of tests that have not ended, by package and test
	started map[string][]string    // tests of each package that have not ended
	blamed  map[string]bool        // packages with a failure that is counted
}

func newTally(out io.Writer, strict bool) *tally {
	return &tally{
		out: out, strict: strict,
		output: map[[2]string][]string{}, started: map[string][]string{}, blamed: map[string]bool{},
	}
}

// add counts one event and prints what a reader wants to see of it.
func (t *tally) add(e event) {
	if e.Action == "build-output" {
		fmt.Fprint(t.out, e.Output)
		return
	}
	if e.Package == "" {
		return
	}
	e.Package += t.where
	key := [2]string{e.Package, e.Test}
	switch e.Action {
	case "run":
		t.started[e.Package] = append(t.started[e.Package], e.Test)
	case "output":
		t.output[key] = append(t.output[key], e.Output)
	case "pass", "fail", "skip":
		if e.Test == "" {
			t.endPackage(e)
		} else {
			t.endTest(e)
		}
		delete(t.output, key)
	}
}

func (t *tally) endTest(e event) {
	t.started[e.Package] = without(t.started[e.Package], e.Test)
	name, output := e.Package+" "+e.Test, t.output[[2]string{e.Package, e.Test}]
	switch e.Action {
	case "pass":
		t.passed++
	case "fail":
		t.fail(e.Package, name, output)
	case "skip":
		t.skip(e.Package, name, skipReason(output))
	}
	if t.perTest && e.Action != "fail" {
		fmt.Fprintf(t.out, "      %s %s (%.1fs)\n", e.Action, e.Test, e.Elapsed)
	}
}

// endPackage counts what no test of the package stands for: a build that broke, a panic, a
// TestMain that failed, tests that never ended.
func (t *tally) endPackage(e event) {
	output := t.output[[2]string{e.Package, ""}]
	if e.Action == "fail" {
		for _, test := range t.started[e.Package] {
			t.fail(e.Package, e.Package+" "+test+" (never ended)", t.output[[2]string{e.Package, test}])
		}
		if !t.blamed[e.Package] {
			t.fail(e.Package, e.Package, output)
		}
	}
	delete(t.started, e.Package)
	delete(t.blamed, e.Package)
	if e.Action == "skip" || noTests(output) {
		return
	}
	word := map[string]string{"pass": "ok  ", "fail": "FAIL"}[e.Action]
	fmt.Fprintf(t.out, "%s  %s (%.1fs)\n", word, e.Package, e.Elapsed)
}

// run counts something that is not a Go test, such as a check or the start of a cluster.
func (t *tally) run(name string, err error) {
	if err != nil {
		t.fail(name, name, []string{err.Error() + "\n"})
		return
	}
	t.passed++
	fmt.Fprintf(t.out, "ok    %s\n", name)
}

func (t *tally) fail(pkg, name string, output []string) {
	t.failed++
	t.blamed[pkg] = true
	t.failures = append(t.failures, name)
	fmt.Fprintf(t.out, "--- FAIL: %s\n%s", name, strings.Join(output, ""))
}

func (t *tally) skip(pkg, name, reason string) {
	if t.strict && !strings.HasPrefix(reason, optional) {
		t.fail(pkg, name, []string{"    skipped, which is a failure with CI=true: " + reason + "\n"})
		return
	}
	t.skipped++
	t.skips = append(t.skips, name+": "+reason)
}

// total is everything that was counted so far.
func (t *tally) total() int { return t.passed + t.failed + t.skipped }

// summary prints what failed and what was skipped, and the count as its last line.
func (t *tally) summary() {
	list := func(title string, names []string) {
		if len(names) == 0 {
			return
		}
		sort.Strings(names)
		fmt.Fprintf(t.out, "\n%s:\n  %s\n", title, strings.Join(names, "\n  "))
	}
	list("skipped", t.skips)
	list("failed", t.failures)
	fmt.Fprintf(t.out, "\n%d passed, %d failed, %d skipped\n", t.passed, t.failed, t.skipped)
}

// skipReason is what the test gave to t.Skip: the last line that is not the frame's own.
func skipReason(output []string) string {
	reason := "no reason given"
	for _, line := range strings.Split(strings.Join(output, ""), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "===") || strings.HasPrefix(line, "---") {
			continue
		}
		if file, text, ok := strings.Cut(line, ": "); ok && strings.Contains(file, ".go:") {
			line = text
		}
		reason = line
	}
	return reason
}

func noTests(output []string) bool {
	for _, line := range output {
		if strings.Contains(line, "[no test files]") || strings.Contains(line, "[no tests to run]") {
			return true
		}
	}
	return false
}

func without(list []string, s string) []string {
	kept := list[:0]
	for _, x := range list {
		if x != s {
			kept = append(kept, x)
		}
	}
	return kept
}
