package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mbcas/mbcas/internal/testing/must"
)

// TestInvalidUsage: a command line that names nothing to run is an error that lists the choices.
func TestInvalidUsage(t *testing.T) {
	tests := map[string]struct {
		args  []string
		print string
	}{
		"unknown suite": {
			[]string{"-only", "typo"}, `no suite "typo"; there are check unit fuzz long race page path virtual`,
		},
		"unknown tier":    {[]string{"-tier", "some"}, `no tier "some"; there are test, ci and all`},
		"suite as a word": {[]string{"fuzz"}, `unexpected argument "fuzz"; use -only for one suite`},
		"unknown flag":    {[]string{"-suite", "fuzz"}, "flag provided but not defined: -suite"},
		"invalid number":  {[]string{"-fuzzruns", "some"}, "invalid value"},
		"no runs":         {[]string{"-fuzzruns", "0"}, "-fuzzruns 0: want at least 1"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr strings.Builder
			if code := run(t.Context(), tc.args, &stdout, &stderr); code != 2 {
				t.Errorf("exit code %d, want 2", code)
			}
			if !strings.Contains(stderr.String(), tc.print) {
				t.Errorf("printed %q, want %q in it", stderr.String(), tc.print)
			}
			if stdout.String() != "" {
				t.Errorf("printed %q although nothing was run", stdout.String())
			}
		})
	}
}

// TestTiers: the suites of each tier, in the order of their run.
func TestTiers(t *testing.T) {
	for _, tc := range []struct{ tier, only, want string }{
		{tier: "test", want: "unit path"},
		{tier: "ci", want: "check unit path"},
		{
			tier: "all",
			want: "unit fuzz long race page path virtual platform monitoring faults starts chaos nodes " +
				"cluster skew rules dashboards",
		},
		{tier: "test", only: "fuzz", want: "fuzz"},
	} {
		chosen, err := (&repo{}).choose(options{tier: tc.tier, only: tc.only})
		if got := names(chosen); err != nil || got != tc.want {
			t.Errorf("%+v chose %q, %v", tc, got, err)
		}
	}
}

// TestPackages: each package of the main module but the end-to-end tests is in one list, and in
// which.
func TestPackages(t *testing.T) {
	root, err := filepath.Abs("../..")
	must.Succeed(t, err)
	p, err := (&repo{root: root, out: io.Discard}).packages(t.Context())
	must.Succeed(t, err)
	got := map[string]string{}
	for kind, list := range map[string][]string{"server": p.server, "concurrent": p.concurrent, "pure": p.pure} {
		for _, name := range list {
			got[name] += kind
		}
	}
	out, err := exec.CommandContext(t.Context(), "go", "list", root+"/...").Output()
	must.Succeed(t, err)
	const module = "github.com/mbcas/mbcas"
	for _, name := range strings.Fields(string(out)) {
		if kind := got[name]; !slices.Contains([]string{"server", "concurrent", "pure"}, kind) &&
			!strings.HasPrefix(name, module+"/test/e2e") {
			t.Errorf("%s is %q", name, kind)
		}
	}
	for name, want := range map[string]string{
		"/internal/controller": "server", "/internal/cli": "server", "/test/e2e": "",
		"/internal/sharding": "concurrent", "/internal/dispatch": "concurrent",
		"/market": "pure", "/internal/round": "pure",
	} {
		if got[module+name] != want {
			t.Errorf("%s is %q, want %q", name, got[module+name], want)
		}
	}
}

// TestRunSuite: what a suite did is counted, and doing nothing is a failure.
func TestRunSuite(t *testing.T) {
	tests := map[string]struct {
		run  func(*results) error
		want string // the last line
	}{
		"passes":       {func(c *results) error { c.run("a", nil); return nil }, "1 passed, 0 failed, 0 skipped"},
		"skips":        {func(c *results) error { c.skip("", "", ""); return nil }, "0 passed, 0 failed, 1 skipped"},
		"a failure":    {func(c *results) error { c.run("", io.EOF); return nil }, "0 passed, 1 failed, 0 skipped"},
		"cannot run":   {func(*results) error { return io.EOF }, "0 passed, 1 failed, 0 skipped"},
		"does nothing": {func(*results) error { return nil }, "0 passed, 1 failed, 0 skipped"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			r := &repo{out: io.Discard, results: newResults(&out, false)}
			r.runSuite(t.Context(), suite{name: "s", run: func(context.Context) error { return tc.run(r.results) }})
			r.results.summary()
			if !strings.Contains(out.String(), "\n"+tc.want+"\n") {
				t.Errorf("want %s:\n%s", tc.want, &out)
			}
		})
	}
}

// TestStartCluster: only where up says that no node can run, the suites are skips, and nothing is to be
// stopped. A start that fails is tried again by the next suite. A cluster that runs is left running; what
// is left of one that does not run is removed first.
func TestStartCluster(t *testing.T) {
	tests := map[string]struct {
		before           string // files of an earlier cluster
		up, load, assets string // commands
		skip, stop, env  bool
	}{
		"runs":            {up: "true", load: "true", assets: "echo /assets", stop: true, env: true},
		"ran before":      {before: "up healthy", up: "true", load: "true", assets: "echo /assets", env: true},
		"an add-on fails": {before: "up healthy", up: "true", load: "true", assets: "echo /assets", env: true},
		"was cut off": {
			before: "up rest", up: "[ ! -e rest ]", load: "true", assets: "echo /assets", stop: true, env: true,
		},
		"no node":       {up: "echo no node can run here: not root >&2; false", skip: true},
		"up fails":      {up: "echo no node mbcas-node-1 >&2; false", stop: true},
		"load fails":    {up: "true", load: "echo no node can run here >&2; false", stop: true},
		"assets missed": {up: "true", load: "true", assets: "false", stop: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			const program = "#!/bin/sh\ncase $1 in\n" +
				"kubeconfig) [ -e up ] && echo /kubeconfig ;;\nup) touch up; %s ;;\n" +
				"status) [ -e healthy ] || echo etcd - does not run ;;\n" +
				"down) rm -f up healthy rest ;;\nassets) %s ;;\nesac\n"
			write(t, root, map[string]string{
				"bin/mbcas-cluster": fmt.Sprintf(program, tc.up, cmp.Or(tc.assets, "true")),
				"Makefile":          "load:\n\t@" + tc.load + "\n",
			})
			for _, name := range strings.Fields(tc.before) {
				write(t, root, map[string]string{name: ""})
			}
			r := &repo{root: root, out: io.Discard}
			err := r.startCluster(t.Context())
			if (err == nil) != tc.env || errors.Is(err, errNoNode) != tc.skip {
				t.Errorf("%v; want a skip: %v", err, tc.skip)
			}
			if got := r.cluster.env != nil; got != tc.env || r.cluster.started != tc.stop {
				t.Errorf("%+v, want an environment: %v, to be stopped: %v", r.cluster, tc.env, tc.stop)
			}
		})
	}
}

// TestNotStarted: startCluster looks for words that mbcas-cluster status prints.
func TestNotStarted(t *testing.T) {
	const words = "does not run"
	source, err := os.ReadFile("../../test/cluster/internal/cluster/status.go")
	if err != nil || !strings.Contains(string(source), `return "-", "`+words+`"`) {
		t.Errorf("mbcas-cluster status does not print %q for a component without a process: %v", words, err)
	}
	if status := "COMPONENT  PID  HEALTH\netcd       -    " + words + "\n"; !notStarted.MatchString(status) {
		t.Errorf("not found in:\n%s", status)
	}
}

// TestLineTooLong: output that cannot be read ends the run with an error.
func TestLineTooLong(t *testing.T) {
	bin := t.TempDir()
	write(t, bin, map[string]string{"go": "#!/bin/sh\nhead -c 40000000 /dev/zero\n"})
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	r := &repo{root: bin, out: io.Discard, results: newResults(io.Discard, false)}
	ended := make(chan error, 1)
	go func() { ended <- r.goTest(t.Context(), "", nil, nil) }()
	select {
	case err := <-ended:
		if !errors.Is(err, bufio.ErrTooLong) {
			t.Errorf("%v, want %v", err, bufio.ErrTooLong)
		}
	case <-time.After(time.Minute):
		t.Fatal("go test waits for ever")
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
		"no gcc":       {t.TempDir(), "1", false, 0, 1, "no gcc, which the race detector needs (Debian packages gcc"},
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
			r := &repo{out: &out, results: newResults(&out, tc.strict)}
			if flags := r.race(); len(flags) > 0 {
				t.Errorf("flags %v, want none", flags)
			}
			r.results.summary()
			if r.results.failed != tc.failed || r.results.skipped != tc.skipped {
				t.Errorf("%+v, want %d failed and %d skipped", r.results, tc.failed, tc.skipped)
			}
			if !strings.Contains(out.String(), tc.say) {
				t.Errorf("printed %q, want %q in it", out.String(), tc.say)
			}
		})
	}
}

// TestFuzzTargets: every target is found, and nothing in testdata.
func TestFuzzTargets(t *testing.T) {
	root := t.TempDir()
	write(t, root, map[string]string{
		"a/a_test.go":          "func FuzzOne(f *testing.F) {}\nfunc FuzzTwo(f *testing.F) {\n",
		"a/a.go":               "func FuzzNot(f *testing.F) {}\n",
		"b/c/c_test.go":        "func FuzzThree(fz *testing.F) {}\nfunc TestFuzz(t *testing.T) {}\n",
		"a/testdata/x_test.go": "func FuzzData(f *testing.F) {}\n",
		".b/x_test.go":         "func FuzzHidden(f *testing.F) {}\n",
	})
	got, err := (&repo{root: root, out: io.Discard}).tests(t.Context(), fuzzTarget)
	want := [][2]string{{"./a", "func FuzzOne"}, {"./a", "func FuzzTwo"}, {"./b/c", "func FuzzThree"}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("found %q, %v; want %q", got, err, want)
	}
}

// TestLongPackages: every package whose tests take more cases at length is found, in the folder of
// a public package, too. Each package with properties is one, so that their seed is fixed elsewhere.
func TestLongPackages(t *testing.T) {
	r := &repo{root: "../..", out: io.Discard}
	found, err := r.tests(t.Context(), atLength)
	drawn, err2 := r.tests(t.Context(), properties)
	if err2 != nil || len(drawn) == 0 {
		t.Errorf("no properties: %v", err2)
	}
	for _, p := range drawn {
		if !slices.Contains(found, [2]string{p[0], atLength}) {
			t.Errorf("the properties of %s have no fixed seed: import internal/testing/atlength", p[0])
		}
	}
	for _, dir := range []string{"./config", "./internal/controller", "./market"} {
		if !slices.Contains(found, [2]string{dir, atLength}) {
			t.Errorf("%s is not among the packages that run at length: %q, %v", dir, found, err)
		}
	}
}

// TestOrphansAreFound: a process that outlives its parent is a failure with its number and command, until
// it ends.
func TestOrphansAreFound(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip(optional + "only Linux tells which processes outlive their parent")
	}
	must.Succeed(t, adoptOrphans())
	defer func(d time.Duration) { orphansEnd = d }(orphansEnd)
	orphansEnd = 0
	out, err := exec.Command("sh", "-c", "sleep 60 >/dev/null 2>&1 & echo $!").Output()
	must.Succeed(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(out)))
	must.Succeed(t, err)
	process, err := os.FindProcess(pid)
	must.Succeed(t, err)
	var printed strings.Builder
	r := &repo{out: &printed, results: newResults(&printed, true)}
	r.leavesNoProcess("unit")
	if want := fmt.Sprintf("%d sleep 60", pid); r.results.failed != 1 || !strings.Contains(printed.String(), want) {
		t.Errorf("%d failures, printed %q; want one with %q", r.results.failed, printed.String(), want)
	}
	must.Succeed(t, process.Kill())
	orphansEnd = 10 * time.Second
	r.leavesNoProcess("unit")
	if r.results.failed != 1 {
		t.Errorf("a process that has ended is a failure: %s", printed.String())
	}
}

// TestBrowserOnDemand: what every change waits for installs no browser and no npm; the suites that need them do.
func TestBrowserOnDemand(t *testing.T) {
	installers := map[string]bool{"ci": false, "test": false, "test-all": false, "page-packages": true}
	for target, installs := range installers {
		cmd := exec.CommandContext(t.Context(), "make", "-n", target)
		cmd.Dir = "../.."
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("make -n %s: %v\n%s", target, err, out)
		}
		got := strings.Contains(string(out), "chromium") || strings.Contains(string(out), "npm=npm")
		if got != installs {
			t.Errorf("make %s installs chromium or npm: %v, want %v:\n%s", target, got, installs, out)
		}
	}
}
