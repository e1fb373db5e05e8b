//go:build linux

// Command mbcas-load is the load of the demo and of tests. It does a counted amount of CPU work per
// HTTP request, and spins threads by plans. With --once it does some work and ends, as init containers
// do.
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
var errUsage = errors.New("usage: mbcas-load [--listen ADDRESS] [--threads N] | --once N")

func main() { program.Main("mbcas-load", errUsage, run) }

func run(ctx context.Context, args []string, stdout io.Writer) error {
	fs := flag.NewFlagSet("mbcas-load", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	listen := fs.String("listen", ":8080", "address to listen on")
	threads := fs.Int("threads", 0, "threads that spin from the start until the first plan")
	once := fs.Int("once", 0, "iterations of work to do, and then to end")
	if err := fs.Parse(args); err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	switch {
	case fs.NArg() > 0:
		return fmt.Errorf("%w: %q is one too many", errUsage, fs.Arg(0))
	case *threads < 0 || *threads > maxThreads || *once < 0:
		return fmt.Errorf("%w: %d threads, once %d: want 0 to %d threads", errUsage, *threads, *once, maxThreads)
	case *once > 0:
		fmt.Fprintln(stdout, work.Burn(*once))
		return nil
	}
	s := newServer()
	defer s.follow(plan{})
	s.follow(plan{Threads: *threads})
	return listenAndServe(ctx, *listen, s.routes(), stdout)
}

// listenAndServe returns nil when ctx ends.
func listenAndServe(ctx context.Context, address string, routes http.Handler, stdout io.Writer) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	fmt.Fprintln(stdout, "listening on", l.Addr())
	srv := &http.Server{Handler: routes, ReadHeaderTimeout: time.Minute}
	// Requests under way are part of the load, not worth waiting for.
	stop := context.AfterFunc(ctx, func() { srv.Close() })
	defer stop()
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
