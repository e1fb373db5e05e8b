//go:build linux

package fidelity

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mbcas/mbcas/internal/lab/kernelrun"
	"github.com/mbcas/mbcas/internal/lab/mbcas"
	"github.com/mbcas/mbcas/internal/lab/sim"
)

// simulated stands for a kernel: the simulator, after change has altered the set-up.
func simulated(change func(*sim.Setup)) Kernel {
	return func(_ context.Context, s sim.Setup, p sim.Policy) (kernelrun.Result, error) {
		s.Pods = slices.Clone(s.Pods)
		change(&s)
		return kernelrun.Result{Result: sim.Run(s, p)}, nil
	}
}

func same(*sim.Setup) {}

func measure(t *testing.T, kernel Kernel) Report {
	t.Helper()
	r, err := Measure(t.Context(), 12*time.Second, kernel, t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestEqualKernelAgrees(t *testing.T) {
	r := measure(t, simulated(same))
	kinds := map[string]int{}
	for _, f := range r.Figures {
		kinds[f.Measure]++
		if !f.Agrees || f.Kernel != f.Simulated {
			t.Errorf("%s, %s, %s: %v and %v differ", f.Run, f.Pod, f.Measure, f.Kernel, f.Simulated)
		}
	}
	const cases = 9
	if kinds["p99, ms"] != cases || kinds["p50, ms"] != cases || kinds["limit, cores"] != 2 || kinds["throttled"] < cases-2 || r.Disturbed != 0 {
		t.Errorf("figures %v and %d disturbed runs: want the percentiles of %d cases, two limits, and none", kinds, r.Disturbed, cases)
	}
}

// TestTrajectoryMoves: the trajectory that is compared has increases and decreases after the
// warm-up.
func TestTrajectoryMoves(t *testing.T) {
	s := stepping(1)
	r := sim.Run(s, mbcas.New(mbcas.DefaultConfig()))
	increases, decreases := 0, 0
	for i := range r.Pods {
		for _, c := range r.Pods[i].Changes {
			switch {
			case c.At <= s.WarmUp:
			case c.From < c.To:
				increases++
			default:
				decreases++
			}
		}
	}
	if increases == 0 || decreases == 0 {
		t.Errorf("%d increases and %d decreases, want some of both", increases, decreases)
	}
}

// TestDifferencesShow: every request costs half as much again on this kernel, so the service uses
// more everywhere and waits longer; the limits of the batch pod stay.
func TestDifferencesShow(t *testing.T) {
	r := measure(t, simulated(func(s *sim.Setup) { s.Pods[0].Requests.ServiceTime = s.Pods[0].Requests.ServiceTime * 3 / 2 }))
	seen := map[string]bool{}
	for _, f := range r.Figures {
		differs := f.Pod == "service" && (f.Measure == "usage, cores" || f.Run == "alone" && strings.HasPrefix(f.Measure, "p50"))
		if differs && f.Agrees {
			t.Errorf("%s, %s: %v and %v agree", f.Run, f.Measure, f.Kernel, f.Simulated)
		}
		seen[f.Measure] = seen[f.Measure] || differs
		if f.Pod == "batch" && f.Measure == "limit, cores" && f.Kernel.Low <= 0 {
			t.Errorf("the trajectory has no limit: %+v", f)
		}
	}
	if !seen["usage, cores"] || !seen["p50, ms"] {
		t.Errorf("figures of %v only", seen)
	}
}

func TestDisturbedRunsAreRepeated(t *testing.T) {
	const length = 4 * time.Second
	kernel, runs := simulated(same), 0
	sometimes := func(ctx context.Context, s sim.Setup, p sim.Policy) (kernelrun.Result, error) {
		r, err := kernel(ctx, s, p)
		switch runs++; runs {
		case 1:
			r.Others = 2 * maxOthers
		case 4:
			r.Stall = 2 * maxStall
		case 6:
			r.Stolen = 2 * maxStolen
		}
		return r, err
	}
	if r, err := Measure(t.Context(), length, sometimes, t.Logf); err != nil || r.Disturbed != 3 || r.Differing() != 0 {
		t.Errorf("%d disturbed runs, %d figures differ, error %v: want 3, none, none", r.Disturbed, r.Differing(), err)
	}
	always := func(ctx context.Context, s sim.Setup, p sim.Policy) (kernelrun.Result, error) {
		return kernelrun.Result{Others: 1}, nil
	}
	if r, err := Measure(t.Context(), length, always, t.Logf); !errors.Is(err, ErrDisturbed) || r.Disturbed != maxRepeats {
		t.Errorf("%d repeats and error %v, want %d and %v", r.Disturbed, err, maxRepeats, ErrDisturbed)
	}
	broken := func(context.Context, sim.Setup, sim.Policy) (kernelrun.Result, error) {
		return kernelrun.Result{}, errors.New("no cgroups")
	}
	if _, err := Measure(t.Context(), length, broken, t.Logf); err == nil || !strings.Contains(err.Error(), "alone: no cgroups") {
		t.Errorf("a kernel that fails gives %v", err)
	}
}
