package mbcas

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/coordinator"
	"github.com/mbcas/mbcas/internal/lab/load"
	"github.com/mbcas/mbcas/internal/lab/sim"
)

// inOrder after the other, in order.
func inOrder(n int, do func(int)) bool {
	for i := range n {
		do(i)
	}
	return true
}

// unequalPairs are pairs of nodes. A workload has a replica on each, beside six other pods on the
// first and one on the second. All pods demand two cores, so the first node has the higher price.
func unequalPairs(pairs int, length time.Duration, declared cpu.Milli) []sim.Setup {
	setups := make([]sim.Setup, 2*pairs)
	for i := range setups {
		s := sim.Setup{Machine: sim.Machine{Cores: 4}, Length: length, Seed: uint64(i)}
		for n := range []int{6, 1}[i%2] {
			s.Pods = append(s.Pods, sim.PodSpec{Name: fmt.Sprint("neighbour", n), Namespace: fmt.Sprint("n", i), Request: 250, Limit: declared, Spin: load.Constant(2)})
		}
		s.Pods = append(s.Pods, sim.PodSpec{Name: fmt.Sprint("web", i), Namespace: "shop", Workload: fmt.Sprint("web", i/2), Request: 250, Limit: declared, Spin: load.Constant(2)})
		setups[i] = s
	}
	return setups
}

// replicaUsage is the usage of the replicas in the last minute: high price, low price, and so on.
func replicaUsage(p ClusterResult) []float64 {
	var all []float64
	for _, n := range p.Nodes {
		pod := n.Pods[len(n.Pods)-1]
		sum := 0.0
		for _, x := range pod.Points[len(pod.Points)-60:] {
			sum += x.Usage.Cores() / 60
		}
		all = append(all, sum)
	}
	return all
}

// byOwnDemand is a simpler rule: satisfaction is a replica's limit over its own demand, and its
// factor follows satisfaction to the power of rho.
func byOwnDemand(rho, gain float64) func([]coordinator.Replica) []coordinator.Factor {
	return func(replicas []coordinator.Replica) []coordinator.Factor {
		next := make([]coordinator.Factor, len(replicas))
		for i := range replicas {
			next[i] = coordinator.Neutral
		}
		for k := 0; ; k++ {
			var of []int
			for i, r := range replicas {
				if r.Workload == fmt.Sprint("web", k) {
					of = append(of, i)
				}
			}
			if len(of) == 0 {
				return next
			}
			var bids []float64
			sum := 0.0
			for _, i := range of {
				r := replicas[i]
				limit := max(float64(r.Floor), float64(r.BaseBudget)*float64(r.Factor)/100/max(float64(r.Price), 1e-3))
				bid := math.Pow(min(1, limit/float64(r.Demand)), rho)
				bids, sum = append(bids, bid), sum+bid
			}
			for n, i := range of {
				want := bids[n] / sum * float64(len(of))
				f := math.Pow(float64(replicas[i].Factor)/100, 1-gain) * math.Pow(want, gain)
				next[i] = coordinator.Factor(math.Round(100 * min(2, max(0.5, f))))
			}
		}
	}
}

// TestOwnDemandIsBlind: a throttled pod shows at most twice its limit as demand, so by their own
// demand all replicas seem equally satisfied. So the coordinator does not compare replicas by their
// own demand.
func TestOwnDemandIsBlind(t *testing.T) {
	ratio := func(next func([]coordinator.Replica) []coordinator.Factor) float64 {
		p, _ := Cluster{Coordinate: next, Interval: 30 * time.Second, ForEach: inOrder}.Run(priceAlone(), unequalPairs(1, 6*time.Minute, 600))
		g := replicaUsage(p)
		return g[1] / g[0]
	}
	off, blind, on := ratio(nil), ratio(byOwnDemand(-9, 0.1)), ratio(coordinator.DefaultConfig().Rebalance)
	t.Logf("the replica at the low price uses %.2f times as much as the other; by own demand %.2f; with the coordinator %.2f", off, blind, on)
	if blind < 0.9*off {
		t.Errorf("by own demand the ratio falls from %.2f to %.2f", off, blind)
	}
	if on > 0.7*off {
		t.Errorf("with the coordinator the ratio falls from %.2f to %.2f only", off, on)
	}
}

// TestFactorsAreBudgets: a factor changes a limit as a budget does.
func TestFactorsAreBudgets(t *testing.T) {
	fixed := func(replicas []coordinator.Replica) []coordinator.Factor {
		next := make([]coordinator.Factor, len(replicas))
		for i, r := range replicas {
			next[i] = coordinator.Neutral
			if r.Workload != "" {
				next[i] = 70
			}
		}
		return next
	}
	p, _ := Cluster{Coordinate: fixed, Interval: 20 * time.Second, ForEach: inOrder}.Run(priceAlone(), unequalPairs(1, 3*time.Minute, 1000))
	pods := p.Nodes[0].Pods
	last := func(i int) float64 { return pods[i].Points[len(pods[i].Points)-1].Limit.Cores() }
	if got := last(6) / last(0); math.Abs(got-0.7) > 0.05 {
		t.Errorf("with 70%% of the budget the limit is %.2f of its neighbours'", got)
	}
	if f := p.Factors[0]; f["shop/web0"] != 70 || f["n0/neighbour0"] != coordinator.Neutral {
		t.Errorf("factors at the end: %v", p.Factors[0])
	}
}
