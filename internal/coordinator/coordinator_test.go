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

// alone is the default without the level of namespaces.
func alone() Config {
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
			w.turn(c)
			for i, r := range w.replicas {
				if r.UpToDate && (r.Factor < c.MinFactor || r.Factor > c.MaxFactor) {
					t.Fatalf("seed %d, replica %d: factor %d", seed, i, r.Factor)
				}
			}
		}
	}
}

// TestConserved: on the way from factors of 1 and, wherever it came from, at rest.
func TestConserved(t *testing.T) {
	for name, x := range map[string]struct {
		cfg Config
		key func(Replica) string
	}{"namespaces": {DefaultConfig(), ofNamespace}, "workloads": {alone(), ofWorkload}} {
		tolerance := x.cfg.Band + 0.015 // rounding to whole percents is one of 50
		check := func(seed uint64, when string, w *world) {
			with, own := budgets(w.replicas, x.key)
			for key := range own {
				if miss := math.Abs(with[key]/own[key] - 1); miss > tolerance {
					t.Errorf("%s, seed %d, %s: budgets of %s add up to %.3f of what they were", name, seed, when, key, with[key]/own[key])
				}
			}
		}
		for seed := range uint64(worlds) {
			rng := rand.New(rand.NewPCG(seed, 2))
			w := cluster(rng)
			for range 10 {
				w.clear()
				w.turn(x.cfg)
				check(seed, "on the way", w)
			}
			w = cluster(rng).shuffled(rng)
			w.play(x.cfg, 100)
			check(seed, "at rest", w)
		}
	}
}

func TestOneNodeIsLeftAlone(t *testing.T) {
	for seed := range uint64(worlds) {
		rng := rand.New(rand.NewPCG(seed, 3))
		w := cluster(rng)
		apart := map[string]map[string]bool{}
		for _, r := range w.replicas {
			if apart[r.Namespace] == nil {
				apart[r.Namespace] = map[string]bool{}
			}
			apart[r.Namespace][r.Node] = true
		}
		for range 5 {
			w.clear()
			w.turn(DefaultConfig())
		}
		for _, r := range w.replicas {
			if len(apart[r.Namespace]) == 1 && r.Factor != One {
				t.Fatalf("seed %d: all of %s is on %s, and its factor is %d", seed, r.Namespace, r.Node, r.Factor)
			}
		}
	}
	// Among those on one node the market itself decides, whoever needs less.
	replicas := held(0.5, 0.5, 0.5)
	replicas[0].Demand, replicas[2].Demand, replicas[2].Workload = 100, 100, "api"
	for i := range replicas {
		replicas[i].Node = "node0"
	}
	if got := settled(t, DefaultConfig(), replicas); got[0] != One || got[1] != One || got[2] != One {
		t.Errorf("where all is on one node, factors are %v", got)
	}
	replicas[2].Node = "node1" // of the other workload
	if got := settled(t, DefaultConfig(), replicas); got[0] != got[1] {
		t.Errorf("replicas on one node have the factors %v", got)
	}
	// A pod of no workload is one of its own, and so is every single replica.
	bare := Replica{Namespace: "a", BaseBudget: 100, Demand: 5000, Ceiling: 8000, UpToDate: true, Node: "cheap", Price: 0.1}
	dear := bare
	dear.Node, dear.Price = "dear", 0.6
	for i, f := range alone().Rebalance([]Replica{bare, dear}) {
		if f != One {
			t.Errorf("pod %d of no workload has the factor %d", i, f)
		}
	}
}

// held are replicas of one workload that want all they can get, at these prices.
func held(prices ...market.Price) []Replica {
	var all []Replica
	for i, p := range prices {
		all = append(all, Replica{
			Namespace: "shop", Workload: "web", Node: fmt.Sprint("node", i), BaseBudget: 300, Price: p,
			Demand: 100_000, Floor: 100, Ceiling: 100_000, Factor: One, UpToDate: true,
		})
	}
	return all
}

// settled are the factors that stay at fixed prices.
func settled(t *testing.T, c Config, replicas []Replica) []Factor {
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
	t.Fatal("at fixed prices it does not come to rest")
	return nil
}

func TestDearGetsMore(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	for range 1000 {
		var prices []market.Price
		for range 2 + rng.IntN(6) {
			prices = append(prices, market.Price(0.01+0.99*rng.Float64()))
		}
		replicas := held(prices...)
		next := alone().Rebalance(replicas)
		for i := range replicas {
			for k := range replicas {
				if prices[i] > prices[k] && next[i] < next[k] {
					t.Fatalf("at price %v the factor is %d, and at %v it is %d", prices[i], next[i], prices[k], next[k])
				}
			}
		}
	}
}

// TestPowerOfTheRatio: at fixed prices and within the bounds, the ratio of what budgets buy is the power 1/(1-rho) of what it was.
// TestNamespace: among its workloads the same holds, with a rho of its own.
func TestNamespace(t *testing.T) {
	c := DefaultConfig()
	c.Band, c.Gain = 0, 1
	replicas := held(0.2, 0.5)
	replicas[1].Workload = "api"
	got := settled(t, c, replicas)
	if ratio, want := float64(got[1])/float64(got[0]), math.Pow(0.5/0.2, c.NamespaceRho/(c.NamespaceRho-1)); math.Abs(ratio/want-1) > 0.03 {
		t.Errorf("two workloads of a namespace have the factors %v, a ratio of %.2f, want %.2f", got, ratio, want)
	}
	replicas[0].Demand = 10 // it needs nothing
	if got := settled(t, c, replicas); got[0] != c.MinFactor || got[1] != 150 {
		t.Errorf("where one workload needs nothing, factors are %v", got)
	}
}

// TestSpreadIsMoreEven: topology spread constraints of one replica count for all.
func TestSpreadIsMoreEven(t *testing.T) {
	usual, even := held(0.2, 0.5), held(0.2, 0.5)
	even[0].TopologySpread = true
	c := alone()
	c.WorkloadRho, c.Band = -1, 0
	a, b := settled(t, c, usual), settled(t, c, even)
	if b[1] <= a[1] || b[0] >= a[0] {
		t.Errorf("factors are %v, and with spread constraints %v", a, b)
	}
	if d := DefaultConfig(); d.SpreadRho >= d.WorkloadRho || d.WorkloadRho >= d.NamespaceRho {
		t.Errorf("rho is %v with spread constraints, %v without, and %v among workloads: want each weaker than the one before", d.SpreadRho, d.WorkloadRho, d.NamespaceRho)
	}
}

// TestPricesThatFollow: where a price follows the factor as its power a, less can be evened out: the power is 1/(1+|rho|(1-a)).
func TestSlackPaysFirst(t *testing.T) {
	c := alone()
	c.Gain, c.Band = 1, 0
	some := held(0.5, 0.5, 0.5)
	some[0].Demand = 400 // 0.5 x 400 x 1.25 of a budget of 300 is 0.83
	some[1].Demand = 100 // within its floor
	enough := held(0.5, 0.5, 0.5)
	enough[0].Demand, enough[1].Demand, enough[2].Demand = 400, 100, 500 // the last one needs 1.04
	within := held(0.9, 0.9)                                             // 0.9 x 240 x 1.25 would be 0.9, but all of it lies within the floor
	within[0].Demand, within[0].Floor = 240, 300
	capped := held(0.6, 0.3) // no more than 500m can be had, for a budget of 300
	capped[0].Ceiling = 500
	for name, x := range map[string]struct {
		replicas []Replica
		want     []Factor
	}{
		"one needs no more than its floor":                           {within, []Factor{50, 150}},
		"one has its ceiling for what it has":                        {capped, []Factor{100, 100}},
		"one needs 83%, one nothing, and one all it can get":         {some, []Factor{83, 50, 167}},
		"one needs 104%, and the others keep what it does not need":  {enough, []Factor{98, 98, 104}},
		"CPU that has no price needs no budget":                      {held(0, 0.5), []Factor{50, 150}},
		"where it has no price anywhere, all have their own budgets": {held(0, 0, 0), []Factor{100, 100, 100}},
	} {
		if d := cmp.Diff(x.want, settled(t, c, x.replicas)); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

func TestHelplessGetNothing(t *testing.T) {
	full := held(1.2, 0.3)
	full[0].Floor = 310 // a budget of 300 buys 250
	if got := settled(t, alone(), full); got[0] != One || got[1] != One {
		t.Errorf("where the floor is more than the budget buys, factors are %v", got)
	}
	near := held(0.8, 0.3)
	near[0].Floor = 310 // it buys 375
	some := settled(t, alone(), near)[0]
	if far := settled(t, alone(), held(0.8, 0.3))[0]; !(some > One && some < far) {
		t.Errorf("near its floor the factor is %d, far above it %d: want something in between", some, far)
	}
}

func TestPinnedNeverPays(t *testing.T) {
	replicas := held(0.1, 0.1, 0.5)
	replicas[0].FixedToNode, replicas[2].FixedToNode = true, true
	got := settled(t, alone(), replicas)
	if got[0] != One || got[1] >= One || got[2] <= One {
		t.Errorf("factors %v: want the pinned one as it was, its sibling lowered, and the dear one raised", got)
	}
	all := held(0.1, 0.5)
	all[0].FixedToNode, all[1].FixedToNode = true, true
	if got := settled(t, alone(), all); got[0] != One || got[1] != One {
		t.Errorf("where all are pinned, factors are %v", got)
	}
	for seed := range uint64(worlds) {
		rng := rand.New(rand.NewPCG(seed, 5))
		w := cluster(rng)
		w.play(DefaultConfig(), 20)
		for _, r := range w.replicas {
			if r.FixedToNode && r.Factor < One {
				t.Fatalf("seed %d: a pinned pod has the factor %d", seed, r.Factor)
			}
		}
	}
}

func TestStaleStays(t *testing.T) {
	replicas := held(0.1, 0.2, 0.4)
	before := settled(t, alone(), replicas)
	replicas[0].UpToDate, replicas[0].Price = false, 0.9
	if got := settled(t, alone(), replicas); got[0] != before[0] || got[1] != before[1] || got[2] != before[2] {
		t.Errorf("factors %v become %v when a node is silent", before, got)
	}
	// Odd figures are no figures.
	replicas[0].UpToDate = true
	for _, p := range []market.Price{-1, market.Price(math.NaN()), market.Price(math.Inf(1)), 2 * market.MaxPrice} {
		replicas[0].Price = p
		if got := alone().Rebalance(replicas); got[0] != before[0] {
			t.Errorf("at price %v the factor goes from %d to %d", p, before[0], got[0])
		}
	}
	// Budgets still add up, with what a silent node has.
	replicas = held(0.1, 0.2, 0.4)
	replicas[2].UpToDate, replicas[2].Factor = false, 160
	got := settled(t, alone(), replicas)
	if sum := got[0] + got[1] + got[2]; got[2] != 160 || sum < 285 || sum > 315 {
		t.Errorf("beside a silent node with 160%%: factors %v", got)
	}
}

// TestReplicasComeCloser: over many clusters, idle and full nodes among them, replicas are served more evenly, and the worst one better.
// TestComesToRest: from factors of 1 and from anywhere. The last that moves is seldom later than the tenth turn.
// TestLateFigures: where nodes show what a factor did a turn late, nearly all clusters still come to rest.
// TestGainBound: on the near side of 2 / (1 + (Most-1)/Reach) a node whose price follows the budgets comes to rest, and beyond it
// need not. All the pods that are held on such a node are replicas whose siblings are on cheaper ones.
func TestConfigReportsEverything(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Error(err)
	}
	bad := Config{WorkloadRho: 1, SpreadRho: math.NaN(), NamespaceRho: -1000, Gain: 0, Headroom: -1, FloorMargin: 0, Band: 1, MinFactor: 101, MaxFactor: 99}
	err := bad.Validate()
	if err == nil || len(err.(interface{ Unwrap() []error }).Unwrap()) != 8 {
		t.Errorf("Validate = %v, want eight complaints", err)
	}
}

// FuzzNext: whatever comes in, factors are within bounds, and the same again.
func FuzzNext(f *testing.F) {
	f.Add(uint64(1), 0.5, 0.1, int64(300), int64(1000), int64(100), int64(8000), int32(100), int32(100), uint8(3))
	f.Add(uint64(2), math.Inf(1), math.NaN(), int64(math.MinInt64), int64(math.MaxInt64), int64(-1), int64(0), int32(0), int32(math.MaxInt32), uint8(255))
	f.Add(uint64(3), 5e-324, float64(market.MaxPrice), int64(math.MaxInt64), int64(math.MaxInt64), int64(math.MaxInt64), int64(math.MaxInt64), int32(-5), int32(50), uint8(7))
	f.Fuzz(func(t *testing.T, seed uint64, price, other float64, own, demand, floor, ceiling int64, factor, second int32, flags uint8) {
		rng := rand.New(rand.NewPCG(seed, 7))
		var replicas []Replica
		for range 1 + rng.IntN(12) {
			r := Replica{
				Namespace: fmt.Sprint(rng.IntN(2)), Workload: []string{"", "a", "b"}[rng.IntN(3)], Node: fmt.Sprint(rng.IntN(4)),
				BaseBudget: market.Budget(own), Price: market.Price(price), Demand: cpu.Milli(demand), Floor: cpu.Milli(floor), Ceiling: cpu.Milli(ceiling),
				Factor: Factor(factor), TopologySpread: flags&1 > 0, FixedToNode: rng.IntN(2) == 0 && flags&2 > 0, UpToDate: rng.IntN(4) > 0 || flags&4 > 0,
			}
			if rng.IntN(2) == 0 {
				r.Price, r.Factor, r.BaseBudget, r.Demand = market.Price(other), Factor(second), market.Budget(rng.IntN(1000)), cpu.Milli(rng.IntN(5000))
			}
			replicas = append(replicas, r)
		}
		c := DefaultConfig()
		next, again := c.Rebalance(replicas), c.Rebalance(replicas)
		for i, r := range replicas {
			switch {
			case next[i] != again[i]:
				t.Fatalf("replica %d has the factor %d, and then %d", i, next[i], again[i])
			case !r.UpToDate && next[i] != r.Factor && !(r.Factor <= 0 && next[i] == One):
				t.Fatalf("replica %d of which nothing is known goes from %d to %d", i, r.Factor, next[i])
			case r.UpToDate && r.Price >= 0 && r.Price <= market.MaxPrice && (next[i] < c.MinFactor || next[i] > c.MaxFactor):
				t.Fatalf("replica %d has the factor %d: %+v", i, next[i], r)
			}
		}
	})
}
