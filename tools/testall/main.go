// Command testall runs every test of the repository, in all its modules, and counts them
// once: its last line is "N passed, N failed, N skipped".
//
// Promises, each a case of TestTally or a test of its own:
//   - A package that does not build, panics or hangs counts as failed.
//   - A skip is printed with its reason; with CI=true it is a failure.
//   - What makes a run see less, such as no race detector, is a skip too.
//   - A run that would test nothing is an error or a failure, never a success.
//   - The count means the same everywhere: each test and each subtest is one.
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

// run is the exit code: 0, 1 for a failure, 2 for a command line that cannot be understood.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("testall", flag.ContinueOnError)
	flags.SetOutput(stderr)
	root := flags.String("root", ".", "root of the repository")
	check := flags.Bool("check", false, "run `make check` too, counted as one test")
	skew := flags.Bool("skew", false, "run the API server tests on other versions of Kubernetes too")
	fuzzRuns := flags.Uint("fuzzruns", 30000, "how often each fuzz target runs; less finds less")
	only := flags.String("only", "", "run one suite alone: check, unit, cluster, fuzz, fidelity, e2e or skew")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil: // flags has said what is wrong, and how it is used
		return 2
	case flags.NArg() > 0:
		fmt.Fprintf(stderr, "testall: unexpected argument %q; a suite is chosen with -only\n", flags.Arg(0))
		return 2
	case *fuzzRuns == 0:
		fmt.Fprintln(stderr, "testall: -fuzzruns 0: want at least 1")
		return 2
	}
	path, err := filepath.Abs(*root)
	if err != nil {
		fmt.Fprintln(stderr, "testall:", err)
		return 2
	}

	out := &alive{out: stdout, last: time.Now()}
	r := repo{
		root: path, fuzzRuns: *fuzzRuns, out: out,
		count: newTally(out, os.Getenv("CI") == "true"),
	}
	var extra []string
	for name, wanted := range map[string]bool{"check": *check, "skew": *skew} {
		if wanted {
			extra = append(extra, name)
		}
	}
	chosen, err := choose(r.suites(), *only, extra...)
	if err != nil {
		fmt.Fprintln(stderr, "testall:", err)
		return 2
	}

	done, watched := make(chan struct{}), make(chan struct{})
	go func() { defer close(watched); out.watch(done) }()
	for _, s := range chosen {
		out.begin(s.title)
		r.play(ctx, s)
		if ctx.Err() != nil {
			r.count.run("testall", fmt.Errorf("interrupted in %s", s.name))
			break
		}
	}
	close(done)
	<-watched
	r.count.summary()
	if r.count.failed > 0 {
		return 1
	}
	return 0
}
