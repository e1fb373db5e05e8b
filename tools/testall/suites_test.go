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
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestInvalidUsage: a command line that names nothing to run is an error that lists the choices.
func TestInvalidUsage(t *testing.T) {
	tests := map[string]struct {
		args  []string
		print string
	}{
		"unknown suite": {
			[]string{"-only", "typo"}, `no suite "typo"; there are check unit fuzz long simulations page path virtual`,
		},
		"unknown tier":    {[]string{"-tier", "some"}, `no tier "some"; there are test, all and ci`},
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

// TestTiers: each tier, with and without a repository in which something changed.
func TestTiers(t *testing.T) {
	main := []string{"init -q -b main", "add .", "commit -q -m first"}
	branch := append(slices.Clone(main), "update-ref refs/remotes/origin/main HEAD")
	const unknown = "check unit fuzz? simulations? path virtual? platform?"
	tests := map[string]struct {
		tier, only string
		git        []string // commands
		change     string   // file
		want       string   // a suite with a question mark is optional
	}{
		"test": {tier: "test", want: "unit path"},
		"all": {
			tier: "all",
			want: "unit fuzz long simulations page path virtual platform defaults podlevel manifests monitoring " +
				"faults nodes install cluster skew rules dashboards",
		},
		"one":                   {tier: "test", only: "fuzz", want: "fuzz"},
		"ci without git":        {tier: "ci", want: unknown},
		"ci without history":    {tier: "ci", git: main, change: "market/a.go", want: unknown},
		"ci on the main branch": {tier: "ci", git: branch, want: unknown},
		"ci, market": {
			tier: "ci", git: branch, change: "market/a.go", want: "check unit fuzz? long? simulations? path nodes?",
		},
		"ci, agent": {
			tier: "ci", git: branch, change: "internal/agent/a.go",
			want: "check unit fuzz? long? simulations? path virtual? faults?",
		},
		"ci, documentation": {tier: "ci", git: branch, change: "docs/a.md", want: "check unit path"},
		"ci since a tag": {
			tier: "ci", git: append(slices.Clone(main), "tag v0.1.0"), change: "test/cluster/skew/a",
			want: "check unit path virtual? faults? nodes? cluster? skew?",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			git := func(args ...string) {
				author := []string{"-C", root, "-c", "user.name=a", "-c", "user.email=a@example.com"}
				cmd := exec.Command("git", append(author, args...)...)
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("git %v: %v\n%s", args, err, out)
				}
			}
			write(t, root, map[string]string{"README.md": ""})
			for _, args := range tc.git {
				git(strings.Fields(args)...)
			}
			if tc.change != "" {
				write(t, root, map[string]string{tc.change: ""})
				git("add", ".")
				git("commit", "-q", "-m", "second")
			}
			r := &repo{root: root, out: io.Discard}
			chosen, err := r.choose(t.Context(), options{tier: tc.tier, only: tc.only})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, s := range chosen {
				got = append(got, s.name+map[bool]string{true: "?"}[s.optional])
			}
			if text := strings.Join(got, " "); text != tc.want {
				t.Errorf("chose %q, want %q", text, tc.want)
			}
		})
	}
}

// TestDeadline: a suite that is optional is left out if it would end too late, and that is printed; any
// other one runs.
func TestDeadline(t *testing.T) {
	var out strings.Builder
	r := &repo{out: &out, results: newResults(&out, true)}
	pass := func(name string) func(context.Context) error {
		return func(context.Context) error { r.results.run(name, nil); return nil }
	}
	r.runAll(t.Context(), newProgress(&out), []suite{
		{name: "must", title: "must", run: pass("must"), takes: time.Hour},
		{name: "long", title: "long", run: pass("long"), takes: time.Hour, optional: true},
		{name: "short", title: "short", run: pass("short"), takes: time.Second, optional: true},
	}, time.Now().Add(30*time.Minute))
	r.results.summary()
	for _, want := range []string{
		"ok    must", "not run: long: it takes about 1h0m0s", "ok    short", "\n2 passed, 0 failed, 0 skipped\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, out.String())
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
				"status) [ -e healthy ] || echo 'etcd  -  does not run'; [ -e healthy ] ;;\n" +
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

// TestNotStarted: the words of status that startCluster looks for are those that mbcas-cluster prints.
func TestNotStarted(t *testing.T) {
	const words = "does not run"
	source, err := os.ReadFile("../../test/cluster/internal/cluster/status.go")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(source), `return "-", "`+words+`"`) {
		t.Errorf("mbcas-cluster status no longer says %q of a component that has no process", words)
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
	go func() { ended <- r.goTest(t.Context(), "", nil) }()
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
			if flags := r.race("unit"); len(flags) > 0 {
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

// TestOrphansAreFound: a process that outlives its parent is a failure with its number and command, until
// it ends.
func TestOrphansAreFound(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip(optional + "only Linux tells which processes outlive their parent")
	}
	if err := adoptOrphans(); err != nil {
		t.Fatal(err)
	}
	defer func(d time.Duration) { orphansEnd = d }(orphansEnd)
	orphansEnd = 0
	out, err := exec.Command("sh", "-c", "sleep 60 >/dev/null 2>&1 & echo $!").Output()
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil {
		t.Fatal(err)
	}
	process, err := os.FindProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	var printed strings.Builder
	r := &repo{out: &printed, results: newResults(&printed, true)}
	r.leavesNoProcess("unit")
	if want := fmt.Sprintf("%d sleep 60", pid); r.results.failed != 1 || !strings.Contains(printed.String(), want) {
		t.Errorf("%d failures, printed %q; want one with %q", r.results.failed, printed.String(), want)
	}
	if err := process.Kill(); err != nil {
		t.Fatal(err)
	}
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

// TestSlowestFirst: packages that take longest come first, in their order; each of them is one that exists.
func TestSlowestFirst(t *testing.T) {
	r := &repo{root: "../..", out: io.Discard, results: newResults(io.Discard, false)}
	list, err := r.packages(t.Context())
	if err != nil || len(list) <= len(slowest) {
		t.Fatalf("%d packages: %v", len(list), err)
	}
	for i, want := range slowest {
		if !strings.HasSuffix(list[i].ImportPath, "/"+want) {
			t.Errorf("package %d is %s, want %s", i, list[i].ImportPath, want)
		}
	}
}
