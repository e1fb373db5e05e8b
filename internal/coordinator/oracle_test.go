package coordinator

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/market"
)

// buyer demands CPU of its nodes, with a budget for each.
type buyer struct {
	nodes  []int
	shares []float64
}

// equilibrium finds the prices of a Fisher market with CES buyers by tatonnement: each price
// follows its own excess demand in small steps. It is slow, and has neither factors nor bounds.
func equilibrium(supply []float64, buyers []buyer, rho float64) []float64 {
	prices := make([]float64, len(supply))
	for j := range prices {
		prices[j] = 1
	}
	for range 200_000 {
		demand := make([]float64, len(supply))
		for _, b := range buyers {
			// To maximise the sum of share (x/share)^rho / rho within the budget, spend share
			// p^(rho/(rho-1)) on each.
			budget, sum := 0.0, 0.0
			for k, j := range b.nodes {
				budget += b.shares[k]
				sum += b.shares[k] * math.Pow(prices[j], rho/(rho-1))
			}
			for k, j := range b.nodes {
				demand[j] += budget * b.shares[k] * math.Pow(prices[j], rho/(rho-1)) / sum / prices[j]
			}
		}
		worst := 0.0
		for j := range prices {
			excess := demand[j]/supply[j] - 1
			worst = max(worst, math.Abs(excess))
			prices[j] *= 1 + 0.05*max(-1, min(1, excess))
		}
		if worst < 1e-9 {
			return prices
		}
	}
	return nil
}

func TestAgreesWithOracle(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 9))
		rho := []float64{-0.5, -1, -3, -9}[seed%4]
		c := Config{
			WorkloadRho: rho, SpreadRho: rho, Gain: 1, Headroom: 1, FloorMargin: 0.01, MinFactor: 1, MaxFactor: factorLimit,
		}
		if err := c.Validate(); err != nil {
			t.Fatal(err)
		}
		nodes := 2 + rng.IntN(4)
		w := &world{supply: map[string]cpu.Milli{}}
		var supply []float64
		var buyers []buyer
		for j := range nodes {
			supply = append(supply, float64(2000+rng.IntN(8000)))
			w.supply[fmt.Sprint(j)] = cpu.Milli(supply[j])
			for range 1 + rng.IntN(3) {
				buyers = append(buyers, buyer{nodes: []int{j}})
			}
		}
		for range 1 + rng.IntN(3) {
			buyers = append(buyers, buyer{nodes: rng.Perm(nodes)[:2+rng.IntN(nodes-1)]})
		}
		for k := range buyers {
			for _, j := range buyers[k].nodes {
				own := 100_000 + rng.IntN(400_000)
				buyers[k].shares = append(buyers[k].shares, float64(own))
				w.replicas = append(w.replicas, Replica{
					Namespace: fmt.Sprint(k), Workload: "w", Node: fmt.Sprint(j), BaseBudget: market.Budget(own),
					Demand: 1_000_000, Ceiling: 1_000_000, Factor: Neutral, UpToDate: true,
				})
			}
		}
		prices := equilibrium(supply, buyers, rho)
		if prices == nil {
			t.Fatalf("seed %d: the oracle does not converge", seed)
		}
		w.converge(c, 300)
		w.clear()
		for _, r := range w.replicas {
			var j int
			fmt.Sscan(r.Node, &j)
			if got := float64(r.Price); math.Abs(got/prices[j]-1) > 0.02 {
				t.Errorf("seed %d, rho %v: the price of node %d is %g, want %g", seed, rho, j, got, prices[j])
			}
		}
	}
}
