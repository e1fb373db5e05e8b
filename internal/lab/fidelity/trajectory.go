//go:build linux

package fidelity

import (
	"context"
	"math"
	"runtime"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/lab/kernelrun"
	"github.com/mbcas/mbcas/internal/lab/load"
	"github.com/mbcas/mbcas/internal/lab/mbcas"
	"github.com/mbcas/mbcas/internal/lab/sim"
)

// window is as long as the time between two decreases of a pod: a limit that decreases a tick
// earlier or later has the same means. A trajectory agrees where its means over the windows differ
// by at most nearShare of the kernel's mean, on average.
const window = 5 * time.Second

// trajectory compares limits and usage under MBCAS over time. A stall is small beside a window, so
// it does not count.
func (m *measurement) trajectory(ctx context.Context) error {
	const name = "MBCAS, service steps up and down"
	policy := func() sim.Policy { return mbcas.New(mbcas.DefaultConfig()) }
	var series []windows
	for seed := uint64(1); seed <= minSeeds; seed++ {
		s := stepping(seed)
		r, err := m.run(ctx, name, s, policy, math.Inf(1))
		if err != nil {
			return err
		}
		model := kernelrun.Simulate(s, policy(), r)
		for i := range r.Pods {
			for j, of := range []func(sim.PodPoint) cpu.Milli{limit, usage} {
				k := 2*i + j
				if k == len(series) {
					series = append(series, windows{pod: r.Pods[i].Spec.Name, measure: []string{"limit, cores", "usage, cores"}[j]})
				}
				series[k].real = append(series[k].real, means(s, r.Pods[i].Points, of)...)
				series[k].model = append(series[k].model, means(s, model.Pods[i].Points, of)...)
			}
		}
	}
	for _, w := range series {
		distance, a, b := w.compare()
		m.logf("%s: %s of %s: windows differ by %.1f%% on average", name, w.measure, w.pod, 100*distance)
		m.report.Figures = append(m.report.Figures, Figure{name, w.pod, w.measure, Interval{a, a}, Interval{b, b}, distance <= nearShare})
	}
	return nil
}

// stepping is a service that steps from a fifth of a core to four fifths and back, beside a batch
// pod that wants four cores; both once for each two cores. (At nine tenths its demand would lie at
// its share, and chance would decide whether it is capped.)
func stepping(seed uint64) sim.Setup {
	k := max(1, runtime.NumCPU()/2)
	return sim.Setup{
		Machine: sim.Machine{Cores: runtime.NumCPU()}, Length: 75 * time.Second, WarmUp: 15 * time.Second, Seed: seed,
		Pods: []sim.PodSpec{
			{
				Name: "service", Request: cpu.Milli(500 * k), Limit: cpu.Milli(1000 * k), Threads: 8 * k,
				Requests: load.Requests{
					Rate:        load.Burst{Low: float64(20 * k), High: float64(80 * k), Start: 25 * time.Second, Length: 25 * time.Second},
					ServiceTime: 10 * time.Millisecond,
				},
			},
			{Name: "batch", Request: cpu.Milli(500 * k), Limit: cpu.Milli(2000 * k), Spin: load.Constant(4 * k)},
		},
	}
}

func limit(p sim.PodPoint) cpu.Milli { return p.Limit }
func usage(p sim.PodPoint) cpu.Milli { return p.Usage }

// windows are the means of one series on the kernel and in the simulator, in cores.
type windows struct {
	pod, measure string
	real, model  []float64
}

// compare is the mean difference as a share of the kernel's mean, and both means. Windows that one
// side lacks are infinitely far apart.
func (w windows) compare() (distance, real, model float64) {
	if len(w.real) == 0 || len(w.real) != len(w.model) {
		return math.Inf(1), math.NaN(), math.NaN()
	}
	diff, n := 0.0, float64(len(w.real))
	for i := range w.real {
		diff += math.Abs(w.real[i] - w.model[i])
		real += w.real[i] / n
		model += w.model[i] / n
	}
	return diff / n / real, real, model
}

// means are the means over each window after the warm-up, in cores.
func means(s sim.Setup, points []sim.PodPoint, of func(sim.PodPoint) cpu.Milli) []float64 {
	n := int(window / time.Second)
	var all []float64
	for at := int(s.WarmUp / time.Second); at+n <= len(points); at += n {
		sum := 0.0
		for _, p := range points[at : at+n] {
			sum += of(p).Cores()
		}
		all = append(all, sum/float64(n))
	}
	return all
}
