package round

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/sense"
)

// TestPressureCountsWhenFull: rounds with pressure that is read rarely while CPUs are idle decide as rounds that
// have it each time, through loads that fill the node at once and leave it, at each interval. They show
// the pressure in between, too.
func TestPressureCountsWhenFull(t *testing.T) {
	const seeds = 20
	starved := 0
	for _, interval := range []time.Duration{time.Second, 5 * time.Second} {
		for seed := range uint64(seeds) {
			worlds := [2]*world{pressureWorld(false), pressureWorld(true)}
			rng := rand.New(rand.NewPCG(seed, 0))
			for tick := range 120 {
				change, of, demand, waits := rng.IntN(4) == 0, rng.IntN(3), cpu.Milli(rng.IntN(6000)), rng.Float64()
				var outs [2]Output
				for i, w := range worlds {
					w.interval, w.cfg.LongestGap = interval, 3*interval
					if change {
						w.pods[of].demand, w.pods[of].waits = demand, waits
					}
					outs[i] = w.tick()
					for j := range outs[i].Decisions {
						d := &outs[i].Decisions[j]
						if i == 1 && !d.Pressure.Known {
							t.Fatalf("interval %v, seed %d, tick %d: no pressure is shown of %s", interval, seed, tick, d.UID)
						}
						if d.Demand > d.Usage && d.ThrottleRatio == 0 {
							starved++
						}
						d.Pressure = sense.Ratio{}
					}
				}
				if diff := cmp.Diff(outs[0].Decisions, outs[1].Decisions); diff != "" {
					t.Fatalf("interval %v, seed %d, tick %d (-always read +rarely):\n%s", interval, seed, tick, diff)
				}
			}
		}
	}
	if starved == 0 {
		t.Error("no pod was starved, so pressure counted nowhere")
	}
}

// pressureWorld is a node with three pods.
func pressureWorld(rarely bool) *world {
	w := newWorld(&fakePod{name: "a", request: 500, declared: 4000}, &fakePod{name: "b", request: 1000, declared: 4000},
		&fakePod{name: "c", request: 1500, declared: 4000})
	w.rarely = rarely
	return w
}
