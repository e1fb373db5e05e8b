package main

import (
	"fmt"
	"io"
	"slices"
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

// results are the counts of any number of `go test` runs. A test and each of its subtests
// count as one each.
type results struct {
	out     io.Writer
	strict  bool   // a skip is a failure
	perTest bool   // a line for each test as it ends, not only for each package
	where   string // added to the names of packages that are tested on several versions of Kubernetes, or ""

	passed, failed, skipped int
	failures                []failure
	skips                   []string
	flaky                   []string // tests that failed and passed when they ran once more
	ended                   []record // top-level tests
	total0, stolen0         float64  // cpuTime as the run began

	output  map[[2]string][]string // of tests that have not ended, by package and test
	started map[string][]string    // tests of each package that have not ended
	counted map[string]bool        // packages with a failure that is counted
}

// failure is a test that failed, or with no test a package or something that is no Go test.
type failure struct {
	pkg, test string
	// final failures do not run once more: a test that never ended, a data race.
	final bool
}

func (f failure) String() string { return strings.TrimSpace(f.pkg + " " + f.test) }

// top is the name of the test that a subtest belongs to.
func top(test string) string {
	name, _, _ := strings.Cut(test, "/")
	return name
}

func newResults(out io.Writer, strict bool) *results {
	r := &results{
		out: out, strict: strict,
		output: map[[2]string][]string{}, started: map[string][]string{}, counted: map[string]bool{},
	}
	r.total0, r.stolen0 = cpuTime()
	return r
}

// add counts one event and prints failures and the results of packages.
func (r *results) add(e event) {
	if e.Action == "build-output" {
		fmt.Fprint(r.out, e.Output)
		return
	}
	if e.Package == "" {
		return
	}
	e.Package += r.where
	key := [2]string{e.Package, e.Test}
	switch e.Action {
	case "run":
		r.started[e.Package] = append(r.started[e.Package], e.Test)
	case "output":
		r.output[key] = append(r.output[key], e.Output)
	case "pass", "fail", "skip":
		if e.Test == "" {
			r.endPackage(e)
		} else {
			r.endTest(e)
		}
		delete(r.output, key)
	}
}

func (r *results) endTest(e event) {
	ended := func(test string) bool { return test == e.Test }
	r.started[e.Package] = slices.DeleteFunc(r.started[e.Package], ended)
	output := r.output[[2]string{e.Package, e.Test}]
	switch e.Action {
	case "pass":
		r.passed++
	case "fail":
		r.fail(failure{e.Package, e.Test, hasDataRace(output)}, output)
	case "skip":
		r.skip(e.Package, e.Test, skipReason(output))
	}
	if top(e.Test) == e.Test {
		r.addRecord(e)
	}
	if r.perTest && e.Action != "fail" {
		fmt.Fprintf(r.out, "      %s %s (%.1fs)\n", e.Action, e.Test, e.Elapsed)
	}
}

// hasDataRace reports whether the race detector has failed a test.
func hasDataRace(output []string) bool {
	return slices.ContainsFunc(output, func(line string) bool { return strings.Contains(line, "race detected during") })
}

// outsideTests begins a line with which a TestMain reports a fault that is no test's.
const outsideTests = "OUTSIDE OF THE TESTS: "

// onlyTestsFailed reports whether a package that failed, by its output, ran to its end and failed
// for its tests alone: no panic cut it off, and neither its TestMain, nor the race detector, nor
// package testing found a fault after the tests.
func onlyTestsFailed(output []string) bool {
	return slices.Contains(output, "FAIL\n") && !slices.ContainsFunc(output, func(line string) bool {
		return strings.HasPrefix(line, outsideTests) || strings.HasPrefix(line, "*** Test") ||
			strings.Contains(line, "race detected")
	})
}

// endPackage counts failures outside of a single test: a build that broke, a panic, a
// TestMain that failed, tests that never ended.
func (r *results) endPackage(e event) {
	output := r.output[[2]string{e.Package, ""}]
	if e.Action == "fail" {
		hang := r.started[e.Package]
		for _, test := range hang {
			r.fail(failure{e.Package, test + " (never ended)", true}, r.output[[2]string{e.Package, test}])
		}
		if !r.counted[e.Package] || len(hang) == 0 && !onlyTestsFailed(output) {
			r.fail(failure{pkg: e.Package, final: true}, output)
		}
	}
	delete(r.started, e.Package)
	delete(r.counted, e.Package)
	text := strings.Join(output, "")
	if e.Action == "skip" || strings.Contains(text, "[no test files]") || strings.Contains(text, "[no tests to run]") {
		return
	}
	word := map[string]string{"pass": "ok  ", "fail": "FAIL"}[e.Action]
	fmt.Fprintf(r.out, "%s  %s (%.1fs)\n", word, e.Package, e.Elapsed)
}

// run counts something that is not a Go test, such as a check or the start of a cluster.
func (r *results) run(name string, err error) {
	if err != nil {
		r.fail(failure{pkg: name, final: true}, []string{err.Error() + "\n"})
		return
	}
	r.passed++
	fmt.Fprintf(r.out, "ok    %s\n", name)
}

func (r *results) fail(f failure, output []string) {
	r.failed++
	r.counted[f.pkg] = true
	r.failures = append(r.failures, f)
	fmt.Fprintf(r.out, "--- FAIL: %s\n%s", f, strings.Join(output, ""))
}

func (r *results) skip(pkg, test, reason string) {
	f := failure{pkg: pkg, test: test, final: true}
	if r.strict && !strings.HasPrefix(reason, optional) {
		r.fail(f, []string{"    skipped, which is a failure with CI=true: " + reason + "\n"})
		return
	}
	r.skipped++
	r.skips = append(r.skips, f.String()+": "+reason)
}

// apart are results of the same run that are counted beside these, until take.
func (r *results) apart() *results {
	o := newResults(r.out, r.strict)
	o.perTest, o.where, o.total0, o.stolen0 = r.perTest, r.where, r.total0, r.stolen0
	return o
}

// take adds what was counted apart.
func (r *results) take(o *results) {
	r.passed, r.failed, r.skipped = r.passed+o.passed, r.failed+o.failed, r.skipped+o.skipped
	r.failures, r.skips = append(r.failures, o.failures...), append(r.skips, o.skips...)
	r.flaky, r.ended = append(r.flaky, o.flaky...), append(r.ended, o.ended...)
}

// total is everything that was counted so far.
func (r *results) total() int { return r.passed + r.failed + r.skipped }

// summary prints what failed and what was skipped, and the count as its last line.
func (r *results) summary() {
	list := func(title string, names []string) {
		if len(names) == 0 {
			return
		}
		sort.Strings(names)
		fmt.Fprintf(r.out, "\n%s:\n  %s\n", title, strings.Join(names, "\n  "))
	}
	list("skipped", r.skips)
	var failed []string
	for _, f := range r.failures {
		failed = append(failed, f.String())
	}
	list("failed", failed)
	for _, name := range r.flaky {
		fmt.Fprintf(r.out, "flaky: %s\n", name)
	}
	fmt.Fprintf(r.out, "\n%d passed, %d failed, %d skipped\n", r.passed, r.failed, r.skipped)
}

// skipReason is what the test gave to r.Skip: the last line that is not the frame's own.
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
