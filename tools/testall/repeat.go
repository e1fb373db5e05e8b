package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// maxRepeats is how many failed tests of one `go test` run once more. More failures have one cause,
// and it is no accident.
const maxRepeats = 5

// safety are the packages that write to a cluster, or decide what is written. A test of theirs that
// fails now and then may be a race of the product: the run stays red.
var safety = strings.Fields(`actuator cmd/mbcas-controller internal/agent internal/controller internal/dispatch
	internal/nodeallocation internal/restore internal/sharding`)

// goTestRepeating is goTest for tests on a real API server, node or browser, where the machine may be at
// fault. A test that fails runs once more, alone, and counts as flaky if it passes then. The run
// stays red if the test was flaky in one of the last runs, too, or belongs to a package of safety.
func (r *repo) goTestRepeating(ctx context.Context, dir string, env, flags []string, packages ...string) error {
	before := len(r.results.failures)
	if err := r.goTest(ctx, dir, env, flags, packages...); err != nil {
		return err
	}
	failed := repeatable(r.results.failures[before:])
	if len(failed) > maxRepeats {
		fmt.Fprintf(r.out, "   %d tests failed: too many for an accident, none runs once more\n", len(failed))
		return nil
	}
	if len(failed) > 0 && r.alone != nil {
		_ = r.alone() // beside reports the error
	}
	for _, f := range failed {
		fmt.Fprintf(r.out, "   once more, alone: %s\n", f)
		again := *r
		again.results = r.results.apart()
		once := append(slices.Clone(flags), "-run=^"+f.test+"$")
		if err := again.goTest(ctx, dir, env, once, f.pkg); err != nil {
			return err
		}
		if again.results.failed == 0 && again.results.passed > 0 {
			r.results.noteFlaky(f, slices.Contains(r.flakyBefore, f.String()))
		}
	}
	return nil
}

// repeatable are the top-level tests of failures, without those of which a part is final.
func repeatable(failures []failure) (tests []failure) {
	for _, f := range failures {
		test := failure{pkg: f.pkg, test: top(f.test)}
		final := slices.ContainsFunc(failures, func(g failure) bool {
			return g.final && g.pkg == f.pkg && top(g.test) == test.test
		})
		if !final && !slices.Contains(tests, test) {
			tests = append(tests, test)
		}
	}
	return tests
}

// noteFlaky notes that a test failed and then passed. Unless it must not happen again, its failures
// count as passed.
func (r *results) noteFlaky(f failure, again bool) {
	r.flaky = append(r.flaky, f.String())
	for i := range r.ended {
		if r.ended[i].Package == f.pkg && r.ended[i].Test == f.test {
			r.ended[i].Outcome = outcomeFlaky
		}
	}
	if again || slices.ContainsFunc(safety, func(dir string) bool { return strings.Contains(f.pkg+"/", "/"+dir+"/") }) {
		return
	}
	of := func(g failure) bool { return g.pkg == f.pkg && top(g.test) == f.test }
	was := len(r.failures)
	r.failures = slices.DeleteFunc(r.failures, of)
	r.failed -= was - len(r.failures)
	r.passed += was - len(r.failures)
}
