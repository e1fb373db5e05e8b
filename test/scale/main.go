// Command scale measures MBCAS on a cluster of many simulated nodes: the real API server and etcd,
// the agent's production code for every node with synthetic counters, a stand-in for the kubelets,
// and the controller as it ships, in a process of its own. It prints what the installation writes,
// how long decisions wait and what the controller costs, phase by phase, and compares the figures
// with their targets. Everything runs on this machine and ends with the program.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/mbcas/mbcas/test/internal/program"
)

var errUsage = errors.New("usage")

func main() { program.Main("scale", errUsage, run) }

// options are what is measured.
type options struct {
	nodes, pods int
	cores       int           // of each node
	interval    time.Duration // of the agents' rounds, except on the nodes with probes
	pace        time.Duration // from the start of one agent to that of the next
	length      time.Duration // of each phase in which nothing is waited for
	settle      time.Duration // until the installation has to be quiet before the first phase
	timeout     time.Duration // of all
	throttled   float64       // share of pods that want more than they declare
	contended   float64       // share of nodes on which pods want more than there is
	churn       float64       // share of pods that are replaced in a minute
	seed        bool          // the cluster's PodAllocations exist already
	controller  string        // program
	memory      int           // MiB, the memory limit of the controller's container
	args        []string      // of the controller, beyond those that say where it runs
	out         string
	profile     bool            // the API server
	skip        map[string]bool // phases
}

func parse(args []string) (options, error) {
	o := options{skip: map[string]bool{}}
	f := flag.NewFlagSet("mbcas-scale", flag.ContinueOnError)
	f.IntVar(&o.nodes, "nodes", 100, "simulated nodes")
	f.IntVar(&o.pods, "pods", 3000, "pods of all nodes")
	f.IntVar(&o.cores, "cores", 16, "CPUs of a node")
	f.DurationVar(&o.interval, "interval", time.Second,
		"time between two rounds of an agent, of 9 agents in 10; pods that come to want more are on the other nodes")
	f.DurationVar(&o.pace, "pace", 15*time.Millisecond, "time from the start of one agent to that of the next")
	f.DurationVar(&o.length, "phase", time.Minute, "length of the phases with steady load and with churn")
	f.DurationVar(&o.settle, "settle", 3*time.Minute,
		"time in which the installation has to become quiet after its start")
	f.DurationVar(&o.timeout, "timeout", 10*time.Minute, "end after this time, whatever is still to be measured")
	f.Float64Var(&o.throttled, "throttled", 0.02, "share of pods that want more CPU than they declare")
	f.Float64Var(&o.contended, "contended", 0, "share of nodes on which pods want more CPU than the node has")
	f.Float64Var(&o.churn, "churn", 0.05, "share of pods that are replaced in a minute of the phase churn")
	f.BoolVar(&o.seed, "seed", true, "begin with the PodAllocations of all pods, as after an earlier installation")
	f.StringVar(&o.controller, "controller", "bin/mbcas-controller", "program of the controller")
	controller := f.String("controller-args", "", "more flags for the controller, with spaces between them")
	f.IntVar(&o.memory, "controller-memory", 512, "limit in MiB that the controller knows of")
	f.StringVar(&o.out, "out", "out/scale", "folder for report.md, results.csv and the logs")
	f.BoolVar(&o.profile, "profile", false, "write a CPU profile of the API server for each phase")
	skip := f.String("skip", "", "phases to leave out, with commas between them")
	f.SetOutput(io.Discard)
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			f.SetOutput(os.Stderr)
			f.Usage()
			return o, err
		}
		return o, fmt.Errorf("%w: %w; -help lists the flags", errUsage, err)
	}
	o.args = strings.Fields(*controller)
	for name := range strings.SplitSeq(*skip, ",") {
		o.skip[name] = true
	}
	return o, o.validate(f.Args())
}

// validate says what cannot be measured.
func (o options) validate(rest []string) error {
	info, err := os.Stat(o.controller)
	for _, c := range []struct {
		bad  bool
		text string
	}{
		{len(rest) > 0, fmt.Sprintf("unexpected argument %q: want flags only", strings.Join(rest, " "))},
		{o.nodes < 1, fmt.Sprintf("-nodes %d: want at least 1", o.nodes)},
		{o.pods < o.nodes, fmt.Sprintf("-pods %d: want at least one on each of %d nodes", o.pods, o.nodes)},
		{o.cores < 1, fmt.Sprintf("-cores %d: want at least 1", o.cores)},
		{o.memory < 1, fmt.Sprintf("-controller-memory %d: want at least 1 MiB", o.memory)},
		{min(o.interval, o.length, o.settle, o.timeout) <= 0,
			"-interval, -phase, -settle and -timeout: want more than 0s"},
		{min(o.throttled, o.contended, o.churn) < 0 || max(o.throttled, o.contended, o.churn) > 1,
			"-throttled, -contended and -churn: want 0 to 1"},
		{err != nil || info.IsDir(),
			fmt.Sprintf("-controller %s: want a program; make build writes bin/mbcas-controller", o.controller)},
	} {
		if c.bad {
			return fmt.Errorf("%w: %s", errUsage, c.text)
		}
	}
	return nil
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	assets := os.Getenv("KUBEBUILDER_ASSETS")
	if assets == "" {
		return fmt.Errorf(`%w: no API server: set KUBEBUILDER_ASSETS="$(bin/mbcas-cluster assets)"`, errUsage)
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	logs, err := os.Create(filepath.Join(o.out, "harness.log"))
	if err != nil {
		return err
	}
	defer logs.Close()
	log := slog.New(slog.NewTextHandler(logs, &slog.HandlerOptions{Level: slog.LevelWarn}))
	klog.SetLogger(logr.FromSlogHandler(log.Handler()))
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()

	// The runtime of this process has read its own; what it starts reads that of the environment.
	if err := os.Setenv("GOGC", "150"); err != nil {
		return err
	}
	w := &world{options: o, log: log, progress: newProgress(os.Stderr), report: newReport(o)}
	err = w.measure(ctx, assets)
	if wrote := w.report.write(o.out); wrote != nil {
		return errors.Join(err, wrote)
	}
	w.report.print(stdout)
	return err
}

// progress prints one line at a time with the seconds since the start.
type progress struct {
	out   io.Writer
	start time.Time
}

func newProgress(out io.Writer) *progress { return &progress{out, time.Now()} }

func (p *progress) say(format string, args ...any) {
	fmt.Fprintf(p.out, "%6.1f s  %s\n", time.Since(p.start).Seconds(), fmt.Sprintf(format, args...))
}
