//go:build linux

// Command mbcas-platform measures what MBCAS does beside a ResourceQuota and beside an HPA, on a real node with the
// real controllers: twenty pods under changing load in one quota, and a service that scales out, with and without MBCAS.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

// errUsage marks a command line that cannot be understood.
var errUsage = errors.New("usage")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case errors.Is(err, errUsage):
		fmt.Fprintln(os.Stderr, "mbcas-platform:", err)
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "mbcas-platform:", err)
		os.Exit(1)
	}
}

// settings are the flags.
type settings struct {
	parts []string
	short bool
	seed  uint64
	limit int64
	out   string
}

// Parts, in the order in which they are played.
const (
	quotaPart = "quota"
	scalePart = "hpa"
)

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	s, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return errors.New("this runs a node, which needs root: sudo make platform")
	}
	return newShow(s, stdout).run(ctx)
}

func parse(args []string, stderr io.Writer) (settings, error) {
	var s settings
	fs := flag.NewFlagSet("mbcas-platform", flag.ContinueOnError)
	fs.SetOutput(stderr)
	only := fs.String("only", quotaPart+","+scalePart, "parts to play, separated by commas")
	fs.BoolVar(&s.short, "short", false, "short phases: to see that it works, not to measure")
	fs.Uint64Var(&s.seed, "seed", 1, "seed of the arrivals; the same seed gives the same arrivals")
	fs.Int64Var(&s.limit, "limit", 150, "declared CPU limit of the service under the HPA, in thousandths of a core; it requests 100")
	fs.StringVar(&s.out, "out", "out/platform", "folder for summary.json, the tables and the pictures")
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return s, err
		}
		return s, fmt.Errorf("%w: %w", errUsage, err)
	}
	if fs.NArg() > 0 {
		return s, fmt.Errorf("%w: %q is one too many", errUsage, fs.Arg(0))
	}
	if s.limit < webRequest {
		return s, fmt.Errorf("%w: --limit %d: want at least the request, %d", errUsage, s.limit, webRequest)
	}
	for p := range strings.SplitSeq(*only, ",") {
		if p != quotaPart && p != scalePart {
			return s, fmt.Errorf("%w: --only: %q is neither %s nor %s", errUsage, p, quotaPart, scalePart)
		}
		s.parts = append(s.parts, p)
	}
	return s, nil
}

func (s settings) plays(part string) bool { return slices.Contains(s.parts, part) }
