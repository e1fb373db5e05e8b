//go:build linux

// Package fidelity measures how closely the simulator agrees with the kernel of this machine. It
// runs the same set-ups on both: a service beside a batch pod under fixed limits, and the
// trajectory of limits and usage under MBCAS. It measures and does not judge: a figure that differs
// is a row of the report, and no test depends on it.
//
// What it promises, each a test of the same name:
//   - EqualKernelAgrees: against a kernel that behaves as the simulator does, every figure agrees.
//   - DifferencesShow: a kernel that serves slower, or throttles more, shows in the figures
//     concerned.
//   - DisturbedRunsAreRepeated: a run that other work disturbed does not count; too many of them
//     end the measurement.
package fidelity

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/mbcas/mbcas/internal/lab/baseline"
	"github.com/mbcas/mbcas/internal/lab/kernelrun"
	"github.com/mbcas/mbcas/internal/lab/sim"
)

// How much is measured: all of it takes about 11 minutes.
const (
	// Length is that of one run under fixed limits, its warm-up of 2 s included. Longer has
	// narrower intervals.
	Length = 22 * time.Second
	// minSeeds is how many sets of requests each set-up gets; all are taken together. Where they
	// differ, there are maxSeeds: of dozens of figures that each agree with a certainty of 95 %, a
	// few differ by chance.
	minSeeds, maxSeeds = 2, 4
	// maxRepeats is how many disturbed runs may be repeated, over all set-ups.
	maxRepeats = 16
)

// Usage, limits and throttle ratios agree where they differ by at most nearShare of what the kernel
// did, or by nearPoints of a ratio.
//
// A percentile of latency agrees where the simulated one is between 1/nearLatency and nearLatency
// times that of the kernel, within the uncertainty of both: with n requests the true quantile q
// lies with a certainty of 95 % between the observed quantiles q-d and q+d, d = 2 sqrt(q(1-q)/n).
const (
	nearShare   = 0.10
	nearPoints  = 0.03
	nearLatency = 1.25
)

// A run is disturbed when other work used more than maxOthers of the machine, or more than maxStall
// of it within a quarter of a second, or when the hypervisor kept more than maxStolen. Less is
// simulated along. A quiet machine of two cores showed a stall of up to 9 %; one of its cores taken
// away for 0.3 s moved a p99 of 80 ms to between 80 and 220 ms.
const (
	maxOthers = 0.03
	maxStall  = 0.15
	maxStolen = 0.10
)

// ErrDisturbed says that other work disturbed too many runs.
var ErrDisturbed = errors.New("other work on this machine disturbed too many runs; leave the machine alone and run it again")

// Kernel runs a set-up on a real kernel, as kernelrun.Run does.
type Kernel func(context.Context, sim.Setup, sim.Policy) (kernelrun.Result, error)

// Interval is a measured value; Low and High differ where it is uncertain.
type Interval struct{ Low, High float64 }

// Figure is one measured value on the kernel and in the simulator.
type Figure struct {
	Run, Pod, Measure string
	Kernel, Simulated Interval
	Agrees            bool
}

// Report is all that was measured.
type Report struct {
	Figures   []Figure
	Disturbed int // runs that were repeated
}

// Differing is how many figures do not agree.
func (r Report) Differing() int {
	n := 0
	for _, f := range r.Figures {
		if !f.Agrees {
			n++
		}
	}
	return n
}

// Measure runs everything on the kernel and in the simulator, each run under fixed limits for a
// length. On an error the report holds what was measured before.
func Measure(
	ctx context.Context, length time.Duration, kernel Kernel, logf func(format string, args ...any),
) (Report, error) {
	m := &measurement{length: length, kernel: kernel, logf: logf}
	for i, c := range kernelrun.Cases(length, 1) {
		if strings.Contains(c.Name, "limited to 600m") || strings.Contains(c.Name, "limited to 200m") {
			continue // mbcas-lab real runs all
		}
		if err := m.fixedLimits(ctx, i, c.Name); err != nil {
			return m.report, fmt.Errorf("%s: %w", c.Name, err)
		}
	}
	err := m.trajectory(ctx)
	return m.report, err
}

// measurement is a measurement under way.
type measurement struct {
	length time.Duration
	kernel Kernel
	logf   func(string, ...any)
	report Report
}

// fixedLimits compares one case under fixed limits.
func (m *measurement) fixedLimits(ctx context.Context, index int, name string) error {
	var real, model []sim.PodResult
	var figures []Figure
	for runs := 1; runs <= maxSeeds; runs++ {
		setup := kernelrun.Cases(m.length, uint64(runs))[index].Setup
		r, err := m.run(ctx, name, setup, func() sim.Policy { return baseline.Static{} }, maxStall)
		if err != nil {
			return err
		}
		real = add(real, r.Pods)
		model = add(model, kernelrun.Simulate(setup, baseline.Static{}, r).Pods)
		if runs < minSeeds || runs > minSeeds && runs < maxSeeds {
			continue
		}
		figures = compare(name, float64(runs)*(setup.Length-setup.WarmUp).Seconds(), real, model)
		if (Report{Figures: figures}).Differing() == 0 {
			break
		}
	}
	m.report.Figures = append(m.report.Figures, figures...)
	return nil
}

// run repeats a set-up on the kernel until a run is undisturbed.
func (m *measurement) run(ctx context.Context, name string, s sim.Setup, policy func() sim.Policy, stall float64) (kernelrun.Result, error) {
	for {
		r, err := m.kernel(ctx, s, policy())
		if err != nil {
			return r, err
		}
		m.logf("%s, seed %d: others used %.1f%%, up to %.0f%% in a quarter of a second; %.1f%% stolen; requests up to %v late",
			name, s.Seed, 100*r.Others, 100*r.Stall, 100*r.Stolen, r.Late.Round(10*time.Microsecond))
		if r.Others <= maxOthers && r.Stall <= stall && r.Stolen <= maxStolen {
			return r, nil
		}
		if m.report.Disturbed == maxRepeats {
			return r, ErrDisturbed
		}
		m.report.Disturbed++
		m.logf("%s, seed %d: disturbed; it is repeated", name, s.Seed)
	}
}

// add adds the counters of each pod of a run.
func add(pods, run []sim.PodResult) []sim.PodResult {
	for i, p := range run {
		if i == len(pods) {
			pods = append(pods, sim.PodResult{Spec: p.Spec, Counters: sim.Counters{Latency: new(sim.Latencies)}})
		}
		pods[i].Counters.Merge(p.Counters)
	}
	return pods
}

// compare are the figures of pods that ran for so many seconds in all.
func compare(run string, seconds float64, real, model []sim.PodResult) (figures []Figure) {
	for i := range real {
		r, s := &real[i], &model[i]
		exact := func(measure string, a, b float64) {
			figures = append(figures, Figure{run, r.Spec.Name, measure, Interval{a, a}, Interval{b, b}, math.Abs(a-b) <= max(nearShare*a, nearPoints)})
		}
		exact("usage, cores", r.Usage.Seconds()/seconds, s.Usage.Seconds()/seconds)
		if r.Periods > 0 || s.Periods > 0 {
			exact("throttled", r.ThrottleRatio(), s.ThrottleRatio())
		}
		if r.Latency.Count == 0 {
			continue
		}
		for _, q := range []float64{0.5, 0.99} {
			a, b := uncertain(r.Latency, q), uncertain(s.Latency, q)
			figures = append(figures, Figure{run, r.Spec.Name, fmt.Sprintf("p%g, ms", 100*q), a, b, b.High >= a.Low/nearLatency && b.Low <= a.High*nearLatency})
		}
	}
	return figures
}

// uncertain is where the true quantile lies, in ms.
func uncertain(l *sim.Latencies, q float64) Interval {
	d := 2 * math.Sqrt(q*(1-q)/float64(l.Count))
	ms := func(q float64) float64 { return l.Quantile(q).Seconds() * 1000 }
	return Interval{ms(q - d), ms(min(1, q+d))}
}
