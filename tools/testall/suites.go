package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// repo is the repository and the state of one run.
type repo struct {
	root     string
	fuzzRuns uint // of each target
	out      io.Writer
	results  *results
	cluster  localCluster
	// flakyBefore are the tests that were flaky in the last runs.
	flakyBefore []string
	// alone waits until no test runs beside this one; nil: none does.
	alone func() error
}

// suite is a part of the tests. It counts its own failures; an error is one more.
type suite struct {
	name, title string
	run         func(context.Context) error
}

// suites are in the order of their run: the fast ones first, and those that share the local cluster
// together.
func (r *repo) suites() []suite {
	fuzz := fmt.Sprintf("fuzz, %d runs of each target", r.fuzzRuns)
	return []suite{
		{"check", "make check", r.check},
		{"unit", "unit, property and API server tests; concurrent code with the race detector", r.unit},
		{"fuzz", fuzz, r.fuzz},
		{"long", "properties at length", r.long},
		{"race", "the race detector for packages without goroutines, too", r.racePure},
		{"page", "the page of the dashboard in a browser", r.pageTests},
		{"path", "end to end: the path on a real node", r.e2e("TestPath")},
		{"virtual", "end to end: the path on cgroup v2, in a virtual node", r.e2e("TestVirtualNode")},
		{"platform", "end to end: HPA, VPA, quotas, budgets and drains", r.e2e("TestPlatform")},
		{
			"monitoring", "end to end: Prometheus and Alertmanager",
			r.e2e("TestMonitoring", "prometheus", "alertmanager"),
		},
		{"faults", "end to end: kubelet, containerd, API server and etcd fail", r.e2e("TestFaults")},
		{"starts", "end to end: containers that start while they are raised", r.e2e("TestStarts")},
		{"chaos", "end to end: ten minutes of drawn faults", r.e2e("TestChaos")},
		{"nodes", "end to end: two nodes", r.e2e("TestTwoNodes")},
		{"cluster", "the local cluster: crashes, nodes, add-ons, removal", r.clusterTests},
		{"skew", "API server tests on other versions of Kubernetes", r.skew},
		{"rules", "recording rules and alerts: promtool, and faults put into rules", r.rules},
		{"dashboards", "dashboards against the types of Grafana", r.dashboards},
	}
}

// runSuite runs a suite and counts it. One in which nothing was counted has failed: it tested nothing.
func (r *repo) runSuite(ctx context.Context, s suite) {
	start, before, failed := time.Now(), r.results.total(), r.results.failed
	err := s.run(ctx)
	if err == nil && r.results.total() == before {
		err = fmt.Errorf("suite %s found nothing to run below %s; give the repository with -root", s.name, r.root)
	}
	if err != nil {
		r.results.run(s.name, err)
	}
	if r.results.failed > failed {
		fmt.Fprintf(r.out, "   this machine as %s ended:\n%s\n", s.name, busiest(ctx))
	}
	if !r.cluster.started { // its processes outlive a suite
		r.leavesNoProcess(s.name)
	}
	fmt.Fprintf(r.out, "   %s took %s\n", s.name, time.Since(start).Round(time.Second))
}

// orphansEnd is how long a process may outlive its suite: one that was killed takes a moment to
// end, and longer on a busy machine.
var orphansEnd = time.Minute

// leavesNoProcess counts a failure for processes that outlive a suite. They take CPU from the suites after
// it, whose failures then look like faults of their own.
func (r *repo) leavesNoProcess(name string) {
	for deadline := time.Now().Add(orphansEnd); ; time.Sleep(100 * time.Millisecond) {
		left, err := orphans()
		if err == nil && len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			if err == nil {
				err = fmt.Errorf("%s left processes behind; end them by their number:\n  %s", name,
					strings.Join(left, "\n  "))
			}
			r.results.run(name+", processes", err)
			return
		}
	}
}

func (r *repo) check(ctx context.Context) error {
	r.results.run("check", r.make(ctx, "check"))
	return nil
}

// make runs targets of the Makefile, in this order.
func (r *repo) make(ctx context.Context, targets ...string) error {
	return r.run(exec.CommandContext(ctx, "make", append([]string{"--no-print-directory"}, targets...)...))
}

// Folders of the modules of the local cluster and of the tests of the Helm chart.
const (
	clusterModule = "test/cluster"
	chartModule   = "test/chart"
)

// hung is how long a package may test. It ends a test that waits for ever; no other one comes near
// it, on a busy machine either.
const hung = "-timeout=30m"

// anyClone keeps the folder of a clone out of what is compiled: every clone uses the same cache.
const anyClone = "-trimpath"

// unit runs every package that needs no node, in all modules. Packages with an API server run one
// at a time, so that no two servers take the CPU from one another; they wait for much, so the others
// run beside them. Without the programs of the API server its tests are skipped.
func (r *repo) unit(ctx context.Context) error {
	assets, err := r.assets(ctx)
	if err != nil {
		fmt.Fprintf(r.out, "no API server, its tests are skipped: %v\n", err)
	}
	p, err := r.packages(ctx)
	if err != nil {
		return err
	}
	race, env := r.race(), []string{"KUBEBUILDER_ASSETS=" + assets}
	flags := func(atOnce int, more ...string) []string { // make check vets
		return append([]string{"-vet=off", hung, fmt.Sprint("-p=", max(1, atOnce))}, more...)
	}
	r.compile(ctx, race, slices.Concat(p.server, p.concurrent))
	r.compile(ctx, nil, p.pure)
	return r.beside(func(r *repo) error {
		others := runtime.GOMAXPROCS(0) - 1
		return errors.Join(
			r.goTest(ctx, "", env, flags(others), p.pure...), // go test keeps their results
			r.goTest(ctx, "", env, flags(others, append(race, "-count=1")...), p.concurrent...),
			r.goTest(ctx, clusterModule, env, flags(others, "-count=1"), "./internal/...", "./cmd/..."))
	}, func(r *repo) error {
		return errors.Join(
			r.goTestRepeating(ctx, "", env, flags(1, append(race, "-count=1")...), p.server...),
			r.goTestRepeating(ctx, chartModule, env, flags(1, "-count=1"), "./..."))
	})
}

// beside runs tests, and beside them others, which may run once more: when nothing runs beside them.
func (r *repo) beside(tests, repeating func(*repo) error) error {
	one, two := *r, *r
	one.results = r.results.apart()
	ended := make(chan error, 1)
	go func() { ended <- tests(&one) }()
	two.alone = sync.OnceValue(func() error { return <-ended })
	err := errors.Join(repeating(&two), two.alone())
	r.results.take(one.results)
	return err
}

// racePure runs the packages under the race detector that the suite unit runs without it.
func (r *repo) racePure(ctx context.Context) error {
	p, err := r.packages(ctx)
	if err != nil {
		return err
	}
	race := r.race()
	if len(race) == 0 {
		return nil // a skip
	}
	return r.goTest(ctx, "", nil, append(race, "-vet=off", hung), p.pure...)
}

// compile compiles the tests of packages before any of them runs. What does not compile fails in
// its test.
func (r *repo) compile(ctx context.Context, flags, packages []string) {
	args := slices.Concat([]string{"list", "-e", "-export", "-test", "-f=", anyClone}, flags, packages)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Stdout = r.root, io.Discard
	_ = cmd.Run()
}

// race is the flag for the race detector. Where it cannot be built, that is a skip: the tests run and
// detect less.
func (r *repo) race() []string {
	var why string
	switch _, err := exec.LookPath("gcc"); {
	case runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64":
		why = "no race detector for " + runtime.GOARCH
	case os.Getenv("CGO_ENABLED") == "0":
		why = "CGO_ENABLED=0 in the environment, and the race detector needs cgo"
	case err != nil:
		why = "no gcc, which the race detector needs (Debian packages gcc libc6-dev)"
	default:
		return []string{"-race"}
	}
	fmt.Fprintf(r.out, "   without the race detector: %s\n", why)
	r.results.skip("unit", "race detector", why)
	return nil
}

// tests are the lines of the test files of all modules that match a pattern, each as a folder and what
// matches.
func (r *repo) tests(ctx context.Context, pattern string) (found [][2]string, err error) {
	args := []string{"-rEo", "--include=*_test.go", "--exclude-dir=testdata", "--exclude-dir=.?*", "--", pattern, "."}
	lines, err := r.output(exec.CommandContext(ctx, "grep", args...))
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(lines) {
		path, text, _ := strings.Cut(strings.TrimSpace(line), ":")
		found = append(found, [2]string{"./" + filepath.Dir(path), text})
	}
	slices.SortFunc(found, func(a, b [2]string) int { return slices.Compare(a[:], b[:]) })
	return slices.Compact(found), nil
}

// Imports of tests that take more cases at length: with MBCAS_LONG=1, and with -rapid.checks, which other tests refuse.
const (
	atLength   = `internal/testing/atlength"`
	properties = `"pgregory.net/rapid"`
)

// long runs the packages with such tests, and pure properties with ten times the cases.
func (r *repo) long(ctx context.Context) error {
	found, err := r.tests(ctx, atLength+"|"+properties+`|internal/testing/apiserver"`)
	if err != nil {
		return err
	}
	with := map[string][]string{} // folders, by what they contain
	for _, f := range found {
		with[f[1]] = append(with[f[1]], f[0])
	}
	drawn := slices.DeleteFunc(with[properties], func(dir string) bool {
		return slices.Contains(with[`internal/testing/apiserver"`], dir)
	})
	assets, err := r.assets(ctx)
	if err != nil {
		return err
	}
	env, args := []string{"MBCAS_LONG=1", "KUBEBUILDER_ASSETS=" + assets}, []string{"-count=1", "-p=1", hung}
	others := slices.DeleteFunc(with[atLength], func(dir string) bool { return slices.Contains(drawn, dir) })
	if err := r.goTest(ctx, "", env, args, others...); err != nil {
		return err
	}
	return r.goTest(ctx, "", env, args, append(drawn, "-rapid.checks=1000")...)
}

// rules runs the tests of the rules with promtool, which the first time builds Prometheus.
func (r *repo) rules(ctx context.Context) error {
	dir, err := r.output(r.program(ctx, "tool", "prometheus"))
	if err != nil {
		return err
	}
	return r.goTest(ctx, "", []string{"MBCAS_PROMETHEUS=" + dir}, []string{"-count=1", hung}, "./monitoring")
}

// dashboards checks each dashboard against Grafana's own types. The packages are those of the lock file, and none
// runs a script of its own.
func (r *repo) dashboards(ctx context.Context) error {
	const name = "types of Grafana"
	if err := r.make(ctx, "npm-packages"); err != nil {
		return err
	}
	if _, err := exec.LookPath("npm"); err != nil {
		r.results.skip("dashboards", name, "no npm (Debian packages nodejs npm)")
		return nil
	}
	for _, args := range [][]string{{"ci", "--ignore-scripts", "--no-audit", "--no-fund"}, {"run", "--silent",
		"check"}} {
		cmd := exec.CommandContext(ctx, "npm", args...)
		cmd.Dir = filepath.Join(r.root, "test", "dashboards")
		if err := r.run(cmd); err != nil {
			r.results.run(name, err)
			return nil
		}
	}
	r.results.run(name, nil)
	return nil
}

// clusterTests run the program of the local cluster as its users do, each with a cluster of its own. Each
// test is printed as it ends.
func (r *repo) clusterTests(ctx context.Context) error {
	r.stopCluster(ctx)
	r.results.perTest = true
	defer func() { r.results.perTest = false }()
	return r.goTestRepeating(ctx, clusterModule, nil, []string{"-count=1", "-timeout=40m"}, "./integration/...")
}

// pageTests look at the page in a browser. What it needs is fetched first; where that fails, it is a skip.
func (r *repo) pageTests(ctx context.Context) error {
	if err := r.make(ctx, "page-packages", "page"); err != nil {
		r.results.skip("page", "make page", err.Error())
		return ctx.Err()
	}
	r.results.perTest = true
	defer func() { r.results.perTest = false }()
	return r.goTestRepeating(ctx, "test/page", nil, []string{"-count=1", hung}, "./...")
}

const fuzzTarget = `^func Fuzz\w+`

// fuzz runs each target that many times. A crash that it finds is kept in testdata. A number of runs, as
// a duration ends with "context deadline exceeded" now and then before Go 1.27 (go.dev/issue/75804).
func (r *repo) fuzz(ctx context.Context) error {
	targets, err := r.tests(ctx, fuzzTarget)
	if err != nil {
		return err
	}
	args := []string{"-run=^$", fmt.Sprintf("-fuzztime=%dx", r.fuzzRuns), "-fuzzminimizetime=1000x", "-timeout=10m"}
	for _, f := range targets {
		dir, name := f[0], strings.TrimPrefix(f[1], "func ")
		fmt.Fprintf(r.out, "      %s %s\n", dir, name)
		if err := r.goTest(ctx, dir, nil, args, "-fuzz=^"+name+"$", "."); err != nil {
			return err
		}
	}
	return nil
}

// skewed are the packages whose requests to the API server depend on its version. The test that is left
// out needs kube-scheduler, which the other versions are built without.
var (
	skewed      = []string{"./actuator/podresize", "./internal/controller"}
	skewedFlags = []string{"-count=1", "-p=1", hung, "-skip=^TestTheSchedulerDoesNotMind$"}
)

// skew runs them on each version with a go.mod in test/cluster/skew, and prints a line of results for
// each. The names of the tests end with the version.
func (r *repo) skew(ctx context.Context) error {
	pins, err := filepath.Glob(filepath.Join(r.root, clusterModule, "skew", "v*", "go.mod"))
	if err != nil {
		return err
	}
	defer func() { r.results.where = "" }()
	for _, path := range pins {
		version := strings.TrimPrefix(filepath.Base(filepath.Dir(path)), "v")
		assets, err := r.output(r.program(ctx, "assets", "--version="+version))
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			r.results.skip("skew", "Kubernetes "+version, err.Error())
			continue
		}
		server := exec.CommandContext(ctx, filepath.Join(assets, "kube-apiserver"), "--version")
		name, err := r.output(server) // Kubernetes v1.35.4
		if err != nil {
			return err
		}
		start, before := time.Now(), *r.results
		r.results.where = " on " + name
		env := []string{"KUBEBUILDER_ASSETS=" + assets, "MBCAS_SKEW=1"} // the server in memory has one version
		if err := r.goTest(ctx, "", env, skewedFlags, skewed...); err != nil {
			return err
		}
		c := r.results
		fmt.Fprintf(r.out, "   %s: %d passed, %d failed, %d skipped in %s\n", name, c.passed-before.passed,
			c.failed-before.failed, c.skipped-before.skipped, time.Since(start).Round(time.Second))
	}
	return nil
}
