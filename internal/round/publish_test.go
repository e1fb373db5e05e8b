package round

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/mbcas/mbcas/cpu"
)

// noisyPods are 30 pods with a mean usage of 2m to 50m each.
func noisyPods() ([]*tenant, []cpu.Milli) {
	var pods []*tenant
	var means []cpu.Milli
	for i := range 30 {
		mean := cpu.Milli(2 + 48*i/29)
		means = append(means, mean)
		pods = append(pods, &tenant{name: fmt.Sprintf("p%d", i), request: 50, declared: 500, want: mean})
	}
	return pods, means
}

func TestNoisePublishesNothing(t *testing.T) {
	autoregressive := func(sigma float64) func(*rand.Rand) func(mean float64) float64 {
		const rho = 0.8 // from one second to the next
		return func(r *rand.Rand) func(float64) float64 {
			x := 0.0
			return func(mean float64) float64 {
				x = rho*x + math.Sqrt(1-rho*rho)*r.NormFloat64()
				return mean * (1 + sigma*x)
			}
		}
	}
	poisson := func(r *rand.Rand) func(mean float64) float64 { // requests of 1 ms of CPU time each
		return func(mean float64) float64 {
			n, product := 0, r.Float64()
			for limit := math.Exp(-mean); product > limit; n++ {
				product *= r.Float64()
			}
			return float64(n)
		}
	}
	for name, noise := range map[string]func(*rand.Rand) func(mean float64) float64{
		"Poisson": poisson, "5 %": autoregressive(0.05), "30 %": autoregressive(0.3), "60 %": autoregressive(0.6),
	} {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			pods, means := noisyPods()
			usage := make([]func(float64) float64, len(pods))
			for i := range usage {
				usage[i] = noise(r)
			}
			w := newWorld(pods...)
			published := 0
			for range w.cfg.Demand.WarmUpSamples + 600 {
				for i, p := range pods {
					p.want = cpu.Milli(max(0, math.Round(usage[i](float64(means[i])))))
				}
				first := pods[0].published.At.IsZero()
				for _, d := range w.tick().Decisions {
					if d.Publish && !first {
						published++
					}
				}
			}
			if published > 0 {
				t.Errorf("30 pods with a constant mean: %d publications in 10 minutes, want 0", published)
			}
			for _, p := range pods {
				if p.published.At.IsZero() || p.limit != w.node.Allocatable {
					t.Errorf("%s has the limit %v, published at %v: want its ceiling", p.name, p.limit, p.published.At)
				}
			}
		})
	}
}

func TestOnePodPublishesThePrice(t *testing.T) {
	pods, _ := noisyPods()
	busy := &tenant{name: "busy", request: 3500, want: 1000, shadow: true} // not managed, so its limit is never published
	w := newWorld(append(pods, busy)...)
	w.run(60)
	busy.want = 4000
	published := map[string]int{}
	count := func(seconds int) {
		for range seconds {
			for _, d := range w.tick().Decisions {
				if d.Publish {
					published[d.UID]++
				}
			}
		}
	}
	count(int((w.cfg.PriceInterval + 30*time.Second).Seconds()))
	if w.state.price.inForce == 0 || len(published) != 1 {
		t.Fatalf("price %v: %d pods published, want 1: %v", w.state.price.inForce, len(published), published)
	}
	for name, n := range published {
		if p := w.tenant(name); n != 1 || p.published.Price != w.state.price.inForce {
			t.Errorf("%s published %d times, with the price %v: want once, with %v", name, n, p.published.Price, w.state.price.inForce)
		}
	}
}
