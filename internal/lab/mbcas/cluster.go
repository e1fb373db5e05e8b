package mbcas

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/mbcas/mbcas/internal/coordinator"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/lab/sim"
	"github.com/mbcas/mbcas/market"
)

// Cluster is nodes under MBCAS and a coordinator, which sees what all of them have published.
// Replicas of a workload have its name and namespace on every node.
type Cluster struct {
	// Coordinate is the coordinator; nil where there is none.
	Coordinate func([]coordinator.Replica) []coordinator.Factor
	// Interval is the time between two rounds of the coordinator.
	Interval time.Duration
	// ForEach calls do n times, in any order or in parallel. It returns false where it stopped
	// early.
	ForEach func(n int, do func(i int)) bool
}

// ClusterResult is the result of a cluster.
type ClusterResult struct {
	Nodes []sim.Result // in the order of the set-ups
	// Changed is how many factors the coordinator changed, by the time of its round.
	Changed map[time.Duration]int
	// Factors are those in force at the end, for each node by namespace and name.
	Factors []map[string]coordinator.Factor
}

// node is one node in progress.
type node struct {
	mbcas      *MBCAS
	simulation *sim.Simulation
}

// Run simulates all nodes to the end. Between two rounds nodes are independent, so the result does
// not depend on how many run at a time. It returns false where ForEach stopped early.
func (c Cluster) Run(cfg Config, setups []sim.Setup) (ClusterResult, bool) {
	nodes := make([]node, len(setups))
	end := time.Duration(0)
	for i, s := range setups {
		mbcas := New(cfg)
		nodes[i] = node{mbcas, sim.Start(s, mbcas)}
		end = max(end, s.Length)
	}
	played := ClusterResult{Changed: map[time.Duration]int{}}
	for at := time.Duration(0); at < end; {
		at = min(at+c.Interval, end)
		if !c.ForEach(len(nodes), func(i int) { nodes[i].simulation.RunUntil(at) }) {
			return ClusterResult{}, false
		}
		if c.Coordinate != nil && at < end {
			played.Changed[at] = c.coordinate(nodes)
		}
	}
	for _, n := range nodes {
		played.Nodes = append(played.Nodes, n.simulation.Result())
		factors := make(map[string]coordinator.Factor, len(n.mbcas.pods))
		for _, p := range n.mbcas.pods {
			factors[p.name] = p.factor
		}
		played.Factors = append(played.Factors, factors)
	}
	return played, true
}

// coordinate is one round of the coordinator on what has been published. The nodes' next rounds use
// its factors. It returns how many have changed.
func (c Cluster) coordinate(nodes []node) (changed int) {
	var pods []*pod
	var replicas []coordinator.Replica
	for i := range nodes {
		known := nodes[i].mbcas.pods
		for _, id := range slices.Sorted(maps.Keys(known)) {
			if p := known[id]; p.spec.Managed() {
				pods = append(pods, p)
				replicas = append(replicas, p.replica(strconv.Itoa(i), nodes[i].mbcas.out.Node.Price))
			}
		}
	}
	for i, f := range c.Coordinate(replicas) {
		if f != pods[i].factor {
			pods[i].factor = f
			changed++
		}
	}
	return changed
}

// replica is the pod as its PodAllocation shows it, at the price that its node's agent said last.
func (p *pod) replica(node string, price market.Price) coordinator.Replica {
	return coordinator.Replica{
		Namespace: p.spec.Namespace, Workload: p.spec.Workload, Node: node,
		BaseBudget: demand.Budget(p.spec.Request, p.spec.Priority),
		Price:      price, Demand: p.published.Demand, Floor: p.floor, Ceiling: p.ceiling,
		Factor: p.factor, TopologySpread: p.spec.Spread, FixedToNode: p.spec.Pinned, UpToDate: !p.published.At.IsZero(),
	}
}
