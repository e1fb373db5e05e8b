package production

import (
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/sim"
	"github.com/mbcas/mbcas/internal/sim/load"
)

// TestSettlesWithinTheBound: after a step that makes CPU scarce, the last limit is set within the time that docs/theory.md
// gives: two ticks to see it, the estimates' way to a tenth, and the steps of the way down.
func TestSettlesWithinTheBound(t *testing.T) {
	const step = 60 * time.Second
	cfg := DefaultConfig()
	r := sim.Run(sim.Setup{Machine: sim.Machine{Cores: 8}, Length: 5 * time.Minute, Seed: 1, Pods: []sim.Spec{
		{Name: "a", Request: 500, Limit: 1000, Spin: load.Constant(8)},
		{Name: "b", Request: 500, Limit: 1000, Spin: load.Step{After: 8, Time: step}},
		{Name: "c", Request: 500, Limit: 1000, Spin: load.Step{After: 8, Time: step}},
	}}, New(cfg))
	lowest := cpu.Milli(math.MaxInt64)
	var last time.Duration
	for i := range r.Pods {
		p := &r.Pods[i]
		for _, c := range p.Changes {
			last = max(last, c.At)
		}
		end := p.Changes[len(p.Changes)-1].To
		lowest = min(lowest, end)
		if share := 8000 * 0.9 / 3; math.Abs(float64(end)-share) > 0.2*share {
			t.Errorf("%s ends with %v: want about a third of the supply, %.0fm", p.Spec.Name, end, share)
		}
	}
	steps := math.Ceil(math.Log(8000/float64(lowest)) / math.Log(cfg.Actuator.LowerStep))
	bound := time.Duration((2 + math.Log(0.1)/math.Log(1-cfg.Round.Demand.Rise)) * float64(time.Second))
	bound += time.Duration(steps) * cfg.Actuator.LowerCooldown
	if took := last - step; took <= 0 || took > bound {
		t.Errorf("the last limit was set %v after the step, want within %v", took, bound)
	}
}

func TestIdleNodeThrottlesNobody(t *testing.T) {
	r := sim.Run(sim.Setup{Machine: sim.Machine{Cores: 16}, Length: 2 * time.Minute, Warm: 20 * time.Second, Seed: 1, Pods: []sim.Spec{
		{Name: "a", Request: 500, Limit: 1000, Requests: bursts(15, 120)},
		{Name: "b", Request: 500, Limit: 1000, Requests: bursts(120, 15)},
	}}, New(DefaultConfig()))
	for _, p := range r.Pods {
		if p.Throttled > 0 || len(p.Changes) != 1 {
			t.Errorf("%s was throttled in %d periods, and its limit changed %d times: want none, and one", p.Spec.Name, p.Throttled, len(p.Changes))
		}
	}
}

func bursts(low, high float64) load.Requests {
	return load.Requests{
		Rate:    load.Burst{Low: low, High: high, Start: 30 * time.Second, Length: 5 * time.Second, Every: 20 * time.Second},
		Service: 10 * time.Millisecond,
	}
}

func TestDeterministic(t *testing.T) {
	setup := sim.Setup{Machine: sim.Machine{Cores: 4}, Length: time.Minute, Seed: 3, Pods: []sim.Spec{
		{Name: "a", Request: 200, Limit: 1000, Requests: bursts(30, 200)},
		{Name: "b", Request: 300, Limit: 2000, Spin: load.Constant(3)},
		{Name: "c", Request: 300, Limit: 2000, Spin: load.Burst{High: 4, Start: 7 * time.Second, Length: 9 * time.Second, Every: 20 * time.Second}},
	}}
	if a, b := sim.Run(setup, New(DefaultConfig())), sim.Run(setup, New(DefaultConfig())); !reflect.DeepEqual(a, b) {
		t.Error("two runs of the same set-up differ")
	}
}
