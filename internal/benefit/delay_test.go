package benefit

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/replay"
	"github.com/mbcas/mbcas/internal/round"
	"github.com/mbcas/mbcas/internal/sense"
	"github.com/mbcas/mbcas/market"
)

// TestQueue: a container with a declared limit of one core that uses 3 cores for 4 s, and 0.2 before and after, would have been
// at that limit for 14 s: 8 core-seconds waited, and 0.8 cores were left for them.
func TestQueue(t *testing.T) {
	var q queue
	busy := 0.0
	for second := range 30 {
		usage := cpu.Milli(200)
		if second >= 5 && second < 9 {
			usage = 3000
		}
		busy += q.serve(usage, 1000, time.Second)
	}
	if math.Abs(busy-14) > 1e-9 || q != 0 {
		t.Errorf("the limit was exhausted for %v s, and %v core-seconds are left: want 14 s and none", busy, q)
	}
}

// TestQueueServesAsALimitDoes: a queue that is served at a limit in small steps is at that limit for as long, whatever the load.
func TestQueueServesAsALimitDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		declared := cpu.Milli(rapid.IntRange(50, 4000).Draw(t, "declared"))
		usages := rapid.SliceOfN(rapid.IntRange(0, 8000), 1, 60).Draw(t, "usages")
		var q queue
		got, want, waits := 0.0, 0.0, 0.0
		const steps = 1000
		for _, u := range usages {
			usage := cpu.Milli(u)
			// usage about at the limit counts either way: 101m of 100m is beyondShare, give or take the rounding of floats
			if usage >= declared && float64(usage) < beyondShare*float64(declared)+0.5 {
				usage = declared - 1
			}
			got += q.serve(usage, declared, time.Second)
			for range steps {
				waits += (usage - declared).Cores() / steps
				if waits > 0 {
					want += 1.0 / steps
				}
				waits = max(0, waits)
			}
		}
		// a round that begins with work to do counts in full where less than a hundredth of the limit is left
		if tolerance := 0.03 * float64(len(usages)); math.Abs(got-want) > tolerance {
			t.Errorf("the limit is exhausted for %.3f s, and in small steps for %.3f s", got, want)
		}
	})
}

// TestDelayed: usage at the limit counts where the container was throttled in half of the periods or more.
func TestDelayed(t *testing.T) {
	for name, tt := range map[string]struct {
		usage cpu.Milli
		ratio float64
		want  time.Duration
	}{
		"at the limit":            {1000, 1, time.Second},
		"for most of the round":   {960, 0.7, 672 * time.Millisecond},
		"in bursts":               {700, 0.9, 0},
		"at the limit, unhurried": {1000, 0.4, 0},
	} {
		r := sense.Rate{Elapsed: time.Second, Usage: tt.usage, ThrottleRatio: tt.ratio}
		if got := delayed(demand.Container{Limit: 1000}, r); got.Round(time.Millisecond) != tt.want {
			t.Errorf("%s: %v is delayed, want %v", name, got, tt.want)
		}
	}
}

// limitedFrame is a round in which a pod uses its declared limit of 500m, throttled in each period.
func limitedFrame(second int, d round.Decision) *replay.Frame {
	f := frame(second, round.NodeDecision{Supply: 3000, Usage: 1000, UsageKnown: true}, []replay.Pod{podOf("web", 500, 0)}, d)
	f.Round.Sample.Pods[0].Containers[0].Stat = kernel.Stat{
		Usage: time.Duration(second) * 500 * time.Millisecond, Periods: uint64(10 * second), Throttled: uint64(10 * second),
	}
	return f
}

// TestAvoidable: delays are avoidable where the decision does not lower the limit and nothing binds it. A price does so for
// a load that lasts for a minute.
func TestAvoidable(t *testing.T) {
	for name, tt := range map[string]struct {
		decision round.Decision
		rounds   int
		want     time.Duration
	}{
		"raised":               {round.Decision{Demand: 900, Limit: 1200}, 100, 50 * time.Second},
		"kept":                 {round.Decision{Demand: 900, Limit: 450, Bound: market.ByPrice}, 10, 5 * time.Second},
		"lowered":              {round.Decision{Demand: 900, Limit: 440, Bound: market.ByPrice}, 10, 0},
		"bound by the ceiling": {round.Decision{Demand: 900, Limit: 600, Bound: market.ByCeiling}, 10, 0},
		"overloaded":           {round.Decision{Demand: 900, Limit: 600, Bound: market.ByPrice}, 100, 29500 * time.Millisecond},
	} {
		c := NewCounter(everything)
		for second := range tt.rounds + 1 {
			c.Add(limitedFrame(second, tt.decision))
		}
		f := c.Totals().Sum
		if want := time.Duration(tt.rounds) * 500 * time.Millisecond; f.Delayed != want || f.Avoidable != tt.want || f.Avoided != 0 {
			t.Errorf("%s: %v delayed, %v avoidable, %v avoided; want %v, %v and none", name, f.Delayed, f.Avoidable, f.Avoided, want, tt.want)
		}
	}
}

// TestGapDropsTheQueue: what a pod has used in a gap is not known, so no work waits after it.
func TestGapDropsTheQueue(t *testing.T) {
	c := NewCounter(everything)
	pods := []replay.Pod{podOf("web", 2000, 0)}
	node := round.NodeDecision{Supply: 3000, Usage: 1000, UsageKnown: true}
	for _, second := range []int{0, 1, 2, 60} {
		c.Add(frame(second, node, pods, round.Decision{Demand: 800, Limit: 2000}))
	}
	if q := c.pods["web"].queues["web"]; q != 0 {
		t.Errorf("%v core-seconds wait after a gap", q)
	}
}
