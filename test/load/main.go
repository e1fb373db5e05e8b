//go:build linux

// Command mbcas-load is the load of the demo and of tests. "serve" does a counted amount of CPU
// work per HTTP request; "hog" spins threads by plans; "once" does some work and ends, as init
// containers do.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/mbcas/mbcas/test/internal/program"
	"github.com/mbcas/mbcas/test/load/work"
)

// errUsage marks a command line that cannot be understood.
var errUsage = errors.New("usage: mbcas-load serve|hog|once [flags]")

func main() { program.Main("mbcas-load", errUsage, run) }

func run(ctx context.Context, args []string, stdout io.Writer) error {
	if len(args) == 0 {
		return errUsage
	}
	fs := flag.NewFlagSet(args[0], flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	listen := fs.String("listen", ":8080", "address to listen on")
	switch args[0] {
	case "serve":
		slots := fs.Int("slots", 4, "requests worked on at a time; more wait in a queue")
		if err := parse(fs, args[1:]); err != nil {
			return err
		}
		if *slots < 1 {
			return fmt.Errorf("%w: --slots %d: want at least 1", errUsage, *slots)
		}
		return listenAndServe(ctx, *listen, newServer(*slots), stdout)
	case "hog":
		threads := fs.Int("threads", 0, "threads that spin from the start until the first plan")
		if err := parse(fs, args[1:]); err != nil {
			return err
		}
		if *threads < 0 || *threads > maxThreads {
			return fmt.Errorf("%w: --threads %d: want 0 to %d", errUsage, *threads, maxThreads)
		}
		h := newHog()
		defer h.stop()
		if *threads > 0 {
			h.spin(plan{Threads: *threads})
		}
		return listenAndServe(ctx, *listen, h.routes(), stdout)
	case "once":
		n := fs.Int("n", 10_000_000, "iterations of work")
		if err := parse(fs, args[1:]); err != nil {
			return err
		}
		fmt.Fprintln(stdout, work.Burn(max(0, *n)))
		return nil
	}
	return errUsage
}

func parse(fs *flag.FlagSet, args []string) error {
	if err := fs.Parse(args); err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("%w: %q is one too many", errUsage, fs.Arg(0))
	}
	return nil
}

// listenAndServe returns nil when ctx ends.
func listenAndServe(ctx context.Context, address string, routes http.Handler, stdout io.Writer) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	fmt.Fprintln(stdout, "listening on", l.Addr())
	srv := &http.Server{Handler: routes, ReadHeaderTimeout: time.Minute}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(l) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	srv.Close() // requests under way are part of the load, not worth waiting for
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
