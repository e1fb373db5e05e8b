//go:build linux

// Package fidelity holds the simulator against the kernel of this machine. It wants the machine for itself, so
// it is a suite of its own (tools/testall).
package fidelity

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/mbcas/mbcas/internal/lab/kernelrun"
	"github.com/mbcas/mbcas/internal/lab/sim"
)

// Use and throttling agree where they differ by at most a tenth of what was measured, or 3 points of a share.
//
// A percentile of the simulated latency agrees where it is between 1/1.25 and 1.25 times the measured one, give or take
// what both owe to chance: of n requests, the true quantile q lies with 95 % certainty between the quantiles q - d and
// q + d of what was seen, d = 2 sqrt(q (1-q) / n). (The same requests meet another phase of a hog each time: a
// simulated p99 of 20 s moves by a third with a thousandth of other load.)
const (
	near    = 0.10
	points  = 0.03
	latency = 1.25
)

// A row is played with two sets of requests, and what came is taken together. Of dozens of figures that are each that
// certain one is off now and then: a row that differs is played with two more, and all four taken together decide.
const (
	first = 2
	all   = 4
)

// disturbed is how much of the machine others may use before a run says nothing (less than that is simulated along), and stalled
// how much of it in any quarter of a second; it is then played again. A quiet machine of two cores showed up to 9 % in a quarter of a
// second; one of its cores taken away for 0.3 s, which is less than 1 % of a run, moved a p99 of 80 ms to between 80 and 220 ms.
//
// What the hypervisor keeps is simulated when it was kept: with 60 ms of one core taken every second, p99 beside the hog was 122 ms for
// real and in the simulator, 91 ms undisturbed. With more than kept of the machine it was not tried.
const (
	disturbed = 0.03
	stalled   = 0.15
	kept      = 0.10
	anyStall  = math.MaxFloat64
)

// again is how many runs of the whole suite may be played again.
var again = 16

// still changes nothing.
type noChanges struct{}

func (noChanges) Decide(r *sim.Snapshot) ([]sim.Action, time.Duration) { return nil, r.Now + time.Hour }

func TestFidelity(t *testing.T) {
	if err := kernelrun.Supported(); err != nil {
		t.Skip(err)
	}
	for i, c := range table(1) {
		if strings.Contains(c.Name, "held to 600m") || strings.Contains(c.Name, "held to 200m") {
			continue // beyond its neighbours; mbcas-lab real plays them all
		}
		t.Run(c.Name, func(t *testing.T) {
			var real, model []pod
			for runs := 0; ; {
				setup := table(uint64(runs + 1))[i].Setup
				r := undisturbed(t, setup, func() sim.Policy { return noChanges{} }, stalled)
				real, model = add(real, r.Pods), add(model, kernelrun.Simulate(setup, noChanges{}, r).Pods)
				if runs++; runs != first && runs != all {
					continue
				}
				wrong := differences(t, float64(runs)*(setup.Length-setup.WarmUp).Seconds(), real, model)
				if len(wrong) == 0 {
					return
				}
				t.Logf("after %d runs: %s", runs, strings.Join(wrong, "; "))
				if runs == all {
					t.Fatalf("%d undisturbed runs, taken together, differ from the simulator", all)
				}
			}
		})
	}
}

// undisturbed plays a set-up for real until little disturbs it, and others never use more of the machine for a quarter of a second.
func undisturbed(t *testing.T, s sim.Setup, policy func() sim.Policy, stall float64) kernelrun.Result {
	t.Helper()
	for ; again >= 0; again-- {
		r, err := kernelrun.Run(t.Context(), s, policy())
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("others used %.1f%% of the machine, up to %.0f%% in a quarter of a second; %.1f%% was stolen; 99 of 100 requests came up to %v late",
			100*r.Others, 100*r.Stall, 100*r.Stolen, r.Late.Round(10*time.Microsecond))
		if r.Others <= disturbed && r.Stall <= stall && r.Stolen <= kept {
			return r
		}
		t.Log("too much; it is played again")
	}
	t.Fatal("disturbed too often: leave the machine alone meanwhile")
	return kernelrun.Result{}
}

func table(seed uint64) []kernelrun.Case { return kernelrun.Cases(22*time.Second, seed) }

// pod is what became of a pod in all runs.
type pod struct {
	name               string
	usage              time.Duration
	periods, throttled uint64
	latency            sim.Latencies
}

func add(pods []pod, run []sim.PodResult) []pod {
	if pods == nil {
		pods = make([]pod, len(run))
	}
	for i := range run {
		p, more := &pods[i], &run[i]
		p.name = more.Spec.Name
		p.usage += more.Usage
		p.periods += more.Periods
		p.throttled += more.Throttled
		p.latency.Merge(more.Latency)
	}
	return pods
}

// differences are those of pods that were measured for so many seconds in all.
func differences(t *testing.T, length float64, real, model []pod) (wrong []string) {
	t.Helper()
	for i := range real {
		r, m := &real[i], &model[i]
		share := func(what string, r, m float64) {
			if math.Abs(r-m) > max(near*r, points) {
				wrong = append(wrong, fmt.Sprintf("%s %.3g for real and %.3g in the simulator", what, r, m))
			}
		}
		share(r.name+" use", r.usage.Seconds()/length, m.usage.Seconds()/length)
		share(r.name+" throttled", ratio(r.throttled, r.periods), ratio(m.throttled, m.periods))
		if r.latency.Count == 0 {
			continue
		}
		for _, q := range []float64{0.5, 0.99} {
			t.Logf("%s p%g: %v for real, %v in the simulator", r.name, 100*q, r.latency.Quantile(q), m.latency.Quantile(q))
			low, high := between(&r.latency, q)
			modelLow, modelHigh := between(&m.latency, q)
			if modelHigh.Seconds() < low.Seconds()/latency || modelLow.Seconds() > high.Seconds()*latency {
				wrong = append(wrong, fmt.Sprintf("%s p%g between %v and %v for real, between %v and %v in the simulator",
					r.name, 100*q, low, high, modelLow, modelHigh))
			}
		}
	}
	return wrong
}

// between is where the true quantile lies.
func between(l *sim.Latencies, q float64) (low, high time.Duration) {
	chance := 2 * math.Sqrt(q*(1-q)/float64(l.Count))
	return l.Quantile(q - chance), l.Quantile(min(1, q+chance))
}

func ratio(part, whole uint64) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}
