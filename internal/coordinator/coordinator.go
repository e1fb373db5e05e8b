// Package coordinator makes equal budgets buy equal CPU across nodes. Each node clears a market of its own, so what a pod's
// budget buys depends on who its neighbours are. The coordinator looks at all nodes now and then and moves budget between the
// replicas of a workload, and between the workloads of a namespace: from where CPU is cheap to where it is dear. It gives each pod
// a factor for its budget and nothing else; nodes clear as before, and without it every factor is 1.
//
// In the words of the field: a node is a good, a workload is a buyer whose replicas serve evenly, so that CPU on one node does not
// replace CPU on another (complements: a CES utility with rho < 0). A turn moves every buyer's bids towards what it would bid at the
// prices in force, which is a damped proportional response (Zhang 2011; Cheung, Cole and Tao 2018). docs/theory.md derives the rule,
// what it comes to and why it does not swing.
//
// What it promises, each a test of the same name:
//   - Bounded: every factor lies within Least and Most, whatever comes in.
//   - Conserved: the budgets of a namespace add up to what they are without the coordinator and, where namespaces are left
//     alone, so do those of a workload: but for the dead band, and as far as the bounds allow.
//   - OneNodeIsLeftAlone: where all pods of a workload, or of a namespace, are on one node, it moves nothing between them.
//   - DearGetsMore: among replicas that want more than they get, budget goes from cheap nodes to dear ones, never the other way.
//   - SlackPaysFirst: who needs less than its budget buys pays first, and keeps what it needs and Headroom.
//   - HelplessGetNothing: where budget buys hardly more than the floor, nobody pays for it.
//   - PinnedNeverPays: a pod that can run on no other node is raised but never lowered.
//   - StaleStays: a replica of which nothing is known keeps its factor, and its siblings count on that.
//   - ComesToRest: when nothing changes but prices that follow factors, factors come to rest.
//   - AgreesWithOracle: without bounds it ends at the equilibrium that a slow obvious solver finds.
package coordinator

import (
	"errors"
	"fmt"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/market"
)

// Factor is what a pod's budget is multiplied by, in percent.
type Factor int32

// One leaves a budget as it is.
const One Factor = 100

// Config is how budgets are moved.
type Config struct {
	// WorkloadRho is rho, the exponent of the CES utility, among the replicas of a workload: less than 0, or 0, which moves nothing.
	// At fixed prices what a budget buys on one node and on another comes closer to each other as the power 1/(1-rho) of
	// their ratio. Further from 0 is more even; nearer to 0 takes less from other tenants of dear nodes.
	WorkloadRho float64
	// SpreadRho is the same where topology spread constraints hold, so that replicas must serve evenly.
	SpreadRho float64
	// NamespaceRho is the same among the workloads of a namespace, which need not. Further from 0 makes them more
	// alike, and leaves less room within the bounds for the replicas of each.
	NamespaceRho float64
	// Gain is how far, as a power, a factor moves in a turn towards what it should be, in (0, 1]. Larger is there sooner; smaller
	// lets noise of prices and demands pass. From 2 / (1 + (Most-1)/Reach) on, factors may swing.
	Gain float64
	// Headroom is how much budget a replica that pays for others keeps beyond what it needs, as a share of that. Larger leaves it more
	// room to grow until the next turn; smaller leaves more for others.
	Headroom float64
	// FloorMargin is how far above its floor, as a share, a replica's own budget must buy for its factor to be raised in full. Larger spends
	// less where neighbours are near their floors, too, so that there is little to be had; smaller helps on fuller nodes.
	FloorMargin float64
	// Band is the relative distance from what it should be at which a factor stays as it is. Larger writes less; smaller is
	// more even.
	Band float64
	// Least and Most bound a factor. Wider is more even; narrower protects neighbours, and a pod whose node gets dear
	// before the next turn.
	MinFactor, MaxFactor Factor
}

// DefaultConfig is what we would run ourselves.
func DefaultConfig() Config {
	return Config{
		WorkloadRho: -9, SpreadRho: -19, NamespaceRho: -0.5,
		Gain: 0.5, Headroom: 0.25, FloorMargin: 0.5, Band: 0.05, MinFactor: 50, MaxFactor: 200,
	}
}

// Validate says everything that is wrong.
func (c Config) Validate() error {
	var errs []error
	for _, f := range []struct {
		name      string
		v         float64
		low, high float64
	}{
		{"WorkloadRho", c.WorkloadRho, minRho, 0},
		{"SpreadRho", c.SpreadRho, minRho, 0},
		{"NamespaceRho", c.NamespaceRho, minRho, 0},
		{"Gain", c.Gain, 0.01, 1},
		{"Headroom", c.Headroom, 0.01, 10},
		{"FloorMargin", c.FloorMargin, 0.01, 10},
		{"Band", c.Band, 0, 0.5},
	} {
		if !(f.v >= f.low && f.v <= f.high) {
			errs = append(errs, fmt.Errorf("coordinator %s is %v: want %v to %v", f.name, f.v, f.low, f.high))
		}
	}
	if !(c.MinFactor >= 1 && c.MinFactor <= One && c.MaxFactor >= One && c.MaxFactor <= maxFactor) {
		errs = append(errs, fmt.Errorf("coordinator MinFactor is %d%% and MaxFactor %d%%: want 1 to %d, and %d to %d", c.MinFactor, c.MaxFactor, One, One, maxFactor))
	}
	return errors.Join(errs...)
}

const (
	// minRho is nearly Leontief, where only the worst served replica counts, and where factors drift to the bounds
	// if prices follow them.
	minRho    = -99
	maxFactor = 100 * One
)

// Replica is one managed pod, as its node sees it.
type Replica struct {
	Namespace string
	// Workload is what the pod is a replica of, by a name unique in its namespace; empty: of nothing.
	Workload string
	Node     string
	// BaseBudget is its budget without a factor: that of the containers that its limit is for.
	BaseBudget market.Budget
	// Price is its node's, and Demand, Floor and Ceiling are those of its limit, as of its last decision. Where a neighbour's is later,
	// that one's price is the better one.
	Price          market.Price
	Demand         cpu.Milli
	Floor, Ceiling cpu.Milli
	Factor         Factor // in force; 0: One
	// TopologySpread: topology spread constraints hold for it. One such replica is enough for its whole workload.
	TopologySpread bool
	// FixedToNode: it can run on no other node, so no scheduler can ever help it.
	FixedToNode bool
	// UpToDate: this is what its node says now.
	UpToDate bool
}
