package disagreement

import (
	"testing"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/market"
)

// TestWaitingPodsClaim: what a pod with a declared limit of 500m keeps beside one of higher priority, which claims 100m
// of the 400m that declared limits give the pod, and what it keeps once that one has waited.
func TestWaitingPodsClaim(t *testing.T) {
	const never = time.Hour
	for name, c := range map[string]struct {
		ago  time.Duration // since the other one waited
		has  cpu.Milli
		high int32
		want cpu.Milli
	}{
		"it waits":                                {0, 500, 800, 375},
		"it waits, and the limit was raised":      {0, 2000, 800, 375},
		"it waits, and the limit is lower":        {0, 100, 800, 375},
		"it has waited":                           {5 * time.Second, 500, 800, 500},
		"it has waited, and the limit is lowered": {5 * time.Second, 380, 800, 380},
		"a limit just below the declared one":     {5 * time.Second, 490, 800, 490},
		"a limit that is lower than the claim":    {5 * time.Second, 100, 800, 375},
		"the claim is over":                       {11 * time.Second, 320, 800, 500},
		"it never waited":                         {never, 320, 800, 500},
		"its priority is the same":                {0, 500, 100, 500},
		"its priority is lower":                   {0, 500, 50, 500},
	} {
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		s, solver := State{}, new(market.Solver)
		keep := func(waits float64, mean cpu.Milli) cpu.Milli {
			pods := []Pod{
				{UID: "low", Request: 100, Demand: 400, Mean: 400, Declared: 500, Ceiling: 2000, Priority: 100, Has: c.has, Limit: 500},
				{UID: "high", Request: 100, Demand: mean, Mean: mean, Declared: 500, Ceiling: 2000, Priority: c.high, Waits: waits, Limit: 500},
			}
			return s.Keep(DefaultConfig(), solver, Tick{Now: now, Elapsed: time.Second, Supply: 2000, Pods: pods})[0].Limit
		}
		var got cpu.Milli
		if c.ago < never {
			got = keep(1, 50)
		}
		if now = now.Add(c.ago); c.ago > 0 {
			got = keep(0, 25) // the estimate falls
		}
		if got != c.want {
			t.Errorf("%s: it keeps %v, want %v", name, got, c.want)
		}
	}
}

// TestFullPodsClaimNothing: a pod that declared limits give all that it can have claims nothing of others, and one whose burst has
// just begun claims by its mean.
func TestFullPodsClaimNothing(t *testing.T) {
	for name, c := range map[string]struct {
		mean, usage, ceiling, want cpu.Milli
	}{"it is at its ceiling": {600, 500, 500, 500}, "its burst begins": {100, 450, 2000, 250}} {
		pods := []Pod{
			{UID: "low", Request: 100, Demand: 400, Mean: 400, Declared: 500, Ceiling: 2000, Priority: 100, Has: 500, Limit: 500},
			{
				UID: "high", Request: 100, Demand: c.usage, Mean: c.mean, Usage: c.usage, Declared: 500, Ceiling: c.ceiling,
				Priority: 800, Limit: 500,
			},
		}
		t0 := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		tick := Tick{Now: t0, Elapsed: time.Second, Supply: 2000, Pods: pods}
		if got := (State{}).Keep(DefaultConfig(), new(market.Solver), tick)[0].Limit; got != c.want {
			t.Errorf("%s: the other one keeps %v, want %v", name, got, c.want)
		}
	}
}

// TestUnevenSharesSaturate: a pod that waits all the time saturates, though the kernel gives it half of what the solver
// does. A service with many threads waits for nearly as long on a full node, and does not.
func TestUnevenSharesSaturate(t *testing.T) {
	for waits, want := range map[float64]bool{0.985: true, 0.97: false} {
		s, saturates := State{}, false
		for range 60 {
			saturates = s.Keep(DefaultConfig(), new(market.Solver), Tick{Elapsed: time.Second, Supply: 2000, Pods: []Pod{
				{UID: "p", Demand: 500, Mean: 500, Usage: 500, Limit: 1000, Declared: 1000, Ceiling: 1000, Priority: 100, Waits: waits},
			}})[0].Saturates
		}
		if saturates != want {
			t.Errorf("it waits for %v of the time: saturates %v", waits, saturates)
		}
	}
}

// TestClaimsAreDividedOnce: what pods of two lower priorities leave to a waiting one is what that claims.
func TestClaimsAreDividedOnce(t *testing.T) {
	by := claims{
		waiting: map[int32]cpu.Milli{800: 600, 200: 100}, given: map[int32]cpu.Milli{800: 50, 200: 1000, 100: 500},
	}
	for priority, want := range map[int32]float64{800: 0, 200: 0.4, 100: 0.6} {
		if got := by.share(by.waiting, priority); got < want-1e-9 || got > want+1e-9 {
			t.Errorf("pods of priority %d leave %v, want %v", priority, got, want)
		}
	}
}
