package coordinator

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/market"
)

// The theorems of docs/theory.md about the coordinator.

// TestPowerOfTheRatio: at fixed prices and within the bounds, the ratio of what budgets buy becomes
// its power 1/(1-rho).
func TestPowerOfTheRatio(t *testing.T) {
	for _, rho := range []float64{-0.5, -1, -3, -9} {
		c := workloadsOnly()
		c.WorkloadRho, c.Band = rho, 0
		replicas := contended(0.2, 0.5)
		converged(t, c, replicas)
		buys := func(r Replica) float64 { return float64(r.Factor) / float64(r.Price) }
		got, want := buys(replicas[0])/buys(replicas[1]), math.Pow(0.5/0.2, 1/(1-rho))
		if math.Abs(got/want-1) > 0.03 {
			t.Errorf("rho %v: one buys %.2f times as much as the other, want %.2f", rho, got, want)
		}
	}
}

// TestPricesThatFollow: where a price follows the factor as its power a, the remaining power is
// 1/(1+|rho|(1-a)).
func TestPricesThatFollow(t *testing.T) {
	for _, rho := range []float64{-1, -3, -9} {
		for _, a := range []float64{0, 0.5, 0.8} {
			c := Config{WorkloadRho: rho, Gain: 1, Headroom: 1, FloorMargin: 0.01, MinFactor: 1, MaxFactor: factorLimit}
			without := []float64{0.2, 0.5}
			replicas := contended(0.2, 0.5)
			buys := func(i int) float64 { return float64(replicas[i].Factor) / 100 / float64(replicas[i].Price) }
			for range 100 {
				for i := range replicas {
					replicas[i].Floor = 0
					replicas[i].Price = market.Price(without[i] * math.Pow(float64(replicas[i].Factor)/100, a))
				}
				for i, f := range c.Rebalance(replicas) {
					replicas[i].Factor = f
				}
			}
			got, want := math.Log(buys(0)/buys(1))/math.Log(0.5/0.2), 1/(1-rho*(1-a))
			if math.Abs(got-want) > 0.03 {
				t.Errorf("rho %v, a %v: a power of %.3f of the ratio remains, want %.3f", rho, a, got, want)
			}
		}
	}
}

// TestReplicasComeCloser: over many clusters, with idle and full nodes, replicas are served more
// evenly, and the worst one better.
func TestReplicasComeCloser(t *testing.T) {
	spread := func(w *world) (spread, worst float64) {
		low, high := map[string]float64{}, map[string]float64{}
		for _, r := range w.replicas {
			s, key := got(r).Cores()/r.Demand.Cores(), ofWorkload(r)
			if _, ok := low[key]; !ok {
				low[key], high[key] = s, s
			}
			low[key], high[key] = min(low[key], s), max(high[key], s)
		}
		for _, r := range w.replicas { // in order
			if key := ofWorkload(r); high[key] > low[key] {
				spread, worst = spread+high[key]-low[key], worst+low[key]
				delete(high, key)
			}
		}
		return spread, worst
	}
	var before, after, worstBefore, worstAfter float64
	for seed := range uint64(worlds) {
		w := cluster(rand.New(rand.NewPCG(seed, 11)))
		w.clear()
		s, l := spread(w)
		before, worstBefore = before+s, worstBefore+l
		w.converge(workloadsOnly(), 60)
		s, l = spread(w)
		after, worstAfter = after+s, worstAfter+l
	}
	t.Logf("spread %.1f, then %.1f; worst %.1f, then %.1f", before, after, worstBefore, worstAfter)
	if after > 0.85*before || worstAfter < 1.03*worstBefore {
		t.Errorf("the sum of spreads goes from %.1f to %.1f, and that of the worst replicas from %.1f to %.1f", before, after,
			worstBefore, worstAfter)
	}
}

// TestConverges: from factors of 1 and from any factors, mostly within ten steps.
func TestConverges(t *testing.T) {
	late := 0
	for seed := range uint64(worlds) {
		rng := rand.New(rand.NewPCG(seed, 6))
		for _, w := range []*world{cluster(rng), cluster(rng).shuffled(rng)} {
			steps := w.converge(DefaultConfig(), 60)
			if steps == 60 {
				t.Errorf("seed %d: no convergence in %d steps", seed, steps)
			}
			if steps > 10 {
				late++
			}
		}
	}
	if late > worlds/5 {
		t.Errorf("%d of %d took more than 10 steps", late, 2*worlds)
	}
}

// TestLateFigures: where prices show the effect of a factor a step late, nearly all clusters
// converge.
func TestLateFigures(t *testing.T) {
	unstable := 0
	for seed := range uint64(worlds) {
		w := cluster(rand.New(rand.NewPCG(seed, 10)))
		w.clear()
		before := slices.Clone(w.replicas)
		unchanged := 0
		for step := 0; step < 60 && unchanged < 2; step++ {
			seen := slices.Clone(w.replicas)
			for i := range seen {
				seen[i].Price = before[i].Price
			}
			before = slices.Clone(w.replicas)
			unchanged++
			for i, f := range DefaultConfig().Rebalance(seen) {
				if f != w.replicas[i].Factor {
					w.replicas[i].Factor, unchanged = f, 0
				}
			}
			w.clear()
		}
		if unchanged < 2 {
			unstable++
		}
	}
	if unstable > worlds/20 {
		t.Errorf("%d of %d clusters do not converge", unstable, worlds)
	}
}

// TestGainBound: below 2 / (1 + (MaxFactor-1)/FloorMargin) a node whose price follows the budgets
// converges, beyond it not always. All capped pods of the node are replicas with siblings on nodes
// with lower prices.
func TestGainBound(t *testing.T) {
	steps := func(gain float64) int {
		c := workloadsOnly()
		c.Gain, c.Band, c.FloorMargin = gain, 0.005, 0.25
		w := &world{supply: map[string]cpu.Milli{"expensive": 4150}}
		for k := range 10 {
			for i, node := range []string{"expensive", fmt.Sprint("cheap", k)} {
				r := Replica{
					Namespace: "shop", Workload: fmt.Sprint("w", k), Node: node, BaseBudget: 300, Demand: 4000, Floor: 310, Ceiling: 8000,
					Factor: Neutral, UpToDate: true,
				}
				if w.supply[node] = 4150; i == 1 {
					w.supply[node] = 3500
				}
				w.replicas = append(w.replicas, r)
			}
		}
		return w.converge(c, 300)
	}
	bound := 2 / (1 + 1/0.25)
	if n := steps(0.9 * bound); n == 300 {
		t.Errorf("with a gain of 0.9 of the bound the factors do not converge")
	}
	if n := steps(2 * bound); n < 300 {
		t.Errorf("with twice the bound the factors converge after %d steps, so the bound is loose", n)
	}
	c := DefaultConfig()
	if bound := 2 / (1 + (float64(c.MaxFactor)/100-1)/c.FloorMargin); c.Gain > 0.8*bound {
		t.Errorf("the default gain, %v, is near the bound, %v", c.Gain, bound)
	}
}

func BenchmarkRebalance(b *testing.B) {
	rng := rand.New(rand.NewPCG(8, 8))
	var replicas []Replica
	for n := range 1000 {
		price := market.Price(rng.Float64())
		for range 110 {
			k := rng.IntN(11_000)
			replicas = append(replicas, Replica{
				Namespace: fmt.Sprint("ns", k%200), Workload: fmt.Sprint("w", k), Node: fmt.Sprint("node", n), Price: price,
				BaseBudget: market.Budget(50 + rng.IntN(500)), Demand: cpu.Milli(rng.IntN(2000)), Floor: 100, Ceiling: 8000,
				Factor: Neutral, UpToDate: true,
			})
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		DefaultConfig().Rebalance(replicas)
	}
}
