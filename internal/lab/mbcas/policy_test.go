package mbcas

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/lab/load"
	"github.com/mbcas/mbcas/internal/lab/sim"
	"github.com/mbcas/mbcas/internal/round"
	"github.com/mbcas/mbcas/internal/testing/atlength"
	"github.com/mbcas/mbcas/market"
)

// step is a node on which pods that want more CPU than there is start to use it at once.
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

// TestLimitsFollowThePrice: once the price is constant, or a pod is capped later than that, the
// pod's limit reaches its final value within the time of docs/theory.md: one publication, and the
// steps of the decrease.
func TestLimitsFollowThePrice(t *testing.T) {
	cfg := DefaultConfig()
	seeds, length := atlength.Of(uint64(8), 16), atlength.Of(5*time.Minute, 10*time.Minute)
	capped := 0
	for seed := range seeds {
		s := step(rand.New(rand.NewPCG(seed, 1)), time.Minute)
		s.Length = length
		r := sim.Run(s, New(cfg))
		constant := time.Duration(len(r.Price)-1) * time.Second
		for constant > 0 && r.Price[constant/time.Second-1] == r.Price[len(r.Price)-1] {
			constant -= time.Second
		}
		constant += time.Second // a point is at the end of its second
		for i := range r.Pods {
			p := &r.Pods[i]
			if len(p.Changes) == 0 || p.Changes[len(p.Changes)-1].From < p.Changes[len(p.Changes)-1].To {
				continue // uncapped at the end
			}
			capped++
			end := p.Changes[len(p.Changes)-1]
			from, since := lastDecrease(p.Changes, constant)
			if from == 0 {
				continue // it had its final limit when the price became constant
			}
			steps := math.Ceil(math.Log(from.Cores()/end.To.Cores())/math.Log(cfg.Lifecycle.Actuator.MaxDecreaseFactor) - 1e-9)
			bound := cfg.Round.PublishInterval + time.Duration(steps)*cfg.Lifecycle.Actuator.DecreaseCooldown
			if took := end.At - since; took > bound {
				t.Errorf("seed %d, %s: from %v to %v in %v, want within %v; the price is constant from %v: %v",
					seed, p.Spec.Name, from, end.To, took, bound, constant, p.Changes)
			}
		}
	}
	if capped < 8 {
		t.Errorf("%d pods were capped in all, which tests little", capped)
	}
}

// lastDecrease is where the last run of decreases after a time starts; 0 where there is none.
func lastDecrease(changes []sim.Change, after time.Duration) (from cpu.Milli, since time.Duration) {
	for _, c := range changes {
		if c.At > after && from == 0 || c.To > c.From {
			from, since = c.From, max(after, c.At)
			if c.To > c.From {
				from = 0
			}
		}
	}
	return from, since
}

// TestLimitsSettleAfterAStep: after a step to steady load, limits stop changing.
func TestLimitsSettleAfterAStep(t *testing.T) {
	seeds, length := atlength.Of(uint64(2), 6), atlength.Of(8*time.Minute, 15*time.Minute)
	settled := atlength.Of(5*time.Minute, 10*time.Minute)
	for seed := range seeds {
		s := step(rand.New(rand.NewPCG(seed, 2)), time.Minute)
		s.Length = length
		r := sim.Run(s, New(DefaultConfig()))
		for i := range r.Pods {
			for _, c := range r.Pods[i].Changes {
				if c.At > settled {
					t.Errorf("seed %d, %s: %v to %v at %v", seed, r.Pods[i].Spec.Name, c.From, c.To, c.At)
				}
			}
		}
	}
}

// TestDemandAtTheShareIsStable: constant load in which the first service wants 1.2 cores and its
// share is 1.4 changes no limit more than once in ten minutes. With MBCAS_LONG=1 it lasts an hour.
func TestDemandAtTheShareIsStable(t *testing.T) {
	length := atlength.Of(11*time.Minute, time.Hour)
	serve := func(name string, request cpu.Milli, perSecond float64) sim.PodSpec {
		return sim.PodSpec{Name: name, Request: request, Limit: 7900, Requests: load.Requests{
			Rate: load.Constant(perSecond), ServiceTime: 10 * time.Millisecond, Distribution: load.Exponential,
		}}
	}
	r := sim.Run(sim.Setup{Machine: sim.Machine{Cores: 8}, Length: length, Seed: 1, Pods: []sim.PodSpec{
		serve("a", 1100, 120), serve("b", 1200, 200), serve("c", 1300, 200), serve("d", 1000, 160),
		{Name: "batch", Request: 1100, Limit: 7900, Spin: load.Constant(8)},
	}}, New(DefaultConfig()))
	for i := range r.Pods {
		p := &r.Pods[i]
		late := slices.DeleteFunc(slices.Clone(p.Changes), func(c sim.Change) bool { return c.At < time.Minute })
		if len(late) > int(length/(10*time.Minute)) {
			t.Errorf("%s: %d changes after the first minute, want one in ten minutes at most: %v", p.Spec.Name, len(late), late)
		}
	}
	if len(r.Pod("batch").Changes) == 0 {
		t.Error("the batch pod was not capped, so there was no price")
	}
}

// contended is a node of spinning and bursty pods that demand more than there is. The largest ends halfway, so
// the shares of the others grow.
func contended(rng *rand.Rand, length time.Duration) sim.Setup {
	cores := []int{4, 8}[rng.IntN(2)]
	s := sim.Setup{Machine: sim.Machine{Cores: cores}, Seed: rng.Uint64(), Length: length}
	for i := range 3 + rng.IntN(4) {
		request := cpu.Milli(10 * (5 + rng.IntN(60)))
		p := sim.PodSpec{Name: fmt.Sprint("p", i), Request: request, Limit: cpu.Milli(cores) * cpu.Core}
		if i == 2 {
			p.Request, p.End = 1500, length/2
		}
		switch threads := 1 + rng.IntN(cores); {
		case i <= 2:
			p.Spin = load.Constant(float64(cores))
		case rng.IntN(2) == 0:
			p.Spin = load.Burst{
				High: float64(threads), Length: time.Duration(1+rng.IntN(20)) * time.Second,
				Period: time.Duration(20+rng.IntN(40)) * time.Second,
			}
		default:
			p.Spin = load.RandomWalk(rng, float64(threads)/2, float64(threads)/2, 5*time.Second, length)
		}
		s.Pods = append(s.Pods, p)
	}
	return s
}

// sharesOf are the shares of the pods that run at a time, with floors.
func sharesOf(s sim.Setup, cfg round.Config, at time.Duration) (shares []cpu.Milli) {
	allocatable := cpu.Milli(s.Machine.Cores) * cpu.Core
	problem := market.Problem{Supply: cpu.FromCores(allocatable.Cores() * (1 - cfg.Reserve))}
	for _, p := range s.Pods {
		b := market.Bid{Budget: demand.Budget(p.Request, p.Priority), Ceiling: allocatable}
		if p.End == 0 || at < p.End {
			b.Demand, b.Floor = allocatable, demand.Entitlement(p.Request, p.Limit)
		}
		problem.Bids = append(problem.Bids, b)
	}
	price := market.Clear(problem).Price
	for _, b := range problem.Bids {
		shares = append(shares, b.Limit(price))
	}
	return shares
}

// TestSharesAreLeft: with all bands, steps, and resizes in flight, no decrease goes below a pod's share less the
// price band, and no pod that demands more stays below that less both dead bands.
func TestSharesAreLeft(t *testing.T) {
	seeds, length := atlength.Of(uint64(8), 60), atlength.Of(3*time.Minute, 10*time.Minute)
	cfg, decreases, grown := DefaultConfig(), 0, 0
	for seed := range seeds {
		s := contended(rand.New(rand.NewPCG(seed, 3)), length)
		before, after := sharesOf(s, cfg.Round, 0), sharesOf(s, cfg.Round, length)
		r := sim.Run(s, New(cfg))
		for i := range r.Pods {
			p, band := &r.Pods[i], 1-cfg.Round.PriceBand
			for _, c := range p.Changes {
				if c.To < c.From {
					decreases++
				}
				if c.To < c.From && (c.To+cpu.Quantum).Cores() < band*before[i].Cores() {
					t.Errorf("seed %d, %s: from %v to %v at %v, and its share is %v", seed, p.Spec.Name, c.From, c.To, c.At, before[i])
				}
			}
			if i > 1 { // it does not demand its share all the time
				continue
			}
			if after[i] > before[i] {
				grown++
			}
			least := band * after[i].Cores() / (1 + cfg.Round.PublishBand) / (1 + cfg.Lifecycle.Actuator.DeadBand)
			if got := p.LimitAt(length); (got + cpu.Quantum).Cores() < least {
				t.Errorf("seed %d, %s: the limit stays at %v, and its share is %v", seed, p.Spec.Name, got, after[i])
			}
		}
	}
	if decreases < 20 || grown < 4 {
		t.Errorf("%d decreases, and %d shares that grow: this shows little", decreases, grown)
	}
}

func TestIdleNodeThrottlesNoPod(t *testing.T) {
	bursts := func(low, high float64) load.Requests {
		rate := load.Burst{Low: low, High: high, Start: 30 * time.Second, Length: 5 * time.Second, Period: 20 * time.Second}
		return load.Requests{Rate: rate, ServiceTime: 10 * time.Millisecond}
	}
	r := sim.Run(sim.Setup{Machine: sim.Machine{Cores: 16}, Length: 2 * time.Minute, WarmUp: 20 * time.Second, Seed: 1, Pods: []sim.PodSpec{
		{Name: "a", Request: 500, Limit: 1000, Requests: bursts(15, 120)},
		{Name: "b", Request: 500, Limit: 1000, Requests: bursts(120, 15)},
	}}, New(DefaultConfig()))
	for _, p := range r.Pods {
		// Before its first burst a pod has its declared limit. A look sees it throttled, and doubles the limit at least;
		// that burst uses more than half of it, so it is raised once more.
		if p.Throttled > 5 || len(p.Changes) > 2 || p.LimitAt(2*time.Minute) < 2000 {
			t.Errorf("%s was throttled in %d periods, and its limits were %v: want 5 at most, and two changes",
				p.Spec.Name, p.Throttled, p.Changes)
		}
	}
}

// TestRaisesAreBounded: on an idle node of 64 cores a pod that is not throttled keeps its limit of 200m, and one that takes
// all that it can get has eight times that: a runtime with a thread for each CPU of its limit would have 64 by the node.
func TestRaisesAreBounded(t *testing.T) {
	steady := load.Requests{Rate: load.Constant(60), ServiceTime: time.Millisecond}
	r := sim.Run(sim.Setup{Machine: sim.Machine{Cores: 64}, Length: 3 * time.Minute, Seed: 1, Pods: []sim.PodSpec{
		{Name: "calm", Request: 50, Limit: 200, Threads: 1, Requests: steady},
		{Name: "greedy", Request: 50, Limit: 200, Spin: load.Step{After: 64, Time: time.Minute}},
	}}, New(DefaultConfig()))
	if p := r.Pod("calm"); len(p.Changes) != 0 {
		t.Errorf("a pod that uses 60m of its 200m has %v", p.Changes)
	}
	last := cpu.Milli(0)
	for _, c := range r.Pod("greedy").Changes {
		if last = c.To; last > 1600 {
			t.Errorf("a limit of 200m rises to %v, want 1600m at most", last)
		}
	}
	if last != 1600 {
		t.Errorf("the limit of a pod that takes all ends at %v, want 1600m", last)
	}
}

// TestDecisionsArriveLate: no limit changes before the decision of a round has arrived, and none
// of the same pod follows while a resize counts as in flight, other than an increase that supersedes a
// decrease. Delays follow from the node's seed.
func TestDecisionsArriveLate(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Round.LookInterval = 0 // a look between two rounds decides, too
	changes := func(seed uint64) (all [][]sim.Change) {
		s := step(rand.New(rand.NewPCG(seed, 1)), time.Minute)
		s.Length = 2 * time.Minute
		r := sim.Run(s, New(cfg))
		for i := range r.Pods {
			all = append(all, r.Pods[i].Changes)
		}
		return all
	}
	delays := map[time.Duration]bool{}
	n := 0
	for _, pod := range slices.Concat(changes(1), changes(2), changes(3)) {
		for i, c := range pod {
			n++
			delay := (c.At - cfg.ResizeDelay) % cfg.Interval
			delays[delay] = true
			if i > 0 && c.At-pod[i-1].At < cfg.ResizeDone.Min && !supersedes(pod[i-1], c) {
				t.Errorf("a change at %v, %v after the last one, which was in flight", c.At, c.At-pod[i-1].At)
			}
			if i == 0 && (delay < cfg.Publish.Min || delay > cfg.Publish.Max) {
				t.Errorf("the first change at %v: %v after a round, want %v", c.At, delay, cfg.Publish)
			}
		}
	}
	if n < 8 || len(delays) < 2 {
		t.Errorf("%d changes with %d delays, which tests little", n, len(delays))
	}
	if diff := cmp.Diff(changes(1), changes(1)); diff != "" {
		t.Errorf("the same seed, other delays: %s", diff)
	}
}

// TestNewPodsNeedNotWaitForARound: the limit of a pod that starts between two rounds, and is throttled at once, rises
// before the next round.
func TestNewPodsNeedNotWaitForARound(t *testing.T) {
	const start = 30*time.Second + 100*time.Millisecond
	for looks, want := range map[bool]time.Duration{true: 31 * time.Second, false: 33 * time.Second} {
		cfg := DefaultConfig()
		if !looks {
			cfg.Round.LookInterval = 0
		}
		r := sim.Run(sim.Setup{Machine: sim.Machine{Cores: 4}, Length: 40 * time.Second, Seed: 1, Pods: []sim.PodSpec{
			{Name: "other", Request: 500, Limit: 1000, Spin: load.Constant(0.1)},
			{Name: "new", Request: 100, Limit: 500, Spin: load.Constant(2), Start: start},
		}}, New(cfg))
		changes := r.Pods[1].Changes
		if len(changes) == 0 || changes[0].At >= want || !looks && changes[0].At < 31*time.Second || changes[0].To <= 500 {
			t.Errorf("looks %v: changes %+v, want the first one before %v", looks, changes, want)
		}
	}
}

// supersedes says whether a change is an increase after a decrease.
func supersedes(last, c sim.Change) bool { return last.To < last.From && c.To > c.From }

// TestIncreasesSupersede: where a resize is in flight for 20 s, an increase beside a load that changes every 10 s takes
// the place of a decrease in flight, and effect. Nothing else changes the limit of a pod in these 20 s.
func TestIncreasesSupersede(t *testing.T) {
	cfg := DefaultConfig()
	cfg.ResizeDone = sim.Delay{Min: 20 * time.Second, Max: 20 * time.Second}
	setup, _ := catalogue(t, "square-10s")
	superseded := 0
	for _, p := range sim.Run(setup, New(cfg)).Pods {
		for i, c := range p.Changes {
			switch {
			case i == 0 || c.At-p.Changes[i-1].At >= cfg.ResizeDone.Min:
			case supersedes(p.Changes[i-1], c):
				superseded++
			default:
				t.Errorf("%s: %+v follows %+v, which is in flight", p.Spec.Name, c, p.Changes[i-1])
			}
		}
	}
	if superseded == 0 {
		t.Error("no decrease was superseded")
	}
}
