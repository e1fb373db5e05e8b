package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
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
			if err := r.goTestRepeating(t.Context(), "", nil, []string{"-count=1"}, "./..."); err != nil {
				t.Fatal(err)
			}
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

// TestOnceMoreWaits: a test runs once more when those beside it have ended, and both are counted.
func TestOnceMoreWaits(t *testing.T) {
	bin := t.TempDir()
	write(t, bin, map[string]string{
		"first": `{"Action":"fail","Package":"m/cli","Test":"A"}` + "\n" + `{"Action":"output","Package":"m/cli",` +
			`"Output":"FAIL\n"}` + "\n" + `{"Action":"fail","Package":"m/cli"}`,
		"second": `{"Action":"pass","Package":"m/cli","Test":"A"}` + "\n" + `{"Action":"pass","Package":"m/cli"}`,
		"go":     "#!/bin/sh\ncase \"$*\" in\n*-run=*) test -e ended && cat second ;;\n*) cat first ;;\nesac\n",
	})
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	var out strings.Builder
	r := &repo{root: bin, out: &out, results: newResults(&out, true)}
	waits := make(chan struct{})
	err := r.beside(func(r *repo) error {
		<-waits
		r.results.passed++
		return os.WriteFile(filepath.Join(bin, "ended"), nil, 0o600)
	}, func(r *repo) error {
		alone, wait := r.alone, sync.OnceFunc(func() { close(waits) })
		r.alone = func() error { wait(); return alone() }
		return r.goTestRepeating(t.Context(), "", nil, nil, "./...")
	})
	r.results.summary()
	want := "flaky: m/cli A\n\n2 passed, 0 failed, 0 skipped\n"
	if err != nil || !strings.HasSuffix(out.String(), want) {
		t.Errorf("want %q at the end, no error: %v\n%s", want, err, out.String())
	}
}
