//go:build linux

// Command mbcas-demo shows what MBCAS does on a real node, and measures it: a service whose load
// steps up and down, a second service, and a hog, three times over - with CPU limits as declared,
// without CPU limits, and with MBCAS.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
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
		fmt.Fprintln(os.Stderr, "mbcas-demo:", err)
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "mbcas-demo:", err)
		os.Exit(1)
	}
}

// settings are the flags.
type settings struct {
	parts   map[string]bool
	quick   bool
	seed    uint64
	out     string
	keep    bool
	install bool
	config  string
	steps   int
	draw    bool
}

// parts of the show, in the order in which they are played.
var parts = []string{"static", "no_limit", "mbcas", "steady", "reaction", "restore"}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	s, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	if s.draw {
		return redraw(s)
	}
	if os.Geteuid() != 0 {
		return errors.New("the demo runs a node, which needs root: sudo make demo")
	}
	return newDemo(s, stdout).run(ctx)
}

func parse(args []string, stderr io.Writer) (settings, error) {
	s := settings{parts: map[string]bool{}}
	fs := flag.NewFlagSet("mbcas-demo", flag.ContinueOnError)
	fs.SetOutput(stderr)
	only := fs.String("only", strings.Join(parts, ","), "parts to play, separated by commas")
	fs.BoolVar(&s.quick, "quick", false, "short phases: to see it, not to measure it")
	fs.Uint64Var(&s.seed, "seed", 1, "seed of the arrivals; the same seed gives the same arrivals")
	fs.StringVar(&s.out, "out", "out/demo", "folder for summary.json, samples.csv and the pictures")
	fs.BoolVar(&s.keep, "keep", false, "leave cluster, MBCAS and workload running at the end, and say how to use them")
	fs.BoolVar(&s.install, "install", true, "install MBCAS from bin/ and --config; with false it must be installed already")
	fs.StringVar(&s.config, "config", "config/overlays/local", "kustomization to install")
	fs.IntVar(&s.steps, "steps", 0, "reaction steps to measure (default 21, with --quick 3)")
	fs.BoolVar(&s.draw, "draw", false, "only draw the pictures again, from samples.csv in --out")
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return s, err
		}
		return s, fmt.Errorf("%w: %w", errUsage, err)
	}
	if fs.NArg() > 0 {
		return s, fmt.Errorf("%w: %q is one too many", errUsage, fs.Arg(0))
	}
	known := map[string]bool{}
	for _, p := range parts {
		known[p] = true
	}
	for p := range strings.SplitSeq(*only, ",") {
		if !known[p] {
			return s, fmt.Errorf("%w: --only: %q is none of %s", errUsage, p, strings.Join(parts, ", "))
		}
		s.parts[p] = true
	}
	if s.steps == 0 {
		s.steps = 21
		if s.quick {
			s.steps = 3
		}
	}
	return s, nil
}

// needsMBCAS says whether any part is played with MBCAS.
func (s settings) needsMBCAS() bool {
	return s.parts["mbcas"] || s.parts["steady"] || s.parts["reaction"] || s.parts["restore"]
}
