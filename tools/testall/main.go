// Command testall runs every test of the repository, in all its modules, and counts them
// once: its last line is "N passed, N failed, N skipped".
//
// Promises, each a case of TestTally:
//   - A package that does not build, panics or hangs counts as failed.
//   - A skip is printed with its reason; with CI=true it is a failure.
//   - The count means the same everywhere: each test and each subtest is one.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:]))
}

func run(ctx context.Context, args []string) int {
	flags := flag.NewFlagSet("testall", flag.ContinueOnError)
	root := flags.String("root", ".", "root of the repository")
	check := flags.Bool("check", false, "run `make check` too, counted as one test")
	fuzzTime := flags.Duration("fuzztime", 3*time.Second, "how long each fuzz target runs; less finds less")
	only := flags.String("only", "", "run one suite alone: unit, cluster, fuzz or e2e")
	if err := flags.Parse(args); err != nil || flags.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "usage: testall [flags]; see testall -help")
		return 2
	}
	path, err := filepath.Abs(*root)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testall:", err)
		return 2
	}

	out := &alive{out: os.Stdout, last: time.Now()}
	done, watched := make(chan struct{}), make(chan struct{})
	go func() { defer close(watched); out.watch(done) }()

	r := repo{
		root: path, fuzzTime: *fuzzTime, out: out,
		count: newTally(out, os.Getenv("CI") == "true"),
	}
	for _, s := range r.suites(*check) {
		if *only != "" && s.name != *only {
			continue
		}
		start := time.Now()
		out.begin(s.title)
		if err := s.run(ctx); err != nil {
			r.count.run(s.name, err)
		}
		fmt.Fprintf(out, "   %s took %s\n", s.name, time.Since(start).Round(time.Second))
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
