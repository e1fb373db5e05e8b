package experiment

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/coordinator"
	"github.com/mbcas/mbcas/internal/lab/load"
	"github.com/mbcas/mbcas/internal/lab/mbcas"
	"github.com/mbcas/mbcas/internal/lab/sim"
)

// Fairness is a cluster whose nodes have different prices, and workloads whose replicas are spread
// over them. Every node has four cores, some tenants that are on no other node, and two replicas of
// workloads. All bid with the same budget and demand more than their share. A workload has two to
// eight replicas on random nodes with the same demand, and a namespace one to four workloads. One
// workload in five has topology spread constraints, and one replica in twenty is pinned. The demand
// of tenants changes over time.
type Fairness struct {
	// Policy is the config of MBCAS.
	Policy mbcas.Config

	Nodes int
	Seed  uint64
	// MinTenants and MaxTenants bound the number of tenants of a node. The fewer there are, the
	// more a node's price follows the bids of its replicas, and the less can be moved.
	MinTenants, MaxTenants int
	// TenantStdDev is the standard deviation of a tenant's threads over time.
	TenantStdDev float64
	// Length is the simulated time, a multiple of CoordinationInterval.
	Length time.Duration
	// CoordinationInterval is the time between two rounds of the coordinator.
	CoordinationInterval time.Duration
}

// DefaultFairness is the cluster of docs/lab.md.
func DefaultFairness() Fairness {
	return Fairness{Policy: mbcas.DefaultConfig(), Nodes: 1000, Seed: 1, MinTenants: 2, MaxTenants: 10, TenantStdDev: 0.3, Length: 6 * time.Minute, CoordinationInterval: 30 * time.Second}
}

const (
	fairCores   = 4
	fairRequest = 120              // of every pod, in thousandths of a core
	fairLimit   = cpu.Core         // as declared
	fairSpin    = 2                // threads of a replica, and of a tenant on average
	fairEvery   = 20 * time.Second // how often a tenant's threads change
)

// Setups are the nodes.
func (f Fairness) Setups() []sim.Setup {
	rng := rand.New(rand.NewPCG(f.Seed, uint64(f.Nodes)))
	setups := make([]sim.Setup, f.Nodes)
	var places []int
	for i := range setups {
		s := sim.Setup{Machine: sim.Machine{Cores: fairCores}, Length: f.Length, WarmUp: f.CoordinationInterval, Seed: rng.Uint64(), Interval: f.CoordinationInterval}
		for t := range f.MinTenants + rng.IntN(f.MaxTenants-f.MinTenants+1) {
			s.Pods = append(s.Pods, sim.PodSpec{
				Name: "pod", Namespace: fmt.Sprintf("tenant-%d-%d", i, t), Request: fairRequest, Limit: fairLimit,
				Spin: load.RandomWalk(rng, fairSpin, f.TenantStdDev, fairEvery, f.Length),
			})
		}
		setups[i] = s
		places = append(places, i, i)
	}
	rng.Shuffle(len(places), func(a, b int) { places[a], places[b] = places[b], places[a] })
	namespace, full := 0, 0
	for w := 0; len(places) > 0; w++ {
		size := min(2+rng.IntN(7), len(places))
		spread := rng.IntN(5) == 0
		for r, i := range places[:size] {
			setups[i].Pods = append(setups[i].Pods, sim.PodSpec{
				Name: fmt.Sprintf("%s-%d", workloadName(w), r), Namespace: fmt.Sprint("shop-", namespace), Workload: workloadName(w),
				Request: fairRequest, Limit: fairLimit, Spread: spread, Pinned: rng.IntN(20) == 0,
				Spin: load.Constant(fairSpin),
			})
		}
		places = places[size:]
		if full++; full > rng.IntN(4) {
			namespace, full = namespace+1, 0
		}
	}
	return setups
}

// FairnessResult is the result of a run of Fairness.
type FairnessResult struct {
	Workloads, Replicas int // of workloads with several replicas
	Intervals           []Interval
	// Groups are the nodes by number of tenants: more tenants, higher price. Figures are means over
	// the last third of the run.
	Groups []Group
}

// Interval is the time between two rounds. A replica's satisfaction is its usage per demand.
type Interval struct {
	At time.Duration // its end
	// Spread is the satisfaction of a workload's best replica less that of its worst, mean over
	// workloads. In a tenth of them it exceeds Wide.
	Spread, Wide float64
	// Worst is that of a workload's worst replica, the mean over workloads, and Mean that of all
	// replicas.
	Worst, Mean float64
	// Factors and Limits count changes.
	Factors, Limits int
}

// Group is the nodes of one number of tenants.
type Group struct {
	Tenants, Nodes        int
	Price, Idle           float64
	TenantUse, ReplicaUse float64 // cores of a pod
	// Factor is the mean of its replicas' at the end. Budgets is how much they raise the sum of a
	// node's budgets, which is what tenants lose in the long run.
	Factor, Budgets float64
}

// Run simulates it with a coordinator, or without where next is nil. It returns false where each
// stopped early; see mbcas.Cluster.
func (f Fairness) Run(next func([]coordinator.Replica) []coordinator.Factor, each func(n int, do func(i int)) bool) (FairnessResult, bool) {
	cluster := mbcas.Cluster{Coordinate: next, Interval: f.CoordinationInterval, ForEach: each}
	played, ok := cluster.Run(f.Policy, f.Setups())
	if !ok {
		return FairnessResult{}, false
	}
	e := FairnessResult{Replicas: 2 * f.Nodes}
	intervals := int(f.Length / f.CoordinationInterval)
	for k := range intervals {
		in := Interval{At: time.Duration(k+1) * f.CoordinationInterval}
		in.Factors = played.Changed[in.At]
		e.Workloads = f.measureRun(&in, k, played.Nodes)
		e.Intervals = append(e.Intervals, in)
	}
	e.Groups = f.groups(played, intervals-(intervals+2)/3, intervals)
	return e, true
}

// measureRun measures an interval of all nodes, and counts the workloads.
func (f Fairness) measureRun(in *Interval, k int, nodes []sim.Result) int {
	workloads := map[string]*served{}
	use := 0.0
	for i := range nodes {
		for j := range nodes[i].Pods {
			p := &nodes[i].Pods[j]
			in.Limits += len(p.ChangesBetween(in.At-f.CoordinationInterval, in.At))
			if p.Spec.Workload == "" {
				continue
			}
			s := min(1, p.Points[k].Usage.Cores()/fairSpin)
			use += s
			w := workloads[p.Spec.Workload]
			if w == nil {
				w = &served{s, s}
				workloads[p.Spec.Workload] = w
			}
			w.worst, w.best = min(w.worst, s), max(w.best, s)
		}
	}
	var spreads []float64
	for w := range len(workloads) {
		s := workloads[workloadName(w)]
		spreads = append(spreads, s.best-s.worst)
		in.Spread += (s.best - s.worst) / float64(len(workloads))
		in.Worst += s.worst / float64(len(workloads))
	}
	slices.Sort(spreads)
	in.Wide = spreads[len(spreads)*9/10]
	in.Mean = use / float64(2*f.Nodes)
	return len(workloads)
}

// served is the satisfaction of the worst and of the best replica of a workload.
type served struct{ worst, best float64 }

func workloadName(w int) string { return fmt.Sprint("w", w) }

// groups are means over some intervals.
func (f Fairness) groups(played mbcas.ClusterResult, from, to int) []Group {
	groups := make([]Group, f.MaxTenants-f.MinTenants+1)
	for t := range groups {
		groups[t].Tenants = f.MinTenants + t
	}
	for i := range played.Nodes {
		r := &played.Nodes[i]
		tenants := len(r.Pods) - 2
		g := &groups[tenants-f.MinTenants]
		g.Nodes++
		for k := from; k < to; k++ {
			part := 1 / float64(to-from)
			g.Price += float64(r.Price[k]) * part
			g.Idle += r.Idle[k] * part
			for j := range r.Pods {
				if p := &r.Pods[j]; p.Spec.Workload == "" {
					g.TenantUse += p.Points[k].Usage.Cores() * part / float64(tenants)
				} else {
					g.ReplicaUse += p.Points[k].Usage.Cores() * part / 2
				}
			}
		}
		var sum coordinator.Factor // of whole numbers, so in any order
		for _, x := range played.Factors[i] {
			sum += x
		}
		factors := float64(sum) / float64(coordinator.Neutral)
		g.Factor += (factors - float64(tenants)) / 2
		g.Budgets += factors/float64(len(r.Pods)) - 1
	}
	for t := range groups {
		g := &groups[t]
		for _, v := range []*float64{&g.Price, &g.Idle, &g.TenantUse, &g.ReplicaUse, &g.Factor, &g.Budgets} {
			*v /= float64(max(1, g.Nodes))
		}
	}
	return groups
}
