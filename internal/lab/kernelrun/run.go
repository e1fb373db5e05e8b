//go:build linux

// Package kernelrun runs a simulator's set-up on the kernel of this machine: processes in cgroups,
// the same requests at the same times, under the same policy. The result has the form of a
// simulation's, so that the two can be compared.
//
// It needs root, a cgroup hierarchy with CPU bandwidth control, v1 or v2, and Perl: every thread is
// a process of its own, and a program of this language would bring threads of its runtime along. It
// promises, each a test:
//   - LeavesNothing: no process and no cgroup is left behind, whether the run ends, fails or is
//     cancelled.
//   - SameRequests: the processes are asked for what the simulation is asked for.
//   - StallsShow: what others take within a quarter of a second shows, however little of the run it
//     is.
//   - GapsAreKept: what the hypervisor keeps of a core is known by core and time, so that the
//     simulator can lose it, too.
package kernelrun

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/lab/sim"
)

// ErrUnsupported marks a machine without what a run needs.
var ErrUnsupported = errors.New("this machine cannot run real cgroups")

// Supported says why this machine cannot run set-ups; nil where it can.
func Supported() error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("%w: it takes root", ErrUnsupported)
	}
	if out, err := exec.Command(interpreter, "-MTime::HiRes", "-e", "").CombinedOutput(); err != nil {
		return fmt.Errorf("%w: it takes Perl with Time::HiRes (Debian: package perl): %w: %s", ErrUnsupported, err, bytes.TrimSpace(out))
	}
	_, err := findTree()
	return err
}

// Result is a run for real.
type Result struct {
	sim.Result
	// Others is the CPU that everything else on the machine used, and Stolen what its hypervisor
	// kept from it, as shares of the machine. They say how far the run can be believed.
	Others, Stolen float64
	// Stall is the most that others used within a quarter of a second, as a share of the machine. A
	// mean hides what stands still for as long as that, and a 99th percentile shows little else.
	Stall float64
	// Gaps are when the hypervisor kept a core, warm-up included, as far as looks now and then at
	// what the kernel tells in units of 10 ms can say.
	Gaps []sim.Gap
	// Late is how late requests were sent, warm-up included: 99 of 100 of each pod were sent
	// sooner. It counts as latency.
	Late time.Duration
}

// lead is how long the processes have to start before the first request comes.
const lead = 2 * time.Second

// Run runs a set-up of one node with as many cores as this machine.
func Run(ctx context.Context, s sim.Setup, policy sim.Policy) (out Result, err error) {
	if err := Supported(); err != nil {
		return out, err
	}
	if s.Machine.Cores != runtime.NumCPU() {
		return out, fmt.Errorf("the set-up is for %d cores, and this machine has %d", s.Machine.Cores, runtime.NumCPU())
	}
	switch m, err := readMachine(); {
	case err != nil:
		return out, err
	case len(m.stolen) != s.Machine.Cores:
		return out, fmt.Errorf("this process may use %d of the machine's %d CPUs, and other work cannot be attributed to CPUs: run it without taskset or cpuset", s.Machine.Cores, len(m.stolen))
	}
	for _, spec := range s.Pods {
		if spec.Start != 0 || spec.End != 0 || spec.System {
			return out, fmt.Errorf("pod %s: pods that come and go, and system use, are for the simulator only", spec.Name)
		}
	}
	// The processes die with the thread that started them (Pdeathsig), so it must not be any that
	// comes and goes.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	tree, err := makeTree()
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, tree.remove()) }()

	begin, err := monotonicIn(lead)
	if err != nil {
		return out, err
	}
	start := time.Now().Add(lead)
	pods := make([]*pod, 0, len(s.Pods))
	defer func() {
		for _, p := range pods {
			p.stop()
		}
	}()
	for _, spec := range s.Pods {
		p, err := newPod(tree, s, spec, begin)
		pods = append(pods, p)
		if err != nil {
			return out, fmt.Errorf("pod %s: %w", spec.Name, err)
		}
	}
	if late := time.Since(start); late > 0 {
		return out, fmt.Errorf("the processes took %v to start, want less than %v: this machine is too busy", (lead + late).Round(time.Millisecond), lead)
	}
	for _, p := range pods {
		p.begin(s, start)
	}
	r := &runner{setup: s, policy: policy, pods: pods, start: start, stall: stall{cores: s.Machine.Cores}}
	if err := r.run(ctx); err != nil {
		return out, err
	}
	return r.finish()
}

// runner is one run in progress.
type runner struct {
	setup  sim.Setup
	policy sim.Policy
	pods   []*pod
	start  time.Time

	machine, machineBefore machine
	stall                  stall
	gaps                   gaps
	snapshot               sim.Snapshot
	pending                []action
	out                    Result
}

// gaps is what the hypervisor has kept of each core so far.
type gaps struct {
	stolen []time.Duration // by core, at the last sample
	moved  []time.Duration // when that was last more than before
	all    []sim.Gap
}

// gapPiece is how long the CPU is taken for where it is taken a little at a time, as by daemons.
const gapPiece = 2 * time.Millisecond

// gapSpread is how long ago the first of the pieces of one jiffy may have been kept.
const gapSpread = 500 * time.Millisecond

// record takes what was kept of each core until now. The kernel hears of it only when the core is
// back, so what was kept at once ends now. One jiffy more may have been kept a little at a time: it
// counts as pieces, spread over the time since there was one before.
func (g *gaps) record(now time.Duration, stolen []time.Duration) {
	if g.stolen == nil {
		g.stolen, g.moved = slices.Clone(stolen), make([]time.Duration, len(stolen))
	}
	for core := range stolen {
		kept := min(stolen[core]-g.stolen[core], now) // no more than since the run began
		if kept <= 0 {
			continue
		}
		since, size := now-kept, kept
		if kept == jiffy {
			since, size = max(g.moved[core], now-gapSpread), gapPiece
		}
		count := kept / size
		for n := count; n > 0; n-- {
			g.all = append(g.all, sim.Gap{Core: core, At: now - n*(now-since)/count, Duration: size})
		}
		g.stolen[core], g.moved[core] = stolen[core], now
	}
}

// stretch is what Outcome.Stall is measured over, wherever it begins, to within the time between
// two samples. The kernel counts busy time of a CPU by ticks, so that a shorter one is uncertain.
const (
	stallWindow    = 250 * time.Millisecond
	sampleInterval = 50 * time.Millisecond
)

// sample is how much others had used until a time, counted from any time before.
type sample struct{ at, used time.Duration }

// stall is the most that others used within a stretch so far.
type stall struct {
	cores   int
	samples []sample // of the last stretch
	max     float64
}

// add takes the next sample, and keeps of those before only what the next stretch may begin with.
func (s *stall) add(now sample) {
	s.samples = append(s.samples, now)
	begin := 0
	for begin+1 < len(s.samples) && now.at-s.samples[begin+1].at >= stallWindow {
		begin++
	}
	s.samples = slices.Delete(s.samples, 0, begin)
	if first := s.samples[0]; now.at-first.at >= stallWindow {
		s.max = max(s.max, (now.used-first.used).Seconds()/((now.at-first.at).Seconds()*float64(s.cores)))
	}
}

type action struct {
	at time.Duration
	sim.Action
}

func (r *runner) now() time.Duration { return time.Since(r.start) }

// run follows the clock: calls of the policy, changes that take effect, points of the series.
func (r *runner) run(ctx context.Context) error {
	every := cmp.Or(r.setup.Interval, time.Second)
	decide, point, warm, watch := time.Duration(0), every, r.setup.WarmUp, time.Duration(0)
	for {
		next := min(decide, point, watch, r.setup.Length)
		if warm >= 0 {
			next = min(next, warm)
		}
		for _, a := range r.pending {
			next = min(next, a.at)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Until(r.start.Add(next))):
		}
		r.pending = slices.DeleteFunc(r.pending, func(a action) bool {
			if a.at > next {
				return false
			}
			r.apply(a.Action)
			return true
		})
		if err := r.read(); err != nil {
			return err
		}
		if warm >= 0 && next >= warm {
			warm = -1
			r.machineBefore = r.machine
			for _, p := range r.pods {
				p.warm = p.now
			}
		}
		if next >= watch {
			r.gaps.record(r.snapshot.Now, r.machine.stolen)
			if warm < 0 {
				r.stall.add(r.others())
			}
			watch += sampleInterval
		}
		if next >= point {
			r.point(every)
			point += every
		}
		if next >= r.setup.Length {
			return nil
		}
		if next >= decide {
			actions, again := r.policy.Decide(&r.snapshot)
			for _, a := range actions {
				r.pending = append(r.pending, action{next + a.Delay, a})
			}
			decide = max(again, next+time.Millisecond)
		}
	}
}

func (r *runner) apply(a sim.Action) {
	p := r.pods[a.Pod]
	if a.Request != 0 || a.Replicas != 0 {
		p.failed = errors.Join(p.failed, errors.New("policies that change requests or replicas are for the simulator only"))
		return
	}
	if a.Class != nil {
		if err := p.group.setClass(*a.Class, p.spec.Request); err != nil {
			p.failed = errors.Join(p.failed, err)
		}
		return
	}
	if a.Limit == p.limit {
		return
	}
	p.changes = append(p.changes, sim.Change{At: r.now(), From: p.limit, To: a.Limit})
	p.limit = a.Limit
	if err := p.group.setLimit(a.Limit); err != nil {
		p.failed = errors.Join(p.failed, err)
	}
}

// read brings all counters up to date.
func (r *runner) read() error {
	m, err := readMachine()
	if err != nil {
		return err
	}
	r.machine = m
	r.snapshot = sim.Snapshot{
		Now: r.now(), Cores: r.setup.Machine.Cores,
		Allocatable: cmp.Or(r.setup.Machine.Allocatable, cpu.Milli(r.setup.Machine.Cores)*cpu.Core),
		Period:      period, Usage: m.busy, Pods: r.snapshot.Pods[:0],
	}
	for i, p := range r.pods {
		if p.failed != nil {
			return fmt.Errorf("pod %s: %w", p.spec.Name, p.failed)
		}
		c, err := p.group.read()
		if err != nil {
			return fmt.Errorf("pod %s: %w", p.spec.Name, err)
		}
		p.now = c
		r.snapshot.Kubepods += c.Usage
		r.snapshot.Pods = append(r.snapshot.Pods, sim.PodSnapshot{
			ID: i, Spec: &p.spec, Age: r.snapshot.Now, Request: p.spec.Request, Limit: p.limit,
			Usage: c.Usage, Periods: c.Periods, Throttled: c.Throttled, ThrottledTime: c.ThrottledTime, Pressure: c.pressure,
		})
	}
	return nil
}

// others is what everything but the pods has used until now.
func (r *runner) others() sample {
	used := r.machine.busy
	for _, p := range r.pods {
		used -= p.now.Usage
	}
	return sample{r.snapshot.Now, used}
}

func (r *runner) point(every time.Duration) {
	for _, p := range r.pods {
		spent := p.now.Since(p.before.Counters)
		p.before = p.now
		p.points = append(p.points, sim.PodPoint{
			Usage: cpu.FromUsage(spent.Usage, every), Limit: p.limit, Throttle: spent.ThrottleRatio(),
		})
	}
	if priced, ok := r.policy.(sim.MarketPolicy); ok {
		r.out.Price = append(r.out.Price, priced.Price())
	}
}

// finish collects what the processes say.
func (r *runner) finish() (Result, error) {
	length := (r.setup.Length - r.setup.WarmUp).Seconds() * float64(r.setup.Machine.Cores)
	spent := r.machine.busy - r.machineBefore.busy
	for _, p := range r.pods {
		report, err := p.collect(r.setup)
		if err != nil {
			return r.out, fmt.Errorf("pod %s: %w", p.spec.Name, err)
		}
		r.out.Late = max(r.out.Late, p.late())
		res := sim.PodResult{Spec: p.spec, Changes: p.changes, Points: p.points, Counters: p.now.Since(p.warm.Counters)}
		spent -= res.Usage
		res.Served, res.Useful, res.Backlog = report.Served, report.Useful, report.Backlog
		for _, q := range p.arrivals {
			if q.At >= r.setup.WarmUp {
				res.Arrived++
				res.Offered += q.Work
			}
		}
		res.Latency = new(sim.Latencies)
		for _, l := range report.Latencies {
			res.Latency.Add(l)
		}
		r.out.Pods = append(r.out.Pods, res)
	}
	r.out.Others = max(0, spent.Seconds()/length)
	r.out.Stall = r.stall.max
	for core, stolen := range r.machine.stolen {
		r.out.Stolen += (stolen - r.machineBefore.stolen[core]).Seconds() / length
	}
	r.out.Gaps = r.gaps.all
	return r.out, nil
}
