package experiment

import (
	"sync"
	"testing"
	"time"

	"github.com/mbcas/mbcas/internal/coordinator"
	"github.com/mbcas/mbcas/internal/disagreement"
	"github.com/mbcas/mbcas/internal/lab/mbcas"

	"github.com/mbcas/mbcas/internal/testing/atlength"
)

func together(n int, do func(int)) bool {
	var all sync.WaitGroup
	for from := range 2 {
		all.Go(func() {
			for i := from; i < n; i += 2 {
				do(i)
			}
		})
	}
	all.Wait()
	return true
}

// TestCoordinatorEvensReplicas: on nodes of different prices the coordinator halves the spread among replicas within
// three rounds, in the mean of the first seeds, and then leaves factors alone, if the price alone sets limits. As
// shipped, other pods keep most of what their declared limits give them, so it takes a fifth of the spread, and tenants
// lose no more than budgets rise in the mean of the seeds alone: one that is judged anew has its declared limit.
func TestCoordinatorEvensReplicas(t *testing.T) {
	alone := mbcas.DefaultConfig()
	alone.Round.Disagreement = disagreement.Config{}
	alone.Round.CapBand = 0.1 // what tenants use above their shares is no loss
	t.Run("price alone", func(t *testing.T) { evensReplicas(t, alone, 0.5, 1.1, true) })
	t.Run("shipped", func(t *testing.T) { evensReplicas(t, mbcas.DefaultConfig(), 0.8, 1, false) })
}

// evensReplicas wants a spread of at most this share, and worst replicas that have at least this multiple. Tenants lose
// no more than budgets rise, with each seed or in the mean.
func evensReplicas(t *testing.T, policy mbcas.Config, spread, worst float64, eachSeed bool) {
	t.Helper()
	f := DefaultFairness()
	f.Policy = policy
	f.Nodes, f.Length = atlength.Of(10, 24), atlength.Of(4*time.Minute, 5*time.Minute)
	var off, on []Interval // sums over the seeds
	changed, replicas := 0, 0
	groups := map[int][2]Group{} // without and with the coordinator, by tenants of a node: sums over the seeds
	seeds := atlength.Of(3, 6)
	for seed := range uint64(seeds) {
		f.Seed = seed + 1
		a, _ := f.Run(nil, together)
		b, _ := f.Run(coordinator.DefaultConfig().Rebalance, together)
		off, on, replicas = sum(off, a.Intervals), sum(on, b.Intervals), replicas+b.Replicas
		for k, g := range b.Groups {
			if eachSeed {
				loseLittle(t, a.Groups[k], g, 1)
			}
			both := groups[g.Tenants]
			both[0].TenantUse += a.Groups[k].TenantUse
			both[1].Tenants, both[1].Nodes, both[1].TenantUse = g.Tenants, both[1].Nodes+g.Nodes, both[1].TenantUse+g.TenantUse
			both[1].Budgets += g.Budgets
			groups[g.Tenants] = both
		}
	}
	for _, both := range groups {
		loseLittle(t, both[0], both[1], float64(seeds))
	}
	last := len(on) - 1
	for k := 3; k <= last; k++ {
		if on[k].Spread > spread*off[k].Spread {
			t.Errorf("%v: the spreads add up to %.3f with the coordinator and %.3f without", on[k].At, on[k].Spread, off[k].Spread)
		}
	}
	for _, i := range on[last-2:] {
		changed += i.Factors
	}
	if changed > replicas/10 { // the demand of tenants changes
		t.Errorf("in the last two turns %d factors of %d pods change", changed, replicas)
	}
	if a, b := off[last], on[last]; b.Worst < worst*a.Worst || b.Mean < 0.9*a.Mean {
		t.Errorf("the worst replicas have %.3f instead of %.3f, and all have %.3f instead of %.3f", b.Worst, a.Worst, b.Mean, a.Mean)
	}
}

// loseLittle wants tenants to lose no more than budgets rise. The figures are sums over so many seeds.
func loseLittle(t *testing.T, off, on Group, seeds float64) {
	t.Helper()
	if on.Nodes > 0 && on.TenantUse < (1-max(0, on.Budgets/seeds)-0.02)*off.TenantUse {
		t.Errorf("tenants of nodes with %d have %.3f instead of %.3f; budgets there rose by %.1f%%", on.Tenants, on.TenantUse/seeds,
			off.TenantUse/seeds, 100*on.Budgets/seeds)
	}
}

// sum adds the figures of the same intervals of another run.
func sum(to, run []Interval) []Interval {
	if to == nil {
		to = make([]Interval, len(run))
	}
	for k, i := range run {
		to[k].At = i.At
		to[k].Spread += i.Spread
		to[k].Worst += i.Worst
		to[k].Mean += i.Mean
		to[k].Factors += i.Factors
	}
	return to
}

// TestFairnessSetups: two replicas and so many tenants on each node, and the same again.
func TestFairnessSetups(t *testing.T) {
	f := DefaultFairness()
	f.Nodes, f.MinTenants, f.MaxTenants = 50, 1, 4
	workloads, spread, seen := map[string]int{}, 0, map[int]bool{}
	for i, s := range f.Setups() {
		tenants := 0
		for _, p := range s.Pods {
			if p.Workload == "" {
				tenants++
				continue
			}
			workloads[p.Workload]++
			if p.Spread {
				spread++
			}
		}
		if len(s.Pods)-tenants != 2 || tenants < 1 || tenants > 4 {
			t.Errorf("node %d has %d tenants among %d pods", i, tenants, len(s.Pods))
		}
		seen[tenants] = true
	}
	if len(seen) != 4 || len(workloads) < 100/8 || len(workloads) > 100/2 || spread == 0 || spread == 100 {
		t.Errorf("%d numbers of tenants, %d workloads, %d pods with spread constraints", len(seen), len(workloads), spread)
	}
	for w, n := range workloads {
		if n > 8 {
			t.Errorf("workload %s has %d replicas", w, n)
		}
	}
	if again := f.Setups(); again[0].Seed != f.Setups()[0].Seed {
		t.Error("the same seed gives another cluster")
	}
}
