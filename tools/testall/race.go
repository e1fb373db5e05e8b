package main

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// splitConcurrent divides packages, in their order, into those for the race detector and those that it can tell nothing
// about: neither their code nor their tests start a goroutine, take a lock or run in parallel. It makes tests five to
// ten times as slow. Code that they import runs in them as they call it, and under the detector in its own tests.
func splitConcurrent(packages []listed) (concurrent, sequential []string, err error) {
	for _, p := range packages {
		is, err := p.concurrent()
		if err != nil {
			return nil, nil, err
		}
		if is {
			concurrent = append(concurrent, p.ImportPath)
		} else {
			sequential = append(sequential, p.ImportPath)
		}
	}
	return concurrent, sequential, nil
}

// synchronizing are packages that only concurrent code imports.
var synchronizing = strings.Fields(`sync sync/atomic testing/synctest golang.org/x/sync/errgroup net/http os/exec
	os/signal`)

// runsAside are functions and methods that run another one concurrently: of testing, time and context.
var runsAside = []string{"Parallel", "RunParallel", "AfterFunc"}

// concurrent says whether a file of the package, tests included, starts a goroutine or a timer's function, imports what
// only concurrent code needs, or has parallel tests.
func (p listed) concurrent() (bool, error) {
	for _, name := range slices.Concat(p.GoFiles, p.CgoFiles, p.TestGoFiles, p.XTestGoFiles) {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return false, err
		}
		for _, i := range file.Imports {
			path, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				return false, err
			}
			if slices.Contains(synchronizing, path) || strings.HasPrefix(path, "k8s.io/client-go/") ||
				strings.HasPrefix(path, "sigs.k8s.io/controller-runtime") {
				return true, nil
			}
		}
		found := false
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt, *ast.ChanType:
				found = true
			case *ast.SelectorExpr:
				found = found || slices.Contains(runsAside, n.Sel.Name)
			}
			return !found
		})
		if found {
			return true, nil
		}
	}
	return false, nil
}

// simulations are the tests of concurrent packages that play clusters by a clock of their own, and that the suite unit
// runs without the race detector: it takes most of their time. Schedules send one request at a time, and what
// TestTheBusyScheduleSupersedes plays stays under the detector. So does TestSoak, in which agents and controllers have
// the same goroutines as in the other soaks. The suite simulations runs all of them under it.
var simulations = []struct{ dir, tests string }{
	{"./internal/controller", `TestCrashes TestSchedules TestKnownSchedules TestEtcdStandsStill TestLargeCluster
		TestAgentsWhoseClockJumps TestLiveLoadWritesLittle TestNothingIsWrittenWithinBands TestTwoControllers`},
	{"./internal/controller/metrics", `TestScalesOutUnderScarcityAndInAgain TestADeficitAloneOscillates
		TestScalingComesToRest`},
	{"./internal/lab/experiment", "TestCoordinatorEvensReplicas"},
}

// simulated are a pattern of their names, and their packages.
func simulated() (pattern string, dirs []string) {
	var names []string
	for _, s := range simulations {
		names, dirs = append(names, strings.Fields(s.tests)...), append(dirs, s.dir)
	}
	return "^(" + strings.Join(names, "|") + ")$", dirs
}

// simulations runs under the race detector what unit runs without.
func (r *repo) simulations(ctx context.Context) error {
	assets, err := r.assets(ctx)
	if err != nil {
		return err
	}
	pattern, dirs := simulated()
	args := slices.Concat([]string{"-count=1", "-timeout=25m"}, r.race("simulations"), []string{"-run", pattern}, dirs)
	return r.goTest(ctx, "", []string{"KUBEBUILDER_ASSETS=" + assets}, args...)
}

// race is the flag for the race detector. Where it cannot be built, that is a skip: the tests run and
// detect less.
func (r *repo) race(suite string) []string {
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
	r.results.skip(suite, suite+", race detector", why)
	return nil
}
