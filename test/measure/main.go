//go:build linux

// Command mbcas-measure plays scripts on a real node and measures what MBCAS does to them: the
// demo, a ResourceQuota, a service under an HPA, or a script of your own.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/mbcas/mbcas/test/internal/program"
	"github.com/mbcas/mbcas/test/measure/internal/figures"
	"github.com/mbcas/mbcas/test/measure/internal/script"
	"github.com/mbcas/mbcas/test/measure/scripts"
)

// version is set by the build.
var version = "dev"

// errUsage marks a command line that cannot be understood.
var errUsage = errors.New("usage: mbcas-measure [flags] " +
	"demo|reaction|quota|hpa|requests-tell|default-limits|benefit|weights|guarantee|FILE.yaml...")

func main() { program.Main("mbcas-measure", errUsage, run) }

// settings are the command line.
type settings struct {
	scripts []*script.Script
	full    bool
	seed    uint64
	out     string
	keep    bool
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	s, err := parse(args, os.Stderr)
	if err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return errors.New("this runs a node, which needs root: use sudo")
	}
	return newSession(s, stdout).run(ctx)
}

func parse(args []string, stderr io.Writer) (settings, error) {
	var s settings
	fs := flag.NewFlagSet("mbcas-measure", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.BoolVar(&s.full, "full", false, "long phases and everything that needs time: reactions, steady load")
	fs.Uint64Var(&s.seed, "seed", 1, "seed of the requests; the same seed gives the same requests")
	fs.StringVar(&s.out, "out", "out", "folder; each script writes its files to a folder of its name below it")
	fs.BoolVar(&s.keep, "keep", false, "leave cluster, MBCAS and workload running, and print how to use them")
	fs.Usage = func() {
		fmt.Fprintln(stderr, errUsage)
		fs.PrintDefaults()
	}
	var names []string
	for { // flags may follow the names
		if err := fs.Parse(args); err != nil {
			if errors.Is(err, flag.ErrHelp) {
				return s, err
			}
			return s, fmt.Errorf("%w: %w", errUsage, err)
		}
		if fs.NArg() == 0 {
			break
		}
		names, args = append(names, fs.Arg(0)), fs.Args()[1:]
	}
	if len(names) == 0 {
		return s, fmt.Errorf("%w: no script is named", errUsage)
	}
	for _, name := range names {
		x, err := script.Open(scripts.Files, name)
		if err == nil {
			err = figures.Check(x)
		}
		if err != nil {
			return s, fmt.Errorf("%w: %w", errUsage, err)
		}
		s.scripts = append(s.scripts, x)
	}
	return s, nil
}

// folder is where a script's results go.
func (s settings) folder(x *script.Script) string { return filepath.Join(s.out, x.Name) }
