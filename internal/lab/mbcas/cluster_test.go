package mbcas

import (
	"fmt"
	"math"
	"reflect"
	"sync"
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

// unequalPairs is nodes in pairs, with six neighbours of a workload's replica on the one and one neighbour on the other. All want two cores.
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

// replicaUsage are what the replicas of the pairs use in the last minute: dear, cheap, dear, cheap and so on.
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

// TestAnyOrder: a cluster's run does not depend on the order in which its nodes are played, nor on how many at a time.
func TestAnyOrder(t *testing.T) {
	play := func(each func(int, func(int)) bool) ClusterResult {
		c := Cluster{Coordinate: coordinator.DefaultConfig().Rebalance, Interval: 10 * time.Second, ForEach: each}
		p, _ := c.Run(DefaultConfig(), unequalPairs(2, time.Minute, 1000))
		return p
	}
	want := play(inOrder)
	for name, each := range map[string]func(int, func(int)) bool{
		"the last one first": func(n int, do func(int)) bool {
			for i := range n {
				do(n - 1 - i)
			}
			return true
		},
		"all at a time": func(n int, do func(int)) bool {
			var all sync.WaitGroup
			for i := range n {
				all.Go(func() { do(i) })
			}
			all.Wait()
			return true
		},
	} {
		if got := play(each); !reflect.DeepEqual(got, want) {
			t.Errorf("played %s, the cluster ends otherwise", name)
		}
	}
	if len(want.Rounds) != 5 || want.Rounds[4].Pods != 18 {
		t.Errorf("turns: %+v", want.Rounds)
	}
	stopped := Cluster{Interval: time.Second, ForEach: func(int, func(int)) bool { return false }}
	if _, ok := stopped.Run(DefaultConfig(), unequalPairs(1, time.Minute, 1000)); ok {
		t.Error("nothing was played, and it does not say so")
	}
}

// TestWithoutCoordinator: nodes that are played side by side, with rests, are as those that are played alone.
func TestWithoutCoordinator(t *testing.T) {
	setups := unequalPairs(1, time.Minute, 1000)
	p, _ := Cluster{Interval: 7 * time.Second, ForEach: inOrder}.Run(DefaultConfig(), setups)
	for i, s := range setups {
		if !reflect.DeepEqual(p.Nodes[i], sim.Run(s, New(DefaultConfig()))) {
			t.Errorf("node %d ends otherwise", i)
		}
	}
}

// byOwnDemand is the rule that suggests itself: each replica's satisfaction is its limit over its own demand, and budget goes to it as
// its own budget times that to the power of rho.
func byOwnDemand(rho, gain float64) func([]coordinator.Replica) []coordinator.Factor {
	return func(replicas []coordinator.Replica) []coordinator.Factor {
		next := make([]coordinator.Factor, len(replicas))
		for i := range replicas {
			next[i] = coordinator.One
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

// TestOwnDemandIsBlind: who is throttled all the time shows at most twice what it has, so by its own demand each replica seems to be
// served as well as the other. That is why the coordinator does not go by it.
func TestOwnDemandIsBlind(t *testing.T) {
	ratio := func(next func([]coordinator.Replica) []coordinator.Factor) float64 {
		p, _ := Cluster{Coordinate: next, Interval: 30 * time.Second, ForEach: inOrder}.Run(DefaultConfig(), unequalPairs(1, 6*time.Minute, 600))
		g := replicaUsage(p)
		return g[1] / g[0]
	}
	off, blind, on := ratio(nil), ratio(byOwnDemand(-9, 0.1)), ratio(coordinator.DefaultConfig().Rebalance)
	t.Logf("the cheap replica uses %.2f times as much as the dear one; by own demand %.2f; with the coordinator %.2f", off, blind, on)
	if blind < 0.9*off {
		t.Errorf("by own demand the ratio falls from %.2f to %.2f", off, blind)
	}
	if on > 0.7*off {
		t.Errorf("with the coordinator the ratio falls from %.2f to %.2f only", off, on)
	}
}

// TestFactorsAreBudgets: a node's market takes a factor as it takes a budget.
func TestFactorsAreBudgets(t *testing.T) {
	fixed := func(replicas []coordinator.Replica) []coordinator.Factor {
		next := make([]coordinator.Factor, len(replicas))
		for i, r := range replicas {
			next[i] = coordinator.One
			if r.Workload != "" {
				next[i] = 70
			}
		}
		return next
	}
	p, _ := Cluster{Coordinate: fixed, Interval: 20 * time.Second, ForEach: inOrder}.Run(DefaultConfig(), unequalPairs(1, 3*time.Minute, 1000))
	pods := p.Nodes[0].Pods
	last := func(i int) float64 { return pods[i].Points[len(pods[i].Points)-1].Limit.Cores() }
	if got := last(6) / last(0); math.Abs(got-0.7) > 0.05 {
		t.Errorf("with 70%% of the budget the limit is %.2f of its neighbours'", got)
	}
	if f := p.Factors[0]; f["shop/web0"] != 70 || f["n0/neighbour0"] != coordinator.One {
		t.Errorf("factors at the end: %v", p.Factors[0])
	}
}
