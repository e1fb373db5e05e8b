package experiment

import (
	"sync"
	"testing"
	"time"

	"github.com/mbcas/mbcas/internal/coordinator"

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

// TestCoordinatorEvensReplicas: on nodes of different prices the coordinator halves the spread
// among replicas within three rounds, and then leaves factors alone.
func TestCoordinatorEvensReplicas(t *testing.T) {
	f := DefaultFairness()
	f.Nodes, f.Length = atlength.Of(10, 24), atlength.Of(4*time.Minute, 5*time.Minute)
	f.Seed = atlength.Of(uint64(2), 1)
	off, _ := f.Run(nil, together)
	on, _ := f.Run(coordinator.DefaultConfig().Rebalance, together)
	last := len(on.Intervals) - 1
	for k := 3; k <= last; k++ {
		if a, b := off.Intervals[k], on.Intervals[k]; b.Spread > a.Spread/2 {
			t.Errorf("%v: the spread is %.3f with the coordinator and %.3f without", b.At, b.Spread, a.Spread)
		}
	}
	changed := 0
	for _, i := range on.Intervals[last-2:] {
		changed += i.Factors
	}
	if changed > off.Replicas/10 { // the demand of tenants changes
		t.Errorf("in the last two turns %d factors of %d pods change", changed, off.Replicas)
	}
	a, b := off.Intervals[last], on.Intervals[last]
	if b.Worst < 1.1*a.Worst || b.Mean < 0.9*a.Mean {
		t.Errorf("the worst replica has %.3f instead of %.3f, and all have %.3f instead of %.3f", b.Worst, a.Worst, b.Mean, a.Mean)
	}
	for k, g := range on.Groups {
		if o := off.Groups[k]; g.Nodes > 0 && g.TenantUse < (1-max(0, g.Budgets)-0.02)*o.TenantUse {
			t.Errorf("tenants of nodes with %d have %.3f instead of %.3f; budgets there rose by %.1f%%", g.Tenants, g.TenantUse, o.TenantUse, 100*g.Budgets)
		}
	}
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
