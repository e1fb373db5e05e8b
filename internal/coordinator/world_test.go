package coordinator

import (
	"fmt"
	"math/rand/v2"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/market"
)

// world is a cluster in which only factors and prices change: each node clears its market at once,
// with the true demands.
type world struct {
	supply   map[string]cpu.Milli
	replicas []Replica
}

// clear sets the prices of all nodes.
func (w *world) clear() {
	books := map[string][]market.Bid{}
	for _, r := range w.replicas {
		books[r.Node] = append(books[r.Node], bid(r))
	}
	prices := map[string]market.Price{}
	for node, bids := range books {
		p := market.Clear(market.Problem{Supply: w.supply[node], Bids: bids}).Price
		if p == market.MaxPrice { // as package round does: the lowest price at which all are at their floors
			p = 0
			for _, b := range bids {
				if b.Demand > b.Floor {
					p = max(p, market.Price(float64(b.Budget)/float64(max(1, b.Floor))))
				}
			}
		}
		prices[node] = p
	}
	for i := range w.replicas {
		w.replicas[i].Price = prices[w.replicas[i].Node]
	}
}

func bid(r Replica) market.Bid {
	budget := r.BaseBudget * market.Budget(r.Factor) / market.Budget(Neutral)
	return market.Bid{Budget: budget, Demand: r.Demand, Floor: r.Floor, Ceiling: r.Ceiling}
}

// got is the expected usage of a replica.
func got(r Replica) cpu.Milli { return bid(r).Usage(r.Price) }

// step is one step of the coordinator; it returns how many factors changed.
func (w *world) step(c Config) int {
	changed := 0
	for i, f := range c.Rebalance(w.replicas) {
		if f != w.replicas[i].Factor {
			w.replicas[i].Factor = f
			changed++
		}
	}
	return changed
}

// converge takes at most limit steps, until no factor changes, and returns their number.
func (w *world) converge(c Config, limit int) int {
	for step := range limit {
		w.clear()
		if w.step(c) == 0 {
			return step
		}
	}
	return limit
}

// cluster draws nodes with different prices, tenants with one node each, and workloads with
// several. Some nodes are idle, and on some the floors exceed the supply.
func cluster(rng *rand.Rand) *world {
	nodes := 2 + rng.IntN(20)
	w := &world{supply: map[string]cpu.Milli{}}
	add := func(r Replica) {
		r.Floor, r.Ceiling, r.Factor, r.UpToDate = cpu.Milli(r.BaseBudget)+10, 8_000, Neutral, true
		w.replicas = append(w.replicas, r)
	}
	maxBudget := 100 + rng.IntN(500) // budget of a pod
	for n := range nodes {
		node := fmt.Sprint("node", n)
		cores := 2 + rng.IntN(7)
		w.supply[node] = cpu.Milli(900 * cores)
		for t := range rng.IntN(2 * cores) {
			add(Replica{
				Namespace: fmt.Sprint("tenant", n, "-", t), Workload: "tenant", Node: node,
				BaseBudget: market.Budget(10 + rng.IntN(maxBudget)), Demand: cpu.Milli(100 + rng.IntN(3000)),
			})
		}
	}
	for k := range nodes {
		r := Replica{
			Namespace: fmt.Sprint("ns", rng.IntN(1+nodes/3)), Workload: fmt.Sprint("w", k),
			BaseBudget: market.Budget(10 + rng.IntN(maxBudget)), Demand: cpu.Milli(200 + rng.IntN(2000)),
			TopologySpread: rng.IntN(4) == 0,
		}
		for range 1 + rng.IntN(7) {
			r.Node, r.FixedToNode = fmt.Sprint("node", rng.IntN(nodes)), rng.IntN(10) == 0
			add(r)
		}
	}
	return w
}

// shuffled draws factors in force.
func (w *world) shuffled(rng *rand.Rand) *world {
	for i := range w.replicas {
		w.replicas[i].Factor = Factor(50 + rng.IntN(151))
	}
	return w
}

// budgets are the sums, by a key, of budgets with and without factors.
func budgets(replicas []Replica, key func(Replica) string) (with, own map[string]float64) {
	with, own = map[string]float64{}, map[string]float64{}
	for _, r := range replicas {
		with[key(r)] += float64(r.BaseBudget) * float64(r.Factor) / float64(Neutral)
		own[key(r)] += float64(r.BaseBudget)
	}
	return with, own
}

func ofNamespace(r Replica) string { return r.Namespace }
func ofWorkload(r Replica) string  { return r.Namespace + "/" + r.Workload }
