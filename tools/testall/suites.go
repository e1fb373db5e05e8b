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

// repo is what all suites share.
type repo struct {
	root     string
	fuzzRuns uint // of each target
	out      io.Writer
	count    *tally
}

// suite is one part of all tests. It counts its own failures; an error is one more.
type suite struct {
	name, title string
	run         func(context.Context) error
	// extra says that it runs only when it is asked for.
	extra bool
}

// suites are in the order of how soon they tell something.
func (r repo) suites() []suite {
	return []suite{
		{name: "check", title: "make check", run: r.check, extra: true},
		{name: "unit", title: "unit, property and API server tests, with the race detector", run: r.unit},
		{name: "cluster", title: "tests of the local cluster", run: r.cluster},
		{name: "fuzz", title: fmt.Sprintf("fuzz, %d runs of each target", r.fuzzRuns), run: r.fuzz},
		{name: "fidelity", title: "the simulator beside this machine's kernel", run: r.fidelity},
		{name: "e2e", title: "end to end, on a real node", run: r.e2e},
		{name: "skew", title: "API server tests on other versions of Kubernetes", run: r.skew, extra: true},
	}
}

// choose is the suites to run: the one that only names, or all; of the extra ones those that are asked for.
func choose(all []suite, only string, extra ...string) ([]suite, error) {
	var chosen []suite
	var names []string
	for _, s := range all {
		names = append(names, s.name)
		if s.name == only || only == "" && (!s.extra || slices.Contains(extra, s.name)) {
			chosen = append(chosen, s)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("no suite %q; there are %s", only, strings.Join(names, ", "))
	}
	return chosen, nil
}

// play runs a suite and counts it. One in which nothing was counted has failed: it tested nothing.
func (r repo) play(ctx context.Context, s suite) {
	start, before := time.Now(), r.count.total()
	if err := s.run(ctx); err != nil {
		r.count.run(s.name, err)
	} else if r.count.total() == before {
		r.count.run(s.name, fmt.Errorf("suite %s found nothing to run below %s; give the repository with -root", s.name, r.root))
	}
	fmt.Fprintf(r.out, "   %s took %s\n", s.name, time.Since(start).Round(time.Second))
}

func (r repo) check(ctx context.Context) error {
	err := command(ctx, r.out, r.root, nil, "make", "--no-print-directory", "check")
	if err == nil {
		r.count.run("check", nil)
	}
	return err
}

// unit is every package of the main module that needs no node. A real API server is used
// where its programs are there; without them those tests skip.
func (r repo) unit(ctx context.Context) error {
	packages, err := r.packages(ctx)
	if err != nil {
		return err
	}
	assets, err := r.assets(ctx)
	if err != nil {
		fmt.Fprintf(r.out, "no API server, its tests are skipped: %v\n", err)
	}
	args := append([]string{"-count=1", "-timeout=15m"}, r.race()...)
	return goTest(ctx, r.count, r.root, []string{"KUBEBUILDER_ASSETS=" + assets}, append(args, packages...)...)
}

// packages are those of the main module but for the suites that need a node, or a quiet machine.
func (r repo) packages(ctx context.Context) ([]string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "./...")
	cmd.Dir = r.root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	list, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list ./...: %w\n%s", err, stderr.String())
	}
	var packages []string
	for _, p := range strings.Fields(string(list)) {
		if !strings.Contains(p+"/", "/test/e2e/") && !strings.Contains(p+"/", "/test/fidelity/") {
			packages = append(packages, p)
		}
	}
	return packages, nil
}

// race is the flag that turns the race detector on. Where it cannot be built, that is a skip:
// the tests run all the same, and see less.
func (r repo) race() []string {
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
	r.count.skip("unit", "unit, race detector", why)
	return nil
}

// cluster is the module that makes the local cluster. Its longest tests build a machine, so each is shown.
func (r repo) cluster(ctx context.Context) error {
	r.count.perTest = true
	defer func() { r.count.perTest = false }()
	return goTest(ctx, r.count, filepath.Join(r.root, "test", "cluster"), nil, "-count=1", "-timeout=40m", "./...")
}

// fidelity measures on this machine, so nothing else runs meanwhile.
func (r repo) fidelity(ctx context.Context) error {
	r.count.perTest = true
	defer func() { r.count.perTest = false }()
	return goTest(ctx, r.count, r.root, nil, "-count=1", "-timeout=45m", "./test/fidelity")
}

// fuzz runs each target so often, and little more to make inputs smaller. A crash that it finds is kept in testdata. It is not
// for a time, as that ends with "context deadline exceeded" now and then before Go 1.27 (go.dev/issue/75804).
func (r repo) fuzz(ctx context.Context) error {
	targets, err := fuzzTargets(r.root)
	if err != nil {
		return err
	}
	for _, f := range targets {
		fmt.Fprintf(r.out, "      %s %s\n", f.dir, f.name)
		err := goTest(ctx, r.count, filepath.Join(r.root, f.dir), nil,
			"-run=^$", "-fuzz=^"+f.name+"$", fmt.Sprintf("-fuzztime=%dx", r.fuzzRuns), "-fuzzminimizetime=1000x", "-timeout=10m", ".")
		if err != nil {
			return err
		}
	}
	return nil
}
