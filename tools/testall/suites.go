package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// repo is the repository and the state of one run.
type repo struct {
	root     string
	fuzzRuns uint // of each target
	out      io.Writer
	results  *results
	cluster  localCluster
}

// suite is a part of the tests. It counts its own failures; an error is one more.
type suite struct {
	name, title string
	run         func(context.Context) error
	// covers are the paths whose change can affect the suite, by prefix, and takes is how long it runs
	// on 2 cores with everything built. Both are for the choice of the tier ci.
	covers []string
	takes  time.Duration
	// optional suites are left out when there is no time for them.
	optional bool
}

// suites are in the order of their run: the fast ones first, and those that share the local cluster
// together.
func (r *repo) suites() []suite {
	shipped := strings.Fields("cmd/ cpu/ market/ actuator/ api/ internal/ go.mod")
	perPod := strings.Fields(`actuator/ api/ config/ go.mod internal/controller/ internal/lifecycle/ internal/kube/
		internal/constraints/ internal/quota/ internal/autoscalers/ internal/demandsignal/ internal/restore/
		internal/allocation/`)
	node := strings.Fields(`internal/kernel/ internal/sense/ internal/agent/ cmd/mbcas-agent/ config/
		test/e2e/path test/e2e/virtual test/cluster/`)
	nodes := strings.Fields(`internal/coordinator/ internal/round/ market/ internal/controller/coordinat
		test/e2e/two_nodes test/cluster/`)
	inBrowser := strings.Fields(`internal/page/ internal/replay/ internal/story/ internal/whatif/ internal/record/
		internal/round/ test/page/`)
	fuzz := fmt.Sprintf("fuzz, %d runs of each target", r.fuzzRuns)
	return []suite{
		{name: "check", title: "make check", run: r.check},
		{name: "unit", title: "unit, property and API server tests, with the race detector", run: r.unit},
		{name: "fuzz", title: fuzz, run: r.fuzz, covers: shipped, takes: 3 * time.Minute},
		{name: "long", title: "properties at length", run: r.long, covers: shipped, takes: 4 * time.Minute},
		{name: "page", title: "the page of the dashboard in a browser", run: r.pageTests,
			covers: inBrowser, takes: 2 * time.Minute},
		{name: "path", title: "end to end: the path on a real node", run: r.e2e("TestPath")},
		{name: "virtual", title: "end to end: the path on cgroup v2, in a virtual node",
			run:    r.e2e("TestVirtualNode"),
			covers: node, takes: 8 * time.Minute},
		{name: "platform", title: "end to end: HPA, VPA, quotas, budgets and drains", run: r.e2e("TestPlatform"),
			covers: append(perPod, "test/e2e/platform"), takes: 6 * time.Minute},
		{name: "monitoring", title: "end to end: Prometheus and Alertmanager", run: r.e2e("TestMonitoring",
			"prometheus", "alertmanager"),
			covers: strings.Fields(`monitoring/ internal/agent/nodemetrics/ internal/fleet/ internal/controller/metrics/
				test/e2e/monitoring test/cluster/addons/`), takes: 9 * time.Minute},
		{name: "faults", title: "end to end: kubelet, containerd, API server and etcd fail", run: r.e2e("TestFaults"),
			covers: slices.Concat(node, perPod), takes: 6 * time.Minute},
		{name: "nodes", title: "end to end: two nodes", run: r.e2e("TestTwoNodes"),
			covers: nodes, takes: 8 * time.Minute},
		{name: "cluster", title: "the local cluster: crashes, nodes, add-ons, removal", run: r.clusterTests,
			covers: []string{"test/cluster/"}, takes: 6 * time.Minute},
		{name: "skew", title: "API server tests on other versions of Kubernetes", run: r.skew,
			covers: append(perPod, "test/cluster/skew/"), takes: 10 * time.Minute},
		{name: "rules", title: "recording rules and alerts: promtool, and faults put into rules", run: r.rules,
			covers: []string{"monitoring/", "test/cluster/addons/prometheus/"}, takes: 3 * time.Minute},
		{name: "dashboards", title: "dashboards against the types of Grafana", run: r.dashboards,
			covers: []string{"monitoring/dashboards/", "tools/dashboards/", "test/dashboards/"}, takes: time.Minute},
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

// orphansEnd is how long a process may outlive its suite: one that was killed takes a moment to end.
var orphansEnd = 10 * time.Second

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

// unit runs every package that needs no node, in all modules. Without the programs of the API server
// its tests are skipped.
func (r *repo) unit(ctx context.Context) error {
	packages, err := r.packages(ctx)
	if err != nil {
		return err
	}
	assets, err := r.assets(ctx)
	if err != nil {
		fmt.Fprintf(r.out, "no API server, its tests are skipped: %v\n", err)
	}
	args := slices.Concat([]string{"-count=1", "-timeout=15m"}, r.race(), packages)
	env := []string{"KUBEBUILDER_ASSETS=" + assets}
	if err := r.goTest(ctx, "", env, args...); err != nil {
		return err
	}
	if err := r.goTest(ctx, clusterModule, nil, "-count=1", "-timeout=10m", "./internal/...", "./cmd/..."); err != nil {
		return err
	}
	return r.goTest(ctx, chartModule, env, "-count=1", "-timeout=15m", "./...")
}

// slowest is the package that takes the longest. It starts first, so that it does not run alone at the
// end.
const slowest = "/internal/controller"

// packages are those of the main module without the end-to-end tests.
func (r *repo) packages(ctx context.Context) ([]string, error) {
	list, err := r.output(exec.CommandContext(ctx, "go", "list", "./..."))
	if err != nil {
		return nil, err
	}
	all := slices.DeleteFunc(strings.Fields(list), func(p string) bool {
		return strings.Contains(p+"/",
			"/test/e2e/")
	})
	if i := slices.IndexFunc(all, func(p string) bool { return strings.HasSuffix(p, slowest) }); i > 0 {
		all[0], all[i] = all[i], all[0]
	}
	return all, nil
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
	r.results.skip("unit", "unit, race detector", why)
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

// long runs the packages with tests that take more cases with MBCAS_LONG=1, and pure properties with ten
// times the cases.
func (r *repo) long(ctx context.Context) error {
	found, err := r.tests(ctx, `"MBCAS_LONG"|"pgregory.net/rapid"|internal/testing/apiserver"`)
	if err != nil {
		return err
	}
	with := map[string][]string{} // folders, by what they contain
	for _, f := range found {
		with[f[1]] = append(with[f[1]], f[0])
	}
	properties := slices.DeleteFunc(with[`"pgregory.net/rapid"`], func(dir string) bool {
		return slices.Contains(with[`internal/testing/apiserver"`], dir)
	})
	assets, err := r.assets(ctx)
	if err != nil {
		return err
	}
	env, args := []string{"MBCAS_LONG=1", "KUBEBUILDER_ASSETS=" + assets}, []string{"-count=1", "-timeout=30m"}
	if err := r.goTest(ctx, "", env, slices.Concat(args, with[`"MBCAS_LONG"`])...); err != nil {
		return err
	}
	return r.goTest(ctx, "", env, slices.Concat(args, properties, []string{"-rapid.checks=1000"})...)
}

// rules runs the tests of the rules with promtool, which the first time builds Prometheus.
func (r *repo) rules(ctx context.Context) error {
	dir, err := r.output(r.program(ctx, "tool", "prometheus"))
	if err != nil {
		return err
	}
	return r.goTest(ctx, "", []string{"MBCAS_PROMETHEUS=" + dir}, "-count=1", "-timeout=15m", "./monitoring")
}

// dashboards checks each dashboard against Grafana's own types. The packages are those of the lock file, and none
// runs a script of its own.
func (r *repo) dashboards(ctx context.Context) error {
	const name = "dashboards against the types of Grafana"
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
	return r.goTest(ctx, clusterModule, nil, "-count=1", "-timeout=40m", "./integration/...")
}

// pageTests look at the page in a browser. What it needs is fetched first; where that fails, it is a skip.
func (r *repo) pageTests(ctx context.Context) error {
	if err := r.make(ctx, "page-packages", "page"); err != nil {
		r.results.skip("page", "make page", err.Error())
		return ctx.Err()
	}
	r.results.perTest = true
	defer func() { r.results.perTest = false }()
	return r.goTest(ctx, "test/page", nil, "-count=1", "-timeout=10m", "./...")
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
		if err := r.goTest(ctx, dir, nil, append(slices.Clone(args), "-fuzz=^"+name+"$", ".")...); err != nil {
			return err
		}
	}
	return nil
}

// skewed are the packages whose requests to the API server depend on its version. The test that is left
// out needs kube-scheduler, which the other versions are built without.
var skewed = []string{"-skip=^TestTheSchedulerDoesNotMind$", "./actuator/podresize", "./internal/controller"}

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
		env := []string{"KUBEBUILDER_ASSETS=" + assets}
		if err := r.goTest(ctx, "", env, append([]string{"-count=1", "-timeout=20m"}, skewed...)...); err != nil {
			return err
		}
		c := r.results
		fmt.Fprintf(r.out, "   %s: %d passed, %d failed, %d skipped in %s\n", name, c.passed-before.passed,
			c.failed-before.failed, c.skipped-before.skipped, time.Since(start).Round(time.Second))
	}
	return nil
}
