package mbcas

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/lab/load"
	"github.com/mbcas/mbcas/internal/lab/sim"
)

// step is a node on which pods that want more than there is come up at once, or grow.
func step(rng *rand.Rand, at time.Duration) sim.Setup {
	cores := []int{4, 8, 16}[rng.IntN(3)]
	s := sim.Setup{Machine: sim.Machine{Cores: cores}, Seed: rng.Uint64()}
	for threads := 0; threads < 2*cores; {
		request, after := cpu.Milli(10*(5+rng.IntN(60))), 1+rng.IntN(cores)
		threads += after
		s.Pods = append(s.Pods, sim.PodSpec{
			Name: fmt.Sprint("p", len(s.Pods)), Request: request, Limit: 2 * request,
			Spin: load.Step{Before: float64(rng.IntN(2)), After: float64(after), Time: at},
		})
	}
	return s
}

// TestLimitsFollowThePrice: when the price has come to rest, or a pod has come to be held later than that, its limit is where it
// stays within the time that docs/theory.md gives: a publication, and the steps of the way down.
func TestLimitsFollowThePrice(t *testing.T) {
	const at = time.Minute
	cfg := DefaultConfig()
	held := 0
	for seed := range uint64(15) {
		s := step(rand.New(rand.NewPCG(seed, 1)), at)
		s.Length = 10 * time.Minute
		r := sim.Run(s, New(cfg))
		rest := time.Duration(len(r.Price)-1) * time.Second
		for rest > 0 && r.Price[rest/time.Second-1] == r.Price[len(r.Price)-1] {
			rest -= time.Second
		}
		rest += time.Second // the point is at the end of its second
		for i := range r.Pods {
			p := &r.Pods[i]
			if len(p.Changes) == 0 || p.Changes[len(p.Changes)-1].From < p.Changes[len(p.Changes)-1].To {
				continue // lifted in the end
			}
			held++
			end := p.Changes[len(p.Changes)-1]
			from, since := cpu.Milli(0), time.Duration(0)
			for _, c := range p.Changes {
				if c.At > rest && from == 0 || c.To > c.From { // where its last way down begins
					from, since = c.From, max(rest, c.At)
					if c.To > c.From {
						from = 0
					}
				}
			}
			if from == 0 {
				continue // it was there when the price came to rest
			}
			steps := math.Ceil(math.Log(from.Cores()/end.To.Cores())/math.Log(cfg.Actuator.MaxDecreaseFactor) - 1e-9)
			bound := cfg.Round.PublishInterval + time.Duration(steps)*cfg.Actuator.DecreaseCooldown
			if took := end.At - since; took > bound {
				t.Errorf("seed %d, %s: from %v to %v in %v, want within %v; the price came to rest at %v: %v", seed, p.Spec.Name, from, end.To, took, bound, rest, p.Changes)
			}
		}
	}
	if held < 20 {
		t.Errorf("%d pods were held in all, which tests little", held)
	}
}

// TestStepsComeToRest: after a step with steady load behind it no limit moves for good.
func TestLimitsSettleAfterAStep(t *testing.T) {
	for seed := range uint64(6) {
		s := step(rand.New(rand.NewPCG(seed, 2)), time.Minute)
		s.Length = 15 * time.Minute
		r := sim.Run(s, New(DefaultConfig()))
		for i := range r.Pods {
			for _, c := range r.Pods[i].Changes {
				if c.At > 10*time.Minute {
					t.Errorf("seed %d, %s: %v to %v at %v", seed, r.Pods[i].Spec.Name, c.From, c.To, c.At)
				}
			}
		}
	}
}

// TestAtItsShare: an hour of constant load, in which the first service wants 1.2 cores and its share is 1.4, lets all limits rest.
func TestDemandAtTheShareIsStable(t *testing.T) {
	serve := func(name string, request cpu.Milli, perSecond float64) sim.PodSpec {
		return sim.PodSpec{Name: name, Request: request, Limit: 7900, Requests: load.Requests{Rate: load.Constant(perSecond), ServiceTime: 10 * time.Millisecond, Distribution: load.Exponential}}
	}
	r := sim.Run(sim.Setup{Machine: sim.Machine{Cores: 8}, Length: time.Hour, Seed: 1, Pods: []sim.PodSpec{
		serve("a", 1100, 120), serve("b", 1200, 200), serve("c", 1300, 200), serve("d", 1000, 160),
		{Name: "hog", Request: 1100, Limit: 7900, Spin: load.Constant(8)},
	}}, New(DefaultConfig()))
	for i := range r.Pods {
		p := &r.Pods[i]
		late := slices.DeleteFunc(slices.Clone(p.Changes), func(c sim.Change) bool { return c.At < time.Minute })
		if len(late) > 6 {
			t.Errorf("%s: %d changes after the first minute, want one in ten minutes at most: %v", p.Spec.Name, len(late), late)
		}
	}
	if len(r.Pod("hog").Changes) == 0 {
		t.Error("the hog was not held, so there was no price")
	}
}

// TestGainMargin: the trim's gain stays a factor of two below the bound of docs/theory.md at the delay of what ships: a tick, a
// publication, and the time between two lowerings.
func TestGainMargin(t *testing.T) {
	c := DefaultConfig()
	delay := (c.Interval + c.Round.PublishInterval + c.Actuator.DecreaseCooldown).Seconds()
	if bound := 2 * math.Sin(math.Pi/(2*(2*delay+1))); c.Round.TrimGain > bound/2 {
		t.Errorf("the gain is %v, and the bound at %v ticks %.3f: want a factor of two", c.Round.TrimGain, delay, bound)
	}
}

func TestIdleNodeThrottlesNobody(t *testing.T) {
	r := sim.Run(sim.Setup{Machine: sim.Machine{Cores: 16}, Length: 2 * time.Minute, WarmUp: 20 * time.Second, Seed: 1, Pods: []sim.PodSpec{
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
		Rate:        load.Burst{Low: low, High: high, Start: 30 * time.Second, Length: 5 * time.Second, Period: 20 * time.Second},
		ServiceTime: 10 * time.Millisecond,
	}
}

func TestDeterministic(t *testing.T) {
	setup := sim.Setup{Machine: sim.Machine{Cores: 4}, Length: time.Minute, Seed: 3, Pods: []sim.PodSpec{
		{Name: "a", Request: 200, Limit: 1000, Requests: bursts(30, 200)},
		{Name: "b", Request: 300, Limit: 2000, Spin: load.Constant(3)},
		{Name: "c", Request: 300, Limit: 2000, Spin: load.Burst{High: 4, Start: 7 * time.Second, Length: 9 * time.Second, Period: 20 * time.Second}},
	}}
	if a, b := sim.Run(setup, New(DefaultConfig())), sim.Run(setup, New(DefaultConfig())); !reflect.DeepEqual(a, b) {
		t.Error("two runs of the same set-up differ")
	}
}
