package mbcas

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/disagreement"
	"github.com/mbcas/mbcas/internal/lab/load"
	"github.com/mbcas/mbcas/internal/lab/scenario"
	"github.com/mbcas/mbcas/internal/lab/sim"
	"github.com/mbcas/mbcas/internal/testing/atlength"
)

var nodes = flag.Uint64("nodes", 0, "how many nodes TestNoWorseThanDeclared draws, for the table of docs/policy.md")

// TestNoWorseThanDeclared: on drawn nodes with pods of one priority hardly any pod has by the end of a minute been served
// less of what its limits as declared give it than all but the share that saturating pods leave, and a little for noise. Of the services that do not saturate there, few have a higher p99, and many more have half of it. Without what
// pods keep at any price, at least twice as many pod-minutes are below.
func TestNoWorseThanDeclared(t *testing.T) {
	var with, without, noise harm
	compares := atlength.On() || *nodes > 0
	for seed := range cmp.Or(*nodes, atlength.Of(uint64(50), 250)) {
		declared := sim.Run(drawnNode(seed), declaredLimits{})
		with.add(declared, sim.Run(drawnNode(seed), New(DefaultConfig())))
		without.add(declared, sim.Run(drawnNode(seed), New(priceAlone())))
		if compares {
			other := drawnNode(seed)
			other.Seed++
			noise.add(declared, sim.Run(other, declaredLimits{}))
		}
	}
	t.Logf("as shipped:             %v", with)
	t.Logf("the price alone:        %v", without)
	if compares {
		t.Logf("declared, other loads:  %v", noise)
	}
	of := func(n, all int) float64 { return float64(n) / float64(all) }
	if of(with.below, with.minutes) > 0.006 || of(with.farBelow, with.minutes) > 0.003 || without.below < 10 || 2*with.below > without.below {
		t.Errorf("%v, and %d with the price alone: want 0.6 %% of the pod-minutes below at most, 0.3 %% far below, and at most half of the latter", with, without.below)
	}
	if with.services < 100 || of(with.slower, with.services) > 0.07 || of(with.halfAsFast, with.services) > 0.02 || with.twiceAsFast < 5*with.halfAsFast {
		t.Errorf("%v: want at most 7 %% slower, 2 %% half as fast, and five times as many twice as fast", with)
	}
}

// TestCatalogueNoWorseThanDeclared: the same in the scenarios of the catalogue, where the services as a whole have no higher
// p99, either. Where no pod has a higher priority than another, none has far less.
func TestCatalogueNoWorseThanDeclared(t *testing.T) {
	for _, s := range scenario.Catalogue() {
		var h harm
		var was, is sim.Latencies
		for seed := range uint64(atlength.Of(3, 12)) {
			setup := s.Setup(0, seed+1)
			declared, ours := sim.Run(setup, declaredLimits{}), sim.Run(setup, New(DefaultConfig()))
			h.add(declared, ours)
			for i := range declared.Pods {
				if s.Role(declared.Pods[i].Spec.Name) == scenario.Service {
					was.Merge(declared.Pods[i].Latency)
					is.Merge(ours.Pods[i].Latency)
				}
			}
		}
		t.Logf("%-24s %v", s.Name, h)
		priorities := slices.ContainsFunc(s.Setup(0, 1).Pods, func(p sim.PodSpec) bool { return p.Priority > 0 })
		if h.halfAsFast > 0 || !priorities && h.farBelow > 0 {
			t.Errorf("%s: %v: want none half as fast, nor far below", s.Name, h)
		}
		if was, is := was.Quantile(0.99), is.Quantile(0.99); is > was*105/100 {
			t.Errorf("%s: p99 of the services %v, want at most 1.05 times the %v of declared limits", s.Name, is, was)
		}
	}
}

// priceAlone is the default without what pods keep at any price.
func priceAlone() Config {
	c := DefaultConfig()
	c.Round.Disagreement = disagreement.Config{}
	return c
}

// declaredLimits keeps every limit as declared.
type declaredLimits struct{}

// Decide implements sim.Policy.
func (declaredLimits) Decide(r *sim.Snapshot) ([]sim.Action, time.Duration) {
	return nil, r.Now + time.Hour
}

// harm counts how much worse pods are than with their limits as declared. It counts pod-minutes by whose end a pod has been
// served less than 0.78 of what these give it; far below is 0.72, as a limit that differs from what the pod keeps by less
// than PublishBand stays. And it counts services that do not saturate with declared limits.
type harm struct{ minutes, below, farBelow, services, slower, halfAsFast, twiceAsFast int }

func (h harm) String() string {
	return fmt.Sprintf("%d of %d pod-minutes below, %d far; of %d services %d slower, %d half as fast, %d twice as fast",
		h.below, h.minutes, h.farBelow, h.services, h.slower, h.halfAsFast, h.twiceAsFast)
}

func (h *harm) add(declared, ours sim.Result) {
	for i := range declared.Pods {
		d, o := &declared.Pods[i], &ours.Pods[i]
		var want, got float64
		for k := range d.Points {
			want, got = want+served(d, k), got+served(o, k)
			if (k+1)%60 == 0 && want > 0 {
				if h.minutes++; got < 0.78*want {
					h.below++
				}
				if got < 0.72*want {
					h.farBelow++
				}
			}
		}
		if d.Spec.Requests.Rate == nil || saturates(d) {
			continue
		}
		h.services++
		was, is := d.Latency.Quantile(0.99), o.Latency.Quantile(0.99)
		const noise = 5 * time.Millisecond
		if is > was*105/100+noise {
			h.slower++
		}
		if is > 2*was+noise {
			h.halfAsFast++
		}
		if was > 2*is+noise {
			h.twiceAsFast++
		}
	}
}

// saturates says whether a service takes all it can get for most of half a minute: its queue is longer than half a second.
func saturates(p *sim.PodResult) bool {
	const window = 30
	var long []int
	for k, at := range p.Points {
		if at.Backlog > 0 && at.Backlog.Seconds() >= 0.5*at.Usage.Cores() {
			long = append(long, k)
		}
		if len(long) > 0 && long[0] <= k-window {
			long = long[1:]
		}
		if 4*len(long) > 3*window {
			return true
		}
	}
	return false
}

// served is what a pod does in an interval, in cores: a pod that spins serves no requests.
func served(p *sim.PodResult, interval int) float64 {
	if p.Spec.Requests.Rate == nil {
		return p.Points[interval].Usage.Cores()
	}
	return p.Points[interval].Useful.Cores()
}

// drawnNode is a node whose requests fill a third to nine tenths of it: steady and bursty services, and pods that spin
// from the start or later.
func drawnNode(seed uint64) sim.Setup {
	rng := rand.New(rand.NewPCG(seed, 7))
	cores := []int{2, 4, 8, 16}[rng.IntN(4)]
	s := sim.Setup{Machine: sim.Machine{Cores: cores}, Seed: rng.Uint64(), Length: 5 * time.Minute}
	full, requested := (0.3+0.6*rng.Float64())*float64(cores), 0.0
	for i := 0; requested < full && i < 30; i++ {
		request := cpu.Milli(10 * (5 + rng.IntN(20*cores)))
		requested += request.Cores()
		limit := (request + cpu.FromCores(request.Cores()*(0.2+3*rng.Float64()))).RoundUp(cpu.Quantum)
		p := sim.PodSpec{Name: fmt.Sprint("p", i), Request: request, Limit: limit, Threads: 4 + rng.IntN(12)}
		switch rng.IntN(10) {
		case 0, 1, 2:
			p.Spin = load.Step{After: float64(1 + rng.IntN(cores+2)), Time: time.Duration(rng.IntN(3)) * time.Minute}
		case 3, 4, 5:
			p.Requests = serving(load.Constant(100 * limit.Cores() * (0.2 + 0.9*rng.Float64())))
		default:
			low := 100 * limit.Cores() * (0.1 + 0.4*rng.Float64())
			p.Requests = serving(load.Burst{
				Low: low, High: max(low, 100*limit.Cores()*(0.4+1.2*rng.Float64())), Jitter: 1, Seed: rng.Uint64(),
				Length: time.Duration(2+rng.IntN(20)) * time.Second, Period: time.Duration(25+rng.IntN(60)) * time.Second,
			})
		}
		s.Pods = append(s.Pods, p)
	}
	return s
}

// serving is requests of 10 ms on average.
func serving(rate load.Profile) load.Requests {
	return load.Requests{Rate: rate, ServiceTime: 10 * time.Millisecond, Distribution: load.Exponential}
}
