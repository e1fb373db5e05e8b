package main

import (
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestConcurrent: each sign of concurrency, in code or tests, has a package run under the race detector.
func TestConcurrent(t *testing.T) {
	for name, tc := range map[string]struct {
		files map[string]string
		want  bool
	}{
		"neither":        {map[string]string{"a.go": "package a\n\nfunc F() { g() }\n\nfunc g() {}\n"}, false},
		"go":             {map[string]string{"a.go": "package a\n\nfunc F() { go F() }\n"}, true},
		"go in a test":   {map[string]string{"a_test.go": "package a\n\nfunc F() { go F() }\n"}, true},
		"outer test":     {map[string]string{"x_test.go": "package a_test\n\nfunc F() { go F() }\n"}, true},
		"channel":        {map[string]string{"a.go": "package a\n\nvar C chan int\n"}, true},
		"lock":           {map[string]string{"a.go": "package a\n\nimport \"sync\"\n\nvar M sync.Mutex\n"}, true},
		"client":         {map[string]string{"a.go": "package a\n\nimport _ \"k8s.io/client-go/rest\"\n"}, true},
		"parallel tests": {map[string]string{"a_test.go": "package a\n\nfunc F(t T) { t.Parallel() }\n"}, true},
		"a timer": {
			map[string]string{"a.go": "package a\n\nimport \"time\"\n\nvar T = time.AfterFunc(1, nil)\n"}, true,
		},
		"a word": {map[string]string{"a.go": "package a\n\n// F does not go f().\nfunc F() {}\n"}, false},
	} {
		p := listed{ImportPath: name, Dir: t.TempDir()}
		write(t, p.Dir, tc.files)
		for file := range tc.files {
			switch file {
			case "a.go":
				p.GoFiles = append(p.GoFiles, file)
			case "a_test.go":
				p.TestGoFiles = append(p.TestGoFiles, file)
			default:
				p.XTestGoFiles = append(p.XTestGoFiles, file)
			}
		}
		concurrent, sequential, err := splitConcurrent([]listed{p})
		if err != nil || (len(concurrent) == 1) != tc.want || len(concurrent)+len(sequential) != 1 {
			t.Errorf("%s: %v under the race detector, %v without, %v", name, concurrent, sequential, err)
		}
	}
	broken := listed{Dir: t.TempDir(), GoFiles: []string{"a.go"}}
	if _, _, err := splitConcurrent([]listed{broken}); err == nil {
		t.Error("a package without its file: no error")
	}
}

// TestSimulations: each test that unit leaves out under the race detector is one of the package where it runs without,
// and no other package has a test of that name, which would not run at all.
func TestSimulations(t *testing.T) {
	r := &repo{root: "../..", out: io.Discard, results: newResults(io.Discard, false)}
	pattern, dirs := simulated()
	found, err := r.tests(t.Context(), `^func (Test|Fuzz|Example)\w*`)
	if err != nil || len(found) < 1000 || len(dirs) != len(simulations) {
		t.Fatalf("%d tests, simulations in %v: %v", len(found), dirs, err)
	}
	names := regexp.MustCompile(pattern)
	var got, want []string // each as its folder and its name
	for _, f := range found {
		if name := strings.TrimPrefix(f[1], "func "); names.MatchString(name) {
			got = append(got, f[0]+" "+name)
		}
	}
	for _, s := range simulations {
		for _, name := range strings.Fields(s.tests) {
			want = append(want, s.dir+" "+name)
		}
	}
	slices.Sort(got)
	if slices.Sort(want); !slices.Equal(got, want) {
		t.Errorf("found:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestSimulatorsAreSequential: the packages whose tests play hours in the simulator run without the race detector. A
// parallel test would have them run under it, nine times as long.
func TestSimulatorsAreSequential(t *testing.T) {
	r := &repo{root: "../..", out: io.Discard, results: newResults(io.Discard, false)}
	list, err := r.packages(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, sequential, err := splitConcurrent(list)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"internal/benefit", "internal/replay", "internal/lab/mbcas", "internal/round"} {
		if !slices.ContainsFunc(sequential, func(path string) bool { return strings.HasSuffix(path, "/"+name) }) {
			t.Errorf("%s runs under the race detector: is a test of it parallel?", name)
		}
	}
}
