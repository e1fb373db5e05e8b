package main

import (
	"bytes"
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
	tier     string
	fuzzRuns uint // of each target
	out      io.Writer
	results  *results
	cluster  localCluster
}

// suite is a part of the tests. It counts its own failures; an error is one more.
type suite struct {
	name, title string
	run         func(context.Context) error
	// covers are the paths whose change can affect the suite, by prefix, and takes how long it runs on 2 cores with everything built.
	// Both are for the choice of the tier ci.
	covers []string
	takes  time.Duration
	// optional suites are left out when there is no time for them.
	optional bool
}

// pathTest is the end-to-end path of the tier test.
const pathTest = "^TestPath$"

// suites are in the order of their run: the fast ones first, and those that share the local cluster together.
func (r *repo) suites() []suite {
	shipped := []string{"cmd/", "cpu/", "market/", "actuator/", "api/", "internal/", "go.mod"}
	perPod := []string{"actuator/", "api/", "config/", "internal/controller/", "internal/lifecycle/", "internal/kube/", "internal/constraints/",
		"internal/quota/", "internal/autoscalers/", "internal/demandsignal/", "internal/restore/", "internal/allocation/", "go.mod"}
	node := []string{"internal/kernel/", "internal/sense/", "internal/agent/", "cmd/mbcas-agent/", "config/", "test/e2e/path", "test/e2e/virtual", "test/cluster/"}
	return []suite{
		{name: "check", title: "make check", run: r.check},
		{name: "unit", title: "unit, property and API server tests, with the race detector", run: r.unit},
		{name: "fuzz", title: fmt.Sprintf("fuzz, %d runs of each target", r.fuzzRuns), run: r.fuzz, covers: shipped, takes: 3 * time.Minute},
		{name: "long", title: "properties at length", run: r.long, covers: shipped, takes: 4 * time.Minute},
		{name: "path", title: "end to end: the path on a real node", run: r.e2e("-run=" + pathTest)},
		{name: "virtual", title: "end to end: the path on cgroup v2, in a virtual node", run: r.e2e("-run=^TestVirtualNode$"), covers: node, takes: 8 * time.Minute},
		{name: "platform", title: "end to end: HPA, VPA, quotas, budgets and drains", run: r.e2e("-run=^TestPlatform$"),
			covers: append(perPod, "test/e2e/platform"), takes: 6 * time.Minute},
		{name: "nodes", title: "end to end: two nodes", run: r.e2e("-run=^TestTwoNodes$"),
			covers: []string{"internal/coordinator/", "internal/round/", "market/", "internal/controller/coordinat", "test/e2e/two_nodes", "test/cluster/"}, takes: 8 * time.Minute},
		{name: "cluster", title: "the local cluster: crashes, nodes, add-ons, removal", run: r.clusterTests, covers: []string{"test/cluster/"}, takes: 6 * time.Minute},
		{name: "skew", title: "API server tests on other versions of Kubernetes", run: r.skew, covers: append(perPod, "test/cluster/skew/"), takes: 10 * time.Minute},
	}
}

// runSuite runs a suite and counts it. One in which nothing was counted has failed: it tested nothing.
func (r *repo) runSuite(ctx context.Context, s suite) {
	start, before := time.Now(), r.results.total()
	if err := s.run(ctx); err != nil {
		r.results.run(s.name, err)
	} else if r.results.total() == before {
		r.results.run(s.name, fmt.Errorf("suite %s found nothing to run below %s; give the repository with -root", s.name, r.root))
	}
	fmt.Fprintf(r.out, "   %s took %s\n", s.name, time.Since(start).Round(time.Second))
}

func (r *repo) check(ctx context.Context) error {
	err := command(ctx, r.out, r.root, nil, "make", "--no-print-directory", "check")
	if err == nil {
		r.results.run("check", nil)
	}
	return err
}

// unit runs every package that needs no node, in both modules. Without the programs of the API server its tests are skipped.
func (r *repo) unit(ctx context.Context) error {
	packages, err := r.packages(ctx)
	if err != nil {
		return err
	}
	assets, err := r.assets(ctx)
	if err != nil {
		fmt.Fprintf(r.out, "no API server, its tests are skipped: %v\n", err)
	}
	race := r.race()
	args := append([]string{"-count=1", "-timeout=15m"}, race...)
	if err := goTest(ctx, r.results, r.root, []string{"KUBEBUILDER_ASSETS=" + assets}, append(args, packages...)...); err != nil {
		return err
	}
	return goTest(ctx, r.results, r.clusterModule(), nil, "-count=1", "-timeout=10m", "./internal/...", "./cmd/...")
}

func (r *repo) clusterModule() string { return filepath.Join(r.root, "test", "cluster") }

// slowest is the package that takes the longest. It starts first, so that it does not run alone at the end.
const slowest = "/internal/controller"

// packages are those of the main module without the end-to-end tests.
func (r *repo) packages(ctx context.Context) ([]string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "./...")
	cmd.Dir = r.root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	list, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list ./...: %w\n%s", err, stderr.String())
	}
	var first, packages []string
	for _, p := range strings.Fields(string(list)) {
		switch {
		case strings.Contains(p+"/", "/test/e2e/"):
		case strings.HasSuffix(p, slowest):
			first = append(first, p)
		default:
			packages = append(packages, p)
		}
	}
	return append(first, packages...), nil
}

// race is the flag for the race detector. Where it cannot be built, that is a skip: the tests run and detect less.
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

// long runs the packages with tests that take more cases with MBCAS_LONG=1, and pure properties with ten times the cases.
func (r *repo) long(ctx context.Context) error {
	packages, err := dirsWith(r.root, `"MBCAS_LONG"`)
	if err != nil {
		return err
	}
	properties, err := dirsWith(r.root, `"pgregory.net/rapid"`)
	if err != nil {
		return err
	}
	needServer, err := dirsWith(r.root, `internal/testing/apiserver"`)
	if err != nil {
		return err
	}
	properties = slices.DeleteFunc(properties, func(dir string) bool { return slices.Contains(needServer, dir) })
	assets, err := r.assets(ctx)
	if err != nil {
		return err
	}
	env := []string{"MBCAS_LONG=1", "KUBEBUILDER_ASSETS=" + assets}
	if err := goTest(ctx, r.results, r.root, env, append([]string{"-count=1", "-timeout=30m"}, packages...)...); err != nil {
		return err
	}
	return goTest(ctx, r.results, r.root, env, append(append([]string{"-count=1", "-timeout=30m"}, properties...), "-rapid.checks=1000")...)
}

// clusterTests run the program of the local cluster as its users do, each with a cluster of its own. Each test is printed as it ends.
func (r *repo) clusterTests(ctx context.Context) error {
	r.stopCluster(ctx)
	r.results.perTest = true
	defer func() { r.results.perTest = false }()
	return goTest(ctx, r.results, r.clusterModule(), nil, "-count=1", "-timeout=40m", "./integration/...")
}

// fuzz runs each target that many times. A crash that it finds is kept in testdata. A number of runs, as a duration ends with
// "context deadline exceeded" now and then before Go 1.27 (go.dev/issue/75804).
func (r *repo) fuzz(ctx context.Context) error {
	targets, err := fuzzTargets(r.root)
	if err != nil {
		return err
	}
	for _, f := range targets {
		fmt.Fprintf(r.out, "      %s %s\n", f.dir, f.name)
		err := goTest(ctx, r.results, filepath.Join(r.root, f.dir), nil,
			"-run=^$", "-fuzz=^"+f.name+"$", fmt.Sprintf("-fuzztime=%dx", r.fuzzRuns), "-fuzzminimizetime=1000x", "-timeout=10m", ".")
		if err != nil {
			return err
		}
	}
	return nil
}
