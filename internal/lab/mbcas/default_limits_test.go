package mbcas

import (
	"slices"
	"testing"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/lab/load"
	"github.com/mbcas/mbcas/internal/lab/sim"
)

// besideAHog is a service whose request fits its load, and a hog with a quarter of that request that starts after a
// minute and a half, each with its limit.
func besideAHog(service, hog cpu.Milli, seed uint64) sim.Setup {
	return sim.Setup{
		Machine: sim.Machine{Cores: 2, Allocatable: 1600}, Length: 4 * time.Minute, WarmUp: 90 * time.Second, Seed: seed,
		Pods: []sim.PodSpec{
			{
				Name: "service", Request: 400, Limit: service,
				Requests: load.Requests{Rate: load.Constant(48), ServiceTime: 8 * time.Millisecond},
			},
			{Name: "hog", Request: 100, Limit: hog, Spin: load.Step{After: 4, Time: 90 * time.Second}},
		},
	}
}

// TestLimitsOfTheNodesSize: with limits as large as the node, or far larger, the p99 of a service beside a hog is within
// 1.2 times that with limits that were written by hand, and the hog is capped in as few decreases.
func TestLimitsOfTheNodesSize(t *testing.T) {
	var ratios []float64
	for seed := range uint64(5) {
		hand := sim.Run(besideAHog(500, 1200, seed), New(DefaultConfig()))
		byHand := hand.Pod("service").Latency.Quantile(0.99)
		for _, size := range []cpu.Milli{2000, 64_000} {
			r := sim.Run(besideAHog(size, size, seed), New(DefaultConfig()))
			ratio := r.Pod("service").Latency.Quantile(0.99).Seconds() / byHand.Seconds()
			ratios = append(ratios, ratio)
			hog := r.Pod("hog")
			if limit := hog.LimitAt(4 * time.Minute); limit >= 1200 || len(hog.Changes) > 6 {
				t.Errorf("seed %d, limits of %v: the hog has %v after %d changes", seed, size, limit, len(hog.Changes))
			}
			if ratio > 1.2 {
				t.Errorf("seed %d, limits of %v: %.2f times the p99 with limits by hand, %v", seed, size, ratio, byHand)
			}
		}
	}
	slices.Sort(ratios)
	t.Logf("p99 over that with limits by hand: %.2f to %.2f, median %.2f", ratios[0], ratios[len(ratios)-1], ratios[len(ratios)/2])
}
