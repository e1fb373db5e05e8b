//go:build linux

// Command mbcas-evaluate plays the same workloads under MBCAS and its alternatives on a real node, and
// writes a page of what it measured. It can be stopped and started again: what was measured stays.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/mbcas/mbcas/test/evaluation/internal/plan"
	"github.com/mbcas/mbcas/test/evaluation/internal/results"
	"github.com/mbcas/mbcas/test/internal/program"
)

// version is set by the build.
var version = "dev"

// errUsage marks a command line that cannot be understood.
var errUsage = errors.New("usage: mbcas-evaluate [flags] run|plan|report|publish|outline")

func main() { program.Main("mbcas-evaluate", errUsage, run) }

// settings are the command line.
type settings struct {
	plan      plan.Plan
	out       string
	root      string
	stopAfter time.Duration
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	command, s, err := parse(args, os.Stderr)
	if err != nil {
		return err
	}
	switch command {
	case "plan":
		return printPlan(stdout, s.plan)
	case "report":
		return writeReport(s, stdout)
	case "publish":
		return publish(s, stdout)
	case "outline":
		return outline(s, stdout)
	}
	if os.Geteuid() != 0 {
		return errors.New("this runs a node, which needs root: use sudo")
	}
	measured := newSession(s, stdout).run(ctx)
	return errors.Join(measured, writeReport(s, stdout))
}

func parse(args []string, stderr io.Writer) (command string, s settings, err error) {
	fs := flag.NewFlagSet("mbcas-evaluate", flag.ContinueOnError)
	fs.SetOutput(stderr)
	quick := fs.Bool("quick", false, "one repeat, and no policies that learn")
	more := fs.Bool("more", false, "also what three hours have no time for; cells that are there stay")
	only := fs.String("only", "", "the one situation to play (default all)")
	seed := fs.Uint64("seed", 0, "seed of requests and order (default that of the plan)")
	fs.StringVar(&s.out, "out", "out/evaluation", "folder of the results")
	fs.StringVar(&s.root, "root", "out/evaluation-root.tar",
		"root file system of the workloads, as make evaluation builds it")
	fs.DurationVar(&s.stopAfter, "stop-after", 0, "begin no cell that would end later than this (default no limit)")
	fs.Usage = func() {
		fmt.Fprintln(stderr, errUsage)
		fs.PrintDefaults()
	}
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return "", s, err
		}
		return "", s, fmt.Errorf("%w: %w", errUsage, err)
	}
	command = fs.Arg(0)
	switch command {
	case "run", "plan", "report", "publish", "outline":
	default:
		return "", s, fmt.Errorf("%w: %q", errUsage, command)
	}
	s.plan = plan.Default(*quick, *more)
	if *seed != 0 {
		s.plan.Seed = *seed
	}
	if *only != "" && !s.plan.Only(*only) {
		return "", s, fmt.Errorf("%w: --only: no situation %q; see: mbcas-evaluate plan", errUsage, *only)
	}
	return command, s, nil
}

// printPlan prints the cells in their order.
func printPlan(out io.Writer, p plan.Plan) error {
	cells := p.Cells()
	for _, c := range cells {
		fmt.Fprintf(out, "%-34s about %v\n", c.Name(), c.Takes().Round(time.Second))
	}
	for _, name := range []func(plan.Cell) string{
		func(c plan.Cell) string { return c.Situation.Name }, func(c plan.Cell) string { return c.Policy.Name },
	} {
		fmt.Fprintln(out)
		for _, x := range p.Parts(name) {
			fmt.Fprintf(out, "%-34s %3d cells, about %v\n", x.Name, x.Cells, x.Takes.Round(time.Second))
		}
	}
	_, err := fmt.Fprintf(out, "\n%d cells, about %v\n", len(cells), p.Takes().Round(time.Minute))
	return err
}

// folder is where the results are.
func (s settings) folder() results.Folder { return results.Folder(s.out) }
