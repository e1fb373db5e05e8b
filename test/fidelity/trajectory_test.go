//go:build linux

package fidelity

import (
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/lab/kernelrun"
	"github.com/mbcas/mbcas/internal/lab/load"
	"github.com/mbcas/mbcas/internal/lab/mbcas"
	"github.com/mbcas/mbcas/internal/lab/sim"
)

// Trajectories agree where limit and use, as means over every window, differ by at most a tenth of their mean over the run, on
// average over the windows of two runs with different requests. A window is as long as the time between two lowerings of a pod: a
// limit that comes down a tick earlier or later goes the same way.
const window = 5 * time.Second

// TestTrajectories plays what ships, for real and in the simulator: a service that steps from a fifth of a core to four fifths, and
// back, beside a hog that wants four cores; both twice for each further two cores. (At nine tenths its demand would lie at its share,
// and whether it is held or not hang on a thread.)
func TestTrajectories(t *testing.T) {
	if err := kernelrun.Supported(); err != nil {
		t.Skip(err)
	}
	ships := func() sim.Policy { return mbcas.New(mbcas.DefaultConfig()) }
	real, model := map[string][]float64{}, map[string][]float64{}
	raised, lowered := false, false
	for seed := uint64(1); seed <= first; seed++ {
		s := swing(seed)
		r := undisturbed(t, s, ships, anyStall) // it is little of a window
		m := kernelrun.Simulate(s, ships(), r)
		for i, p := range r.Pods {
			name := p.Spec.Name
			real[name+" limit"] = append(real[name+" limit"], means(s, p.Points, limit)...)
			model[name+" limit"] = append(model[name+" limit"], means(s, m.Pods[i].Points, limit)...)
			real[name+" use"] = append(real[name+" use"], means(s, p.Points, use)...)
			model[name+" use"] = append(model[name+" use"], means(s, m.Pods[i].Points, use)...)
			for _, c := range p.Changes {
				if c.At > s.WarmUp {
					raised, lowered = raised || c.From < c.To, lowered || c.To < c.From
				}
			}
		}
	}
	if !raised || !lowered {
		t.Errorf("limits were raised: %v, and lowered: %v; without both this tests little", raised, lowered)
	}
	for what := range real {
		if n := len(real[what]); n != first*12 || len(model[what]) != n {
			t.Fatalf("%s: %d windows for real and %d in the simulator, want %d", what, n, len(model[what]), first*12)
		}
		d := apart(real[what], model[what])
		t.Logf("%s: %.1f%% apart", what, 100*d)
		if !(d <= near) {
			t.Errorf("%s is %.1f%% apart: for real %.2f, in the simulator %.2f", what, 100*d, real[what], model[what])
		}
	}
}

// swing is the set-up.
func swing(seed uint64) sim.Setup {
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
			{Name: "hog", Request: cpu.Milli(500 * k), Limit: cpu.Milli(2000 * k), Spin: load.Constant(4 * k)},
		},
	}
}

func limit(p sim.PodPoint) cpu.Milli { return p.Limit }
func use(p sim.PodPoint) cpu.Milli   { return p.Usage }

// means are the means over each window behind the warm-up, in cores.
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

// apart is the mean difference, as a share of the mean of a.
func apart(a, b []float64) float64 {
	diff, sum := 0.0, 0.0
	for i := range a {
		diff += math.Abs(a[i] - b[i])
		sum += a[i]
	}
	return diff / sum
}
