package mbcas

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/disagreement"
	"github.com/mbcas/mbcas/internal/lab/load"
	"github.com/mbcas/mbcas/internal/lab/sim"
	"github.com/mbcas/mbcas/internal/testing/atlength"
)

// TestKeepDeclaredHalvesTheHarm: on drawn nodes with pods of one priority, declared limits that pods keep at any price
// halve the pod-minutes by whose end a pod has been served less than 0.78 of what its limits as declared give it: all
// but the share that saturating pods leave, and a little for noise. The rest is what raises above declared limits cost other pods.
func TestKeepDeclaredHalvesTheHarm(t *testing.T) {
	var with, without harm
	for seed := range uint64(atlength.Of(40, 150)) {
		declared := sim.Run(drawnNode(seed), declaredLimits{})
		with.add(declared, sim.Run(drawnNode(seed), New(DefaultConfig())))
		without.add(declared, sim.Run(drawnNode(seed), New(priceAlone())))
	}
	t.Logf("of %d pod-minutes %d are below with the price alone, and %d with the disagreement point; of %d services %d and %d have a higher p99",
		with.minutes, without.below, with.below, with.services, without.slower, with.slower)
	if without.below < 10 || 2*with.below > without.below {
		t.Errorf("of %d pod-minutes %d are below with the disagreement point, and %d without: want at most half", with.minutes, with.below, without.below)
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

// harm counts how much worse pods are than with their limits as declared.
type harm struct{ minutes, below, services, slower int }

func (h *harm) add(declared, ours sim.Result) {
	for i := range declared.Pods {
		d, o := &declared.Pods[i], &ours.Pods[i]
		var want, got float64
		for k := range d.Points {
			want, got = want+served(d, k), got+served(o, k)
			if (k+1)%60 == 0 {
				if h.minutes++; got < 0.78*want {
					h.below++
				}
			}
		}
		if d.Spec.Requests.Rate == nil {
			continue
		}
		h.services++
		if p99 := d.Latency.Quantile(0.99); o.Latency.Quantile(0.99) > p99*105/100+5*time.Millisecond {
			h.slower++
		}
	}
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
