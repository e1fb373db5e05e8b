package main

import (
	"os"
	"strings"
	"testing"

	"github.com/mbcas/mbcas/internal/testing/must"
)

// TestOnceMoreForReal: as go test reports them, a test that fails at first is forgiven, and nothing
// else is: no panic, no fault that a TestMain finds, no test of a package that does not compile.
func TestOnceMoreForReal(t *testing.T) {
	const (
		head = `package p
			import ("fmt"; "os"; "testing")
			var _, _ = fmt.Print, os.Exit
			func TestB(*testing.T) {}
			func TestA(t *testing.T) {
				if _, err := os.Stat("ran"); err != nil {
					_ = os.WriteFile("ran", nil, 0o644)
					atFirst(t)
				}
			}
			`
		fails  = "func atFirst(t *testing.T) { t.Fatal() }\n"
		panics = "func atFirst(t *testing.T) { panic(1) }\n"
		faulty = `func TestMain(m *testing.M) {
				code := m.Run()
				if code != 0 { fmt.Println("` + outsideTests + `a fault") }
				os.Exit(code)
			}`
		flaky = "flaky: example.com/p TestA\n"
	)
	for name, tc := range map[string]struct{ code, want string }{
		"fails":            {head + fails, flaky + "\n2 passed, 0 failed, 0 skipped\n"},
		"panics":           {head + panics, flaky + "\n2 passed, 1 failed, 0 skipped\n"},
		"TestMain":         {head + fails + faulty, flaky + "\n2 passed, 1 failed, 0 skipped\n"},
		"does not compile": {head, "\n0 passed, 1 failed, 0 skipped\n"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			write(t, root, map[string]string{"go.mod": "module example.com/p\n\ngo 1.24\n", "p_test.go": tc.code})
			t.Setenv("GOFLAGS", "-mod=mod")
			t.Setenv("GOWORK", "off")
			var out strings.Builder
			r := &repo{root: root, out: &out, results: newResults(&out, true)}
			flags := []string{"-count=1", "-vet=off"}
			must.Succeed(t, r.goTestRepeating(t.Context(), "", nil, flags, "./..."))
			r.results.summary()
			_, closing, _ := strings.Cut(out.String(), "once more, alone")
			if !strings.HasSuffix(out.String(), tc.want) || (closing == "") == strings.HasPrefix(tc.want, flaky) {
				t.Errorf("want %q at the end:\n%s", tc.want, out.String())
			}
		})
	}
}

// TestOutsideTests: the programs that find faults of no test report them as testall reads it.
func TestOutsideTests(t *testing.T) {
	for _, file := range []string{"../../test/e2e/main_test.go", "../../internal/testing/apiserver/server.go"} {
		source, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(source), `fmt.Println("`+strings.TrimSpace(outsideTests)) {
			t.Errorf("%s prints no line that begins with %q: %v", file, outsideTests, err)
		}
	}
}
