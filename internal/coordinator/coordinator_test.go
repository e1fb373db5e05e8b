package coordinator

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/market"
)

const worlds = 200

// workloadsOnly is the default config with NamespaceRho 0.
func workloadsOnly() Config {
	c := DefaultConfig()
	c.NamespaceRho = 0
	return c
}

func TestBounded(t *testing.T) {
	c := DefaultConfig()
	for seed := range uint64(worlds) {
		rng := rand.New(rand.NewPCG(seed, 1))
		w := cluster(rng)
		for i := range w.replicas {
			w.replicas[i].Factor = Factor(rng.IntN(1000) - 100)
			w.replicas[i].UpToDate = rng.IntN(5) > 0
		}
		for range 5 {
			w.clear()
			w.step(c)
			for i, r := range w.replicas {
				if r.UpToDate && (r.Factor < c.MinFactor || r.Factor > c.MaxFactor) {
					t.Fatalf("seed %d, replica %d: factor %d", seed, i, r.Factor)
				}
			}
		}
	}
}

// TestConserved: at each step from factors of 1, and at the end from any factors.
func TestConserved(t *testing.T) {
	for name, x := range map[string]struct {
		cfg Config
		key func(Replica) string
	}{"namespaces": {DefaultConfig(), ofNamespace}, "workloads": {workloadsOnly(), ofWorkload}} {
		tolerance := x.cfg.Band + 0.015 // rounding to whole percents is one of 50
		check := func(seed uint64, when string, w *world) {
			with, own := budgets(w.replicas, x.key)
			for key := range own {
				if miss := math.Abs(with[key]/own[key] - 1); miss > tolerance {
					t.Errorf("%s, seed %d, %s: budgets of %s add up to %.3f of what they were", name, seed, when, key,
						with[key]/own[key])
				}
			}
		}
		for seed := range uint64(worlds) {
			rng := rand.New(rand.NewPCG(seed, 2))
			w := cluster(rng)
			for range 10 {
				w.clear()
				w.step(x.cfg)
				check(seed, "during the steps", w)
			}
			w = cluster(rng).shuffled(rng)
			w.converge(x.cfg, 100)
			check(seed, "at the end", w)
		}
	}
}

func TestOneNodeIsUnchanged(t *testing.T) {
	for seed := range uint64(worlds) {
		rng := rand.New(rand.NewPCG(seed, 3))
		w := cluster(rng)
		nodes := map[string]map[string]bool{}
		for _, r := range w.replicas {
			if nodes[r.Namespace] == nil {
				nodes[r.Namespace] = map[string]bool{}
			}
			nodes[r.Namespace][r.Node] = true
		}
		for range 5 {
			w.clear()
			w.step(DefaultConfig())
		}
		for _, r := range w.replicas {
			if len(nodes[r.Namespace]) == 1 && r.Factor != Neutral {
				t.Fatalf("seed %d: all pods of %s are on %s, and a factor is %d", seed, r.Namespace, r.Node, r.Factor)
			}
		}
	}
	// Between pods on one node the market itself decides, whatever they need.
	replicas := contended(0.5, 0.5, 0.5)
	replicas[0].Demand, replicas[2].Demand, replicas[2].Workload = 100, 100, "api"
	for i := range replicas {
		replicas[i].Node = "node0"
	}
	if got := converged(t, DefaultConfig(), replicas); got[0] != Neutral || got[1] != Neutral || got[2] != Neutral {
		t.Errorf("where all pods are on one node, factors are %v", got)
	}
	replicas[2].Node = "node1" // another workload
	if got := converged(t, DefaultConfig(), replicas); got[0] != got[1] {
		t.Errorf("replicas on one node have the factors %v", got)
	}
	// A pod without a workload is a workload of its own.
	bare := Replica{
		Namespace: "a", BaseBudget: 100, Demand: 5000, Ceiling: 8000, UpToDate: true, Node: "cheap", Price: 0.1,
	}
	expensive := bare
	expensive.Node, expensive.Price = "expensive", 0.6
	for i, f := range workloadsOnly().Rebalance([]Replica{bare, expensive}) {
		if f != Neutral {
			t.Errorf("pod %d without a workload has the factor %d", i, f)
		}
	}
}

// contended are replicas of one workload on nodes with these prices, with unlimited demand.
func contended(prices ...market.Price) []Replica {
	var all []Replica
	for i, p := range prices {
		all = append(all, Replica{
			Namespace: "shop", Workload: "web", Node: fmt.Sprint("node", i), BaseBudget: 300, Price: p,
			Demand: 100_000, Floor: 100, Ceiling: 100_000, Factor: Neutral, UpToDate: true,
		})
	}
	return all
}

// converged are the final factors at fixed prices.
func converged(t *testing.T, c Config, replicas []Replica) []Factor {
	t.Helper()
	for range 50 {
		changed := false
		for i, f := range c.Rebalance(replicas) {
			changed = changed || f != replicas[i].Factor
			replicas[i].Factor = f
		}
		if !changed {
			var factors []Factor
			for _, r := range replicas {
				factors = append(factors, r.Factor)
			}
			return factors
		}
	}
	t.Fatal("factors do not converge at fixed prices")
	return nil
}

func TestHigherPricesGetMore(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	for range 1000 {
		var prices []market.Price
		for range 2 + rng.IntN(6) {
			prices = append(prices, market.Price(0.01+0.99*rng.Float64()))
		}
		replicas := contended(prices...)
		next := workloadsOnly().Rebalance(replicas)
		for i := range replicas {
			for k := range replicas {
				if prices[i] > prices[k] && next[i] < next[k] {
					t.Fatalf("at price %v the factor is %d, and at %v it is %d", prices[i], next[i], prices[k], next[k])
				}
			}
		}
	}
}

// TestWorkloadsOfANamespace: among the workloads of a namespace the ratio of budgets follows
// NamespaceRho.
func TestWorkloadsOfANamespace(t *testing.T) {
	c := DefaultConfig()
	c.Band, c.Gain = 0, 1
	replicas := contended(0.2, 0.5)
	replicas[1].Workload = "api"
	got := converged(t, c, replicas)
	ratio, want := float64(got[1])/float64(got[0]), math.Pow(0.5/0.2, c.NamespaceRho/(c.NamespaceRho-1))
	if math.Abs(ratio/want-1) > 0.03 {
		t.Errorf("two workloads of a namespace have the factors %v, a ratio of %.2f, want %.2f", got, ratio, want)
	}
	replicas[0].Demand = 10 // within its floor
	if got := converged(t, c, replicas); got[0] != c.MinFactor || got[1] != 150 {
		t.Errorf("where one workload needs no budget, factors are %v", got)
	}
}

// TestSpreadIsMoreEven: topology spread constraints of one replica count for its workload.
func TestSpreadIsMoreEven(t *testing.T) {
	usual, even := contended(0.2, 0.5), contended(0.2, 0.5)
	even[0].TopologySpread = true
	c := workloadsOnly()
	c.WorkloadRho, c.Band = -1, 0
	a, b := converged(t, c, usual), converged(t, c, even)
	if b[1] <= a[1] || b[0] >= a[0] {
		t.Errorf("factors are %v, and with spread constraints %v", a, b)
	}
	if d := DefaultConfig(); d.SpreadRho >= d.WorkloadRho || d.WorkloadRho >= d.NamespaceRho {
		t.Errorf(
			"rho is %v with spread constraints, %v without, and %v among workloads: want each nearer to 0 than the one before",
			d.SpreadRho, d.WorkloadRho, d.NamespaceRho)
	}
}

func TestSlackPaysFirst(t *testing.T) {
	c := workloadsOnly()
	c.Gain, c.Band = 1, 0
	some := contended(0.5, 0.5, 0.5)
	some[0].Demand = 400 // 0.5 x 400 x 1.25 of a budget of 300 is 0.83
	some[1].Demand = 100 // within its floor
	enough := contended(0.5, 0.5, 0.5)
	enough[0].Demand, enough[1].Demand, enough[2].Demand = 400, 100, 500 // the last needs 1.04
	within := contended(0.9, 0.9)                                        // all of it is within the floor
	within[0].Demand, within[0].Floor = 240, 300
	capped := contended(0.6, 0.3) // its ceiling of 500m costs a budget of 300
	capped[0].Ceiling = 500
	for name, x := range map[string]struct {
		replicas []Replica
		want     []Factor
	}{
		"one needs no more than its floor":                           {within, []Factor{50, 150}},
		"one gets its ceiling with its own budget":                   {capped, []Factor{100, 100}},
		"one needs 83%, one nothing, and one is unlimited":           {some, []Factor{83, 50, 167}},
		"one needs 104%, and the others keep what it does not need":  {enough, []Factor{98, 98, 104}},
		"CPU that has no price needs no budget":                      {contended(0, 0.5), []Factor{50, 150}},
		"where it has no price anywhere, all have their own budgets": {contended(0, 0, 0), []Factor{100, 100, 100}},
	} {
		if d := cmp.Diff(x.want, converged(t, c, x.replicas)); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

func TestNoBudgetWithoutEffect(t *testing.T) {
	full := contended(1.2, 0.3)
	full[0].Floor = 310 // a budget of 300 buys 250
	if got := converged(t, workloadsOnly(), full); got[0] != Neutral || got[1] != Neutral {
		t.Errorf("where the floor exceeds what the budget buys, factors are %v", got)
	}
	near := contended(0.8, 0.3)
	near[0].Floor = 310 // it buys 375
	some := converged(t, workloadsOnly(), near)[0]
	if far := converged(t, workloadsOnly(), contended(0.8, 0.3))[0]; !(some > Neutral && some < far) {
		t.Errorf("near its floor the factor is %d, far above it %d: want a factor between", some, far)
	}
}

func TestFixedToNodeNeverPays(t *testing.T) {
	replicas := contended(0.1, 0.1, 0.5)
	replicas[0].FixedToNode, replicas[2].FixedToNode = true, true
	got := converged(t, workloadsOnly(), replicas)
	if got[0] != Neutral || got[1] >= Neutral || got[2] <= Neutral {
		t.Errorf("factors %v: want the fixed one unchanged, its sibling lowered, and the one at the high price raised", got)
	}
	all := contended(0.1, 0.5)
	all[0].FixedToNode, all[1].FixedToNode = true, true
	if got := converged(t, workloadsOnly(), all); got[0] != Neutral || got[1] != Neutral {
		t.Errorf("where all are fixed to their nodes, factors are %v", got)
	}
	for seed := range uint64(worlds) {
		rng := rand.New(rand.NewPCG(seed, 5))
		w := cluster(rng)
		w.converge(DefaultConfig(), 20)
		for _, r := range w.replicas {
			if r.FixedToNode && r.Factor < Neutral {
				t.Fatalf("seed %d: a pod that is fixed to its node has the factor %d", seed, r.Factor)
			}
		}
	}
}

func TestOutdatedStays(t *testing.T) {
	replicas := contended(0.1, 0.2, 0.4)
	before := converged(t, workloadsOnly(), replicas)
	replicas[0].UpToDate, replicas[0].Price = false, 0.9
	if got := converged(t, workloadsOnly(), replicas); got[0] != before[0] || got[1] != before[1] || got[2] != before[2] {
		t.Errorf("factors %v become %v when a node has no current figures", before, got)
	}
	// Invalid figures do not count.
	replicas[0].UpToDate = true
	for _, p := range []market.Price{-1, market.Price(math.NaN()), market.Price(math.Inf(1)), 2 * market.MaxPrice} {
		replicas[0].Price = p
		if got := workloadsOnly().Rebalance(replicas); got[0] != before[0] {
			t.Errorf("at price %v the factor goes from %d to %d", p, before[0], got[0])
		}
	}
	// Budgets add up with those of the outdated replica.
	replicas = contended(0.1, 0.2, 0.4)
	replicas[2].UpToDate, replicas[2].Factor = false, 160
	got := converged(t, workloadsOnly(), replicas)
	if sum := got[0] + got[1] + got[2]; got[2] != 160 || sum < 285 || sum > 315 {
		t.Errorf("beside an outdated replica with 160%%: factors %v", got)
	}
}

func TestConfigReportsEverything(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Error(err)
	}
	bad := Config{
		WorkloadRho: 1, SpreadRho: math.NaN(), NamespaceRho: -1000, Gain: 0, Headroom: -1, FloorMargin: 0, Band: 1,
		MinFactor: 101, MaxFactor: 99,
	}
	err := bad.Validate()
	if err == nil || len(err.(interface{ Unwrap() []error }).Unwrap()) != 8 {
		t.Errorf("Validate = %v, want eight faults", err)
	}
}

// FuzzRebalance: for any input, factors are within bounds and reproducible.
func FuzzRebalance(f *testing.F) {
	f.Add(uint64(1), 0.5, 0.1, int64(300), int64(1000), int64(100), int64(8000), int32(100), int32(100), uint8(3))
	f.Add(uint64(2), math.Inf(1), math.NaN(), int64(math.MinInt64), int64(math.MaxInt64), int64(-1), int64(0), int32(0),
		int32(math.MaxInt32), uint8(255))
	f.Add(uint64(3), 5e-324, float64(market.MaxPrice), int64(math.MaxInt64), int64(math.MaxInt64), int64(math.MaxInt64),
		int64(math.MaxInt64), int32(-5), int32(50), uint8(7))
	f.Fuzz(func(t *testing.T, seed uint64, price, other float64, own, demand, floor, ceiling int64,
		factor, second int32, flags uint8,
	) {
		rng := rand.New(rand.NewPCG(seed, 7))
		var replicas []Replica
		for range 1 + rng.IntN(12) {
			r := Replica{
				Namespace: fmt.Sprint(rng.IntN(2)), Workload: []string{"", "a", "b"}[rng.IntN(3)], Node: fmt.Sprint(rng.IntN(4)),
				BaseBudget: market.Budget(own), Price: market.Price(price), Factor: Factor(factor),
				Demand: cpu.Milli(demand), Floor: cpu.Milli(floor), Ceiling: cpu.Milli(ceiling), TopologySpread: flags&1 > 0,
				FixedToNode: rng.IntN(2) == 0 && flags&2 > 0, UpToDate: rng.IntN(4) > 0 || flags&4 > 0,
			}
			if rng.IntN(2) == 0 {
				r.Price, r.Factor = market.Price(other), Factor(second)
				r.BaseBudget, r.Demand = market.Budget(rng.IntN(1000)), cpu.Milli(rng.IntN(5000))
			}
			replicas = append(replicas, r)
		}
		c := DefaultConfig()
		next, again := c.Rebalance(replicas), c.Rebalance(replicas)
		for i, r := range replicas {
			switch {
			case next[i] != again[i]:
				t.Fatalf("replica %d has the factor %d, and then %d", i, next[i], again[i])
			case !r.UpToDate && next[i] != r.Factor && !(r.Factor <= 0 && next[i] == Neutral):
				t.Fatalf("outdated replica %d goes from %d to %d", i, r.Factor, next[i])
			case r.UpToDate && r.Price >= 0 && r.Price <= market.MaxPrice && (next[i] < c.MinFactor || next[i] > c.MaxFactor):
				t.Fatalf("replica %d has the factor %d: %+v", i, next[i], r)
			}
		}
	})
}
