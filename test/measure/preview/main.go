//go:build linux

// Command mbcas-preview plays a script in the simulator while another command builds what the
// measurement needs, so that limits, price and latency are seen to move from the start. It depends
// on no Kubernetes library and builds in seconds.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/lab/baseline"
	"github.com/mbcas/mbcas/internal/lab/load"
	"github.com/mbcas/mbcas/internal/lab/mbcas"
	"github.com/mbcas/mbcas/internal/lab/sim"
	"github.com/mbcas/mbcas/test/internal/poll"
	"github.com/mbcas/mbcas/test/internal/program"
	"github.com/mbcas/mbcas/test/measure/internal/progress"
	"github.com/mbcas/mbcas/test/measure/internal/script"
	"github.com/mbcas/mbcas/test/measure/scripts"
)

// errUsage marks a command line that cannot be understood.
var errUsage = errors.New("usage: mbcas-preview [flags] SCRIPT COMMAND [ARGUMENT]...")

func main() { program.Main("mbcas-preview", errUsage, run) }

// settings are the flags.
type settings struct {
	log           string        // gets the output of the command
	patience      time.Duration // a command that ends sooner needs no preview
	pace          time.Duration // per simulated second
	progressEvery time.Duration // after the simulation
}

func run(ctx context.Context, args []string, out io.Writer) error {
	var s settings
	fs := flag.NewFlagSet("mbcas-preview", flag.ContinueOnError)
	fs.StringVar(&s.log, "log", "out/build.log", "file for the output of the command")
	fs.DurationVar(&s.patience, "patience", 12*time.Second, "a command that ends sooner needs no preview")
	fs.DurationVar(&s.pace, "pace", 500*time.Millisecond, "time per simulated second")
	fs.DurationVar(&s.progressEvery, "progress", 20*time.Second, "time between two lines about the command")
	if err := fs.Parse(args); err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	if fs.NArg() < 2 {
		return fmt.Errorf("%w: want a script and a command", errUsage)
	}
	x, err := open(fs.Arg(0))
	if err != nil {
		return err
	}
	built, err := s.start(ctx, fs.Args()[1:])
	if err != nil {
		return err
	}
	select {
	case err := <-built:
		return err
	case <-time.After(s.patience):
	}
	previewing, stop := context.WithCancel(ctx)
	defer stop()
	shown := make(chan error, 1)
	go func() { shown <- s.preview(previewing, x, out) }()
	err = <-built
	stop()
	if previewed := <-shown; previewed != nil && !errors.Is(previewed, context.Canceled) {
		err = errors.Join(err, fmt.Errorf("preview: %w", previewed))
	}
	return err
}

// open reads a script, without runs that the simulator cannot play: it has no class by hand.
func open(name string) (*script.Script, error) {
	x, err := script.Open(scripts.Files, name)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUsage, err)
	}
	x.Runs = slices.DeleteFunc(x.Runs, func(r script.Run) bool { return r.IdleHogs })
	if len(x.Runs) == 0 {
		return nil, fmt.Errorf("%w: script %s: the simulator cannot play a run with idleHogs, and has no other",
			errUsage, name)
	}
	return x, nil
}

// start starts the command. Its result comes when it has ended.
func (s settings) start(ctx context.Context, command []string) (<-chan error, error) {
	if err := os.MkdirAll(filepath.Dir(s.log), 0o755); err != nil {
		return nil, err
	}
	log, err := os.Create(s.log)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 30 * time.Second
	if err := cmd.Start(); err != nil {
		log.Close()
		return nil, err
	}
	built := make(chan error, 1)
	go func() {
		err := cmd.Wait()
		log.Close()
		if err != nil && ctx.Err() == nil {
			last := strings.Join(tail(s.log, 20), "\n")
			err = fmt.Errorf("%s: %w; the end of %s:\n%s", strings.Join(command, " "), err, s.log, last)
		}
		built <- err
	}()
	return built, nil
}

// tail is the last lines of a file.
func tail(path string, n int) []string {
	text, _ := os.ReadFile(path)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return lines[max(0, len(lines)-n):]
}

const (
	// allocatablePercent is what the local node gives to pods, of its cores: it keeps a fifth back.
	allocatablePercent = 80
	// hogThreads is how many threads a hog spins.
	hogThreads = 4
	// seed of the simulated load.
	seed = 1
	// tailSeconds is the time over which p99 is measured. A shorter one has too few requests.
	tailSeconds = 10
)

// second is one second of a simulated run.
type second struct {
	price float64
	pods  map[string]pod
}

// pod is the state of a pod at the end of a second.
type pod struct {
	sim.PodPoint
	p99 time.Duration
}

// preview plays the runs of a script: those without MBCAS at once, the last one at the pace.
func (s settings) preview(ctx context.Context, x *script.Script, out io.Writer) error {
	fmt.Fprintf(out, "\nThe measurement needs programs that are being built now; their output is in %s.\n", s.log)
	fmt.Fprintf(out, "Until then the simulator plays the same load (%d cores, no real pods):\n", runtime.NumCPU())
	fmt.Fprintf(out, "%s\n", x.Title)
	var without [][]second
	last := x.Runs[len(x.Runs)-1]
	plan := x.Plan(last.Name, false, seed)
	for _, r := range x.Runs[:len(x.Runs)-1] {
		var all []second
		if err := simulate(ctx, x, r, plan, func(now second) error { all = append(all, now); return nil }); err != nil {
			return err
		}
		without = append(without, all)
	}
	table := progress.Table{}
	for _, r := range x.Runs {
		table.Latencies = append(table.Latencies, r.Name+" p99")
	}
	var at time.Duration
	err := simulate(ctx, x, last, plan, func(now second) error {
		step := plan.At(at)
		line := progress.Line{At: at, Phase: step.Name, Price: progress.Price(now.price)}
		for _, all := range without {
			line.Latencies = append(line.Latencies, latency(all[at/time.Second].pods[step.Service]))
		}
		line.Latencies = append(line.Latencies, latency(now.pods[step.Service]))
		service, hog := now.pods[step.Service], now.pods[step.Hog]
		line.Service = progress.Pod{Limit: service.Limit, Usage: service.Usage}
		line.Hog = progress.Pod{Limit: hog.Limit, Usage: hog.Usage}
		table.Print(out, line)
		at += time.Second
		if !poll.Sleep(ctx, s.pace) {
			return ctx.Err()
		}
		return nil
	})
	for begin := time.Now(); err == nil; {
		last := tail(s.log, 1)[0]
		fmt.Fprintf(out, "still building, %.0f s since the preview ended: %s\n", time.Since(begin).Seconds(), last)
		if !poll.Sleep(ctx, s.progressEvery) {
			err = ctx.Err()
		}
	}
	return err
}

func latency(p pod) string { return progress.Latency(float64(p.p99) / float64(time.Millisecond)) }

// simulate plays one run in the simulator. Its pods are as old as the script wants them before the
// first second that is reported.
func simulate(ctx context.Context, x *script.Script, r script.Run, plan script.Plan, report func(second) error) error {
	policy := sim.Policy(baseline.Static{})
	if r.Mode == "enforce" {
		cfg := mbcas.DefaultConfig()
		cfg.Weights = r.Weights
		policy = mbcas.New(cfg)
	}
	s := setup(x, r, plan)
	run := sim.Start(s, policy)
	run.RunUntil(r.MinAge) // latencies count from then on
	tails := make([]latencies, len(s.Pods))
	for at := r.MinAge + time.Second; at <= s.Length; at += time.Second {
		if err := ctx.Err(); err != nil {
			return err
		}
		run.RunUntil(at)
		partial := run.Partial()
		now := second{pods: map[string]pod{}}
		if n := len(partial.Price); n > 0 {
			now.price = float64(partial.Price[n-1])
		}
		for i := range partial.Pods {
			p := &partial.Pods[i]
			tail := tails[i].add(p.Latency)
			now.pods[p.Spec.Name] = pod{p.Points[len(p.Points)-1], tail.Quantile(0.99)}
		}
		if err := report(now); err != nil {
			return err
		}
	}
	return nil
}

// latencies are those counted until the ends of the last seconds, oldest first.
type latencies []*sim.Latencies

// add is what was counted within the last tailSeconds.
func (l *latencies) add(all *sim.Latencies) sim.Latencies {
	if len(*l) == 0 {
		*l = latencies{new(sim.Latencies)}
	}
	tail := all.Since((*l)[0])
	*l = append(*l, all.Clone())
	*l = (*l)[max(0, len(*l)-tailSeconds):]
	return tail
}

// setup is a run of the script for the simulator.
func setup(x *script.Script, r script.Run, plan script.Plan) sim.Setup {
	cores := runtime.NumCPU()
	s := sim.Setup{
		Machine: sim.Machine{Cores: cores, Allocatable: cpu.Milli(cores) * cpu.Core * allocatablePercent / 100},
		Seed:    seed, Length: r.MinAge + plan.Length(), WarmUp: r.MinAge,
	}
	for _, w := range x.Workloads {
		pod := sim.PodSpec{
			Name: w.Name, Namespace: w.Namespace, Request: w.Request, Limit: w.Limit,
			Priority: x.Classes[w.Class], OptOut: w.OptOut,
		}
		if r.NoLimits && w.Managed() {
			pod.Limit = 0
		} else if r.DefaultLimit > 0 && w.Managed() {
			pod.Limit = r.DefaultLimit
		}
		rates, threads := series(w, plan, r.MinAge)
		if w.Kind == script.Serve {
			pod.Requests = load.Requests{Rate: rates, ServiceTime: x.RequestCPU}
		} else {
			pod.Spin = threads
		}
		s.Pods = append(s.Pods, pod)
	}
	return s
}

// series are the requests per second and the spinning threads of a workload in every second, after
// a time without load.
func series(w script.Workload, plan script.Plan, before time.Duration) (rates, threads load.Series) {
	for at := time.Duration(0); at < before+plan.Length(); at += time.Second {
		rate, spin := 0.0, float64(w.Threads)
		if at >= before {
			step := plan.At(at - before)
			rate = step.Rates[w.Name]
			for _, name := range step.Spin {
				if name == w.Name {
					spin = hogThreads
				}
			}
		}
		rates.Values, threads.Values = append(rates.Values, rate), append(threads.Values, spin)
	}
	for _, s := range []*load.Series{&rates, &threads} {
		s.Step, s.Scale = time.Second, 1
	}
	return rates, threads
}
