package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/mbcas/mbcas/internal/testing/must"
)

// TestOnceMore: what a test that fails, and runs once more, does to the count and the closing
// lines.
func TestOnceMore(t *testing.T) {
	const (
		passes = `{"Action":"run","Package":"PKG","Test":"A"}
			{"Action":"pass","Package":"PKG","Test":"A"}
			{"Action":"pass","Package":"PKG"}`
		fails = `{"Action":"fail","Package":"PKG","Test":"A/sub"}
			{"Action":"fail","Package":"PKG","Test":"A"}
			{"Action":"pass","Package":"PKG","Test":"B"}
			{"Action":"output","Package":"PKG","Output":"FAIL\n"}
			{"Action":"fail","Package":"PKG"}`
		race = `{"Action":"output","Package":"PKG","Test":"A/sub","Output":"race detected during execution of test\n"}
			`
		guard = `{"Action":"fail","Package":"PKG","Test":"A"}
			{"Action":"output","Package":"PKG","Output":"FAIL\n"}
			{"Action":"output","Package":"PKG","Output":"OUTSIDE OF THE TESTS: a fault\n"}
			{"Action":"fail","Package":"PKG"}`
		hangs = `{"Action":"run","Package":"PKG","Test":"A"}
			{"Action":"fail","Package":"PKG"}`
		flaky = "flaky: "
	)
	many := ""
	for i := range maxRepeats + 1 {
		many += fmt.Sprintf(`{"Action":"fail","Package":"PKG","Test":"A%d"}`+"\n", i)
	}
	tests := map[string]struct {
		pkg, first, second string // what go test prints, the second time for A alone
		before             string // flaky in the last runs
		want               string // the last line
		flaky              bool
	}{
		"passes alone":       {"m/cli", fails, passes, "", "3 passed, 0 failed, 0 skipped", true},
		"fails again":        {"m/cli", fails, fails, "", "1 passed, 2 failed, 0 skipped", false},
		"does not run":       {"m/cli", fails, "", "", "1 passed, 2 failed, 0 skipped", false},
		"was flaky before":   {"m/cli", fails, passes, "m/cli A", "1 passed, 2 failed, 0 skipped", true},
		"another was":        {"m/cli", fails, passes, "m/cli B", "3 passed, 0 failed, 0 skipped", true},
		"controller":         {"m/internal/controller", fails, passes, "", "1 passed, 2 failed, 0 skipped", true},
		"actuator/podresize": {"m/actuator/podresize", fails, passes, "", "1 passed, 2 failed, 0 skipped", true},
		"a data race":        {"m/cli", race + fails, passes, "", "1 passed, 2 failed, 0 skipped", false},
		"outside of tests":   {"m/cli", guard, passes, "", "1 passed, 1 failed, 0 skipped", true},
		"never ended":        {"m/cli", hangs, passes, "", "0 passed, 1 failed, 0 skipped", false},
		"too many":           {"m/cli", many, passes, "", "0 passed, 6 failed, 0 skipped", false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			bin := t.TempDir()
			write(t, bin, map[string]string{
				"first":  strings.ReplaceAll(tc.first, "PKG", tc.pkg),
				"second": strings.ReplaceAll(tc.second, "PKG", tc.pkg),
				"go": "#!/bin/sh\ncase \"$*\" in\n*-run=^A\\$*" + tc.pkg + ") cat second ;;\n" +
					"*) cat first ;;\nesac\n",
			})
			t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
			var out strings.Builder
			r := &repo{root: bin, out: &out, results: newResults(&out, true), flakyBefore: []string{tc.before}}
			must.Succeed(t, r.goTestRepeating(t.Context(), "", nil, []string{"-count=1"}, "./..."))
			r.results.summary()
			closing := "\n" + tc.want + "\n"
			if tc.flaky {
				closing = flaky + tc.pkg + " A\n" + closing
			}
			if !strings.HasSuffix(out.String(), closing) || strings.Contains(out.String(), flaky) != tc.flaky {
				t.Errorf("want %q at the end:\n%s", closing, out.String())
			}
		})
	}
}

// TestOnceMoreWaits: a test runs once more when those beside it have ended, and all are counted.
func TestOnceMoreWaits(t *testing.T) {
	bin := t.TempDir()
	failed := func(pkg, test string) string {
		return fmt.Sprintf(`{"Action":"fail","Package":%q,"Test":%q}
			{"Action":"output","Package":%[1]q,"Output":"FAIL\n"}
			{"Action":"fail","Package":%[1]q}`, pkg, test)
	}
	write(t, bin, map[string]string{
		"first":  failed("m/cli", "A"),
		"second": `{"Action":"pass","Package":"m/cli","Test":"A"}` + "\n" + `{"Action":"pass","Package":"m/cli"}`,
		"beside": failed("m/pure", "B"),
		"go": "#!/bin/sh\ncase \"$*\" in\n*-run=*) test -e ended && cat second ;;\n" +
			"*/pure) cat beside; exit 1 ;;\n*) cat first; exit 1 ;;\nesac\n",
	})
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	var out strings.Builder
	r := &repo{root: bin, out: newProgress(&out)}
	r.results = newResults(r.out, false)
	waits, broken := make(chan struct{}), errors.New("broken")
	err := r.beside(func(r *repo) error {
		<-waits
		err := r.goTest(t.Context(), "", nil, nil, "./pure")
		r.results.skip("m/pure", "C", "why")
		return errors.Join(err, os.WriteFile(filepath.Join(bin, "ended"), nil, 0o600), broken)
	}, func(r *repo) error {
		alone, begin := r.alone, sync.OnceFunc(func() { close(waits) })
		defer begin()
		r.alone = func() error { begin(); return alone() }
		return r.goTestRepeating(t.Context(), "", nil, nil, "./...")
	})
	r.results.summary()
	if !errors.Is(err, broken) || strings.Count(err.Error(), "broken") != 1 || len(r.results.ended) != 2 {
		t.Errorf("%v, %d records; want one error of the tests beside, two records", err, len(r.results.ended))
	}
	want := "\nskipped:\n  m/pure C: why\n\nfailed:\n  m/pure B\nflaky: m/cli A\n\n1 passed, 1 failed, 1 skipped\n"
	if !strings.HasSuffix(out.String(), want) {
		t.Errorf("want %q at the end:\n%s", want, out.String())
	}
}
