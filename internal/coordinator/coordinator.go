// Package coordinator moves budget between pods on different nodes, so that equal budgets buy equal
// CPU in a cluster. Each node clears a market of its own, so what a pod's budget buys depends on
// the other pods of its node. At an interval the coordinator compares the prices of all nodes and
// moves budget between the replicas of a workload, and between the workloads of a namespace, from
// nodes with a low price to nodes with a high one. Its only output is a factor on each pod's
// budget. Nodes clear as before; without the coordinator every factor is 1. It is pure.
//
// In economic terms a node is a good and a workload is a buyer whose replicas serve evenly, so CPU
// on one node does not replace CPU on another: complements, with a CES utility of rho < 0. A step
// moves the bids of every buyer towards those for the prices in force, a damped proportional
// response (Zhang 2011; Cheung, Cole and Tao 2018). docs/theory.md derives the rule and its
// stability.
//
// What it promises, each a test of the same name:
//   - Bounded: every factor is between MinFactor and MaxFactor, for any input.
//   - Conserved: the budgets of a namespace add up to what they are without the coordinator and, if
//     NamespaceRho is 0, so do those of a workload, within the dead band and as far as the bounds
//     allow.
//   - OneNodeIsUnchanged: where all pods of a workload, or of a namespace, are on one node, no
//     budget moves between them.
//   - HigherPricesGetMore: among replicas that demand more than they get, budget moves from low
//     prices to high ones, never the other way.
//   - SlackPaysFirst: a replica that needs less than its budget buys pays first, and keeps what it
//     needs with Headroom.
//   - NoBudgetWithoutEffect: a replica whose budget buys hardly more than its floor gets no budget
//     of others.
//   - FixedToNodeNeverPays: the factor of a pod that can run on no other node is never below 1.
//   - OutdatedStays: the factor of a replica without current figures stays, and the other replicas
//     account for it.
//   - Converges: while nothing changes but prices that follow factors, factors converge.
//   - AgreesWithOracle: without bounds the result is the equilibrium that a slow obvious solver
//     finds.
package coordinator

import (
	"errors"
	"fmt"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/market"
)

// Factor multiplies a pod's budget, in percent.
type Factor int32

// Neutral leaves a budget as it is.
const Neutral Factor = 100

// Config is the settings of the coordinator.
type Config struct {
	// WorkloadRho is rho, the exponent of the CES utility, among the replicas of a workload: below 0,
	// or 0, which moves nothing. At fixed prices the ratio of what a budget buys on two nodes is
	// reduced to its power 1/(1-rho). Further from 0 is more even; nearer to 0 takes less from other
	// pods of nodes with high prices.
	WorkloadRho float64
	// SpreadRho is the same for workloads with topology spread constraints, whose replicas must
	// serve evenly.
	SpreadRho float64
	// NamespaceRho is the same among the workloads of a namespace, which need not serve evenly.
	// Further from 0 makes them more alike, and leaves less room within the bounds for the replicas
	// of each.
	NamespaceRho float64
	// Gain is how far, as a power, a factor moves in a step towards its target, in (0, 1]. Larger
	// converges sooner; smaller filters noise of prices and demands. From
	// 2 / (1 + (MaxFactor-1)/FloorMargin) on, factors may oscillate.
	Gain float64
	// Headroom is how much budget a replica that pays keeps beyond its need, as a share of that.
	// Larger leaves it more room to grow until the next step; smaller leaves more for others.
	Headroom float64
	// FloorMargin is how far above its floor, as a share, the budget of a replica must buy for its
	// factor to be raised in full. Larger spends less where other pods are near their floors, too, so
	// that little can be gained; smaller helps on fuller nodes.
	FloorMargin float64
	// Band is the relative distance from its target at which a factor stays. Larger writes less;
	// smaller is more even.
	Band float64
	// MinFactor and MaxFactor bound a factor. Wider is more even; narrower protects other pods, and a
	// pod whose node gets a higher price before the next step.
	MinFactor, MaxFactor Factor
}

// DefaultConfig is the recommended config.
func DefaultConfig() Config {
	return Config{
		WorkloadRho: -9, SpreadRho: -19, NamespaceRho: -0.5,
		Gain: 0.5, Headroom: 0.25, FloorMargin: 0.5, Band: 0.05, MinFactor: 50, MaxFactor: 200,
	}
}

// Validate returns every fault, joined.
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
	if !(c.MinFactor >= 1 && c.MinFactor <= Neutral && c.MaxFactor >= Neutral && c.MaxFactor <= factorLimit) {
		errs = append(errs, fmt.Errorf("coordinator MinFactor is %d%% and MaxFactor %d%%: want 1 to %d, and %d to %d",
			c.MinFactor, c.MaxFactor, Neutral, Neutral, factorLimit))
	}
	return errors.Join(errs...)
}

const (
	// minRho is nearly a Leontief utility, where only the replica that is served worst counts, and
	// factors drift to the bounds if prices follow them.
	minRho      = -99
	factorLimit = 100 * Neutral
)

// Replica is one managed pod, with the figures of its node's last published decisions.
type Replica struct {
	Namespace string
	// Workload names the pod's workload, uniquely in the namespace; empty: none.
	Workload string
	Node     string
	// BaseBudget is its budget without a factor: that of its limited containers.
	BaseBudget market.Budget
	// Price is that of its node. Demand, Floor and Ceiling are those of its own decision, which may be
	// older.
	Price          market.Price
	Demand         cpu.Milli
	Floor, Ceiling cpu.Milli
	Factor         Factor // in force; 0: Neutral
	// TopologySpread: it has topology spread constraints. One such replica counts for its workload.
	TopologySpread bool
	// FixedToNode: it can run on no other node, so no scheduler can help it.
	FixedToNode bool
	// UpToDate: the agent of its node is alive, so the figures are current.
	UpToDate bool
}
