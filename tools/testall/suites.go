package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
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
		{name: "unit", run: r.unit, title: "unit, property and API server tests; concurrent code is race-checked"},
		{name: "fuzz", title: fuzz, run: r.fuzz, covers: shipped, takes: 3 * time.Minute},
		{name: "long", title: "properties at length", run: r.long, covers: shipped, takes: 4 * time.Minute},
		{name: "simulations", title: "simulations under the race detector", run: r.simulations, covers: shipped,
			takes: 4 * time.Minute},
		{name: "page", title: "the page of the dashboard in a browser", run: r.pageTests,
			covers: inBrowser, takes: 2 * time.Minute},
		{name: "path", title: "end to end: the path on a real node", run: r.e2e("TestPath")},
		{name: "virtual", title: "end to end: the path on cgroup v2, in a virtual node",
			run:    r.e2e("TestVirtualNode"),
			covers: node, takes: 8 * time.Minute},
		{name: "platform", title: "end to end: HPA, VPA, quotas, budgets and drains", run: r.e2e("TestPlatform"),
			covers: append(perPod, "test/e2e/platform"), takes: 6 * time.Minute},
		{name: "defaults", title: "end to end: default limits of pods without one", run: r.e2e("TestDefaultLimits"),
			covers: strings.Fields("config/ actuator/ internal/round/ internal/lifecycle/ test/e2e/default"),
			takes:  4 * time.Minute},
		{name: "podlevel", title: "end to end: pods with a CPU limit of their own", run: r.e2e("TestPodLevelLimits"),
			covers: append(perPod, "test/e2e/podlevel"), takes: 2 * time.Minute},
		{name: "manifests", title: "the manifests of the documentation in the types of KEDA and prometheus-adapter",
			run: func(ctx context.Context) error {
				return r.goTest(ctx, "test/autoscalers", nil, "-count=1", "-timeout=10m", "./...")
			},
			covers: strings.Fields(`docs/autoscalers.md docs/demand-signals.md config/samples/demand-signal.yaml
				test/autoscalers/`), takes: time.Minute},
		{name: "monitoring", title: "end to end: Prometheus, Alertmanager and prometheus-adapter",
			run: r.e2e("TestMonitoring", "prometheus", "alertmanager", "prometheus-adapter"),
			covers: strings.Fields(`monitoring/ internal/agent/nodemetrics/ internal/fleet/ internal/controller/metrics/
				internal/demandsignal/ docs/autoscalers.md docs/demand-signals.md test/e2e/monitoring
				test/internal/hang/ test/cluster/addons/`), takes: 30 * time.Minute},
		{name: "faults", title: "end to end: kubelet, containerd, API server and etcd fail", run: r.e2e("TestFaults"),
			covers: slices.Concat(node, perPod), takes: 6 * time.Minute},
		{name: "nodes", title: "end to end: two nodes", run: r.e2e("TestTwoNodes"),
			covers: nodes, takes: 8 * time.Minute},
		{name: "install", title: "end to end: Helm, the plugin and plain YAML, from the installation to the last trace",
			run: r.e2e("TestInstall"), covers: strings.Fields(`charts/ config/ internal/cli/install/ internal/restore/
				cmd/mbcas-controller/ tools/dist/ test/e2e/install`), takes: 11 * time.Minute},
		{name: "cluster", title: "the local cluster: crashes, nodes, add-ons, removal", run: r.clusterTests,
			covers: []string{"test/cluster/"}, takes: 6 * time.Minute},
		{name: "skew", title: "API server tests on other versions of Kubernetes", run: r.skew,
			covers: append(perPod, "test/cluster/skew/"), takes: 10 * time.Minute},
		{name: "rules", title: "recording rules and alerts: promtool, faults put into rules, 5,000 targets",
			run: r.rules,
			covers: strings.Fields(`monitoring/ test/cluster/addons/prometheus/ internal/agent/nodemetrics/
				internal/controller/metrics/`), takes: 6 * time.Minute},
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
	concurrent, sequential, err := splitConcurrent(packages)
	if err != nil {
		return err
	}
	assets, err := r.assets(ctx)
	if err != nil {
		fmt.Fprintf(r.out, "no API server, its tests are skipped: %v\n", err)
	}
	env := []string{"KUBEBUILDER_ASSETS=" + assets}
	flags := []string{"-count=1", "-timeout=25m"} // internal/controller takes ten alone, and more on a busy machine
	fmt.Fprintf(r.out, "   %d packages with goroutines or locks, and %d without\n", len(concurrent), len(sequential))
	pattern, dirs := simulated()
	detected := slices.Concat(flags, r.race("unit"), []string{"-skip", pattern}, concurrent)
	if err := r.goTest(ctx, "", env, detected...); err != nil {
		return err
	}
	if err := r.goTest(ctx, "", env, slices.Concat(flags, []string{"-run", pattern}, dirs)...); err != nil {
		return err
	}
	if err := r.goTest(ctx, "", env, slices.Concat(flags, sequential)...); err != nil {
		return err
	}
	if err := r.goTest(ctx, clusterModule, nil, "-count=1", "-timeout=10m", "./internal/...", "./cmd/..."); err != nil {
		return err
	}
	return r.goTest(ctx, chartModule, env, "-count=1", "-timeout=15m", "./...")
}

// slowest are the packages that take longest: first concurrent ones, with 300 s of CPU and 110, 50, 30 and less, and
// then those without the race detector, with 30 s and less. They start first, in this order, so that none of them runs
// alone at the end.
var slowest = strings.Fields(`internal/controller internal/cli/install config tools/dist internal/demandsignal
	internal/cli internal/agent actuator/podresize internal/round internal/lab/mbcas internal/replay internal/benefit`)

// listed is a package of `go list`.
type listed struct {
	ImportPath, Dir                              string
	GoFiles, CgoFiles, TestGoFiles, XTestGoFiles []string
}

// packages are those of the main module without the end-to-end tests.
func (r *repo) packages(ctx context.Context) ([]listed, error) {
	out, err := r.output(exec.CommandContext(ctx, "go", "list",
		"-json=ImportPath,Dir,GoFiles,CgoFiles,TestGoFiles,XTestGoFiles", "./..."))
	if err != nil {
		return nil, err
	}
	var all []listed
	for in := json.NewDecoder(strings.NewReader(out)); in.More(); {
		var p listed
		if err := in.Decode(&p); err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		if !strings.Contains(p.ImportPath+"/", "/test/e2e/") {
			all = append(all, p)
		}
	}
	rank := func(p listed) int {
		i := slices.IndexFunc(slowest, func(suffix string) bool { return strings.HasSuffix(p.ImportPath, "/"+suffix) })
		if i < 0 {
			return len(slowest)
		}
		return i
	}
	slices.SortStableFunc(all, func(a, b listed) int { return rank(a) - rank(b) })
	return all, nil
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

// pageTests check the types of the page's scripts, and look at the page in a browser. What it needs is
// fetched first; where that fails, it is a skip.
func (r *repo) pageTests(ctx context.Context) error {
	if err := r.make(ctx, "page-packages", "page"); err != nil {
		r.results.skip("page", "make page", err.Error())
		return ctx.Err()
	}
	types := exec.CommandContext(ctx, "npm", "run", "--silent", "check")
	types.Dir = filepath.Join(r.root, "internal", "page")
	r.results.run("types of the page's scripts", r.run(types))
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
