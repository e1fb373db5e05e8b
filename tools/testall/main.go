// Command testall runs the tests of the repository, in all its modules, and counts them once: its last
// line is "N passed, N failed, N skipped".
//
// Promises, each a case of TestResults or a test of its own:
//   - A package that does not build, panics or hangs counts as failed.
//   - A skip is printed with its reason; with CI=true it is a failure.
//   - Anything that makes a run check less, such as no race detector, is a skip too.
//   - A run that would test nothing is an error or a failure, never a success.
//   - The count means the same everywhere: each test and each subtest is one.
//   - Every tier includes the tier "test": TestTiers.
//   - A test on a real API server, node or browser that fails runs once more; what that forgives is printed
//     and bounded: TestOnceMore.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// options is the command line.
type options struct {
	root     string
	tier     string
	only     string
	fuzzRuns uint
	ledger   bool
}

func parse(args []string, stderr io.Writer) (o options, err error) {
	flags := flag.NewFlagSet("testall", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.root, "root", ".", "root of the repository")
	flags.StringVar(&o.tier, "tier", tierTest, "suites to run: test, ci or all")
	flags.StringVar(&o.only, "only", "", "run this suite alone")
	flags.UintVar(&o.fuzzRuns, "fuzzruns", 30000, "runs of each fuzz target")
	flags.BoolVar(&o.ledger, "ledger", false, "run nothing; print the slowest tests of the last run, and flaky ones")
	if err := flags.Parse(args); err != nil {
		return o, err // flags has printed it
	}
	switch {
	case flags.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q; use -only for one suite", flags.Arg(0))
	case o.fuzzRuns == 0:
		err = errors.New("-fuzzruns 0: want at least 1")
	default:
		o.root, err = filepath.Abs(o.root)
	}
	if err != nil {
		fmt.Fprintln(stderr, "testall:", err)
	}
	return o, err
}

// run returns the exit code: 0, 1 for a failure, 2 for an invalid command line.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}
	path := ledgerPath()
	before, err := readLedger(path)
	if err != nil {
		fmt.Fprintln(stderr, "testall:", err) // tests run without it
	}
	if o.ledger {
		printLedger(stdout, before)
		return 0
	}
	start, out := time.Now(), newProgress(stdout)
	r := &repo{root: o.root, fuzzRuns: o.fuzzRuns, out: out, results: newResults(out, os.Getenv("CI") == "true")}
	r.flakyBefore = flakyIn(before)
	chosen, err := r.choose(o)
	if err == nil {
		err = adoptOrphans()
	}
	if err != nil {
		fmt.Fprintln(stderr, "testall:", err)
		return 2
	}

	commit := r.commit(ctx)
	r.runAll(ctx, out, chosen)
	out.follow("")
	if err := appendLedger(path, start, commit, r.results.ended); err != nil {
		fmt.Fprintln(stderr, "testall:", err)
	}
	r.results.summary()
	if r.results.failed > 0 {
		return 1
	}
	return 0
}

// runAll runs the suites in their order. Most need the program of the local cluster, which is built first.
func (r *repo) runAll(ctx context.Context, out *progress, chosen []suite) {
	if err := r.make(ctx, "bin/mbcas-cluster"); err != nil {
		r.results.run("bin/mbcas-cluster", err)
		return
	}
	defer r.stopCluster(ctx)
	for _, s := range chosen {
		out.begin(s.title)
		r.runSuite(ctx, s)
		if ctx.Err() != nil {
			r.results.run("testall", fmt.Errorf("interrupted in %s", s.name))
			return
		}
	}
}
