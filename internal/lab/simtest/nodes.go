// Package simtest holds nodes for tests of policies: set-ups of the simulator, and nodes whose
// counters a test sets.
package simtest

import (
	"time"

	"github.com/mbcas/mbcas/internal/lab/load"
	"github.com/mbcas/mbcas/internal/lab/sim"
)

// MixedNode is a small node with a pod of every kind: two services, a batch pod, one pod that
// starts later, one that ends early, an idle one, and pods that are not managed.
func MixedNode(seed uint64) sim.Setup {
	burst := load.Burst{Low: 20, High: 150, Start: 5 * time.Second, Length: 5 * time.Second, Period: 20 * time.Second}
	return sim.Setup{Machine: sim.Machine{Cores: 4}, Length: 50 * time.Second, Seed: seed, Pods: []sim.PodSpec{
		{
			Name: "web", Request: 200, Limit: 600, Priority: 2000, Threads: 8,
			Requests: load.Requests{Rate: burst, ServiceTime: 10 * time.Millisecond},
		},
		{Name: "api", Request: 100, Limit: 300, Threads: 4, Requests: load.Requests{
			Rate: load.Constant(20), ServiceTime: 5 * time.Millisecond, Distribution: load.Exponential,
		}},
		{Name: "batch", Request: 500, Limit: 2000, Spin: load.Constant(4)},
		{Name: "late", Limit: 400, Start: 20 * time.Second, Spin: load.Constant(1)},
		{Name: "early", Request: 100, Limit: 1000, End: 30 * time.Second, Spin: load.Constant(1)},
		{Name: "idle", Request: 50, Limit: 200},
		{Name: "guaranteed", Request: 400, Limit: 400, Spin: load.Constant(1)},
		{Name: "besteffort", Spin: load.Constant(1)},
		{Name: "optout", Request: 100, Limit: 500, OptOut: true, Spin: load.Constant(1)},
		{Name: "kubelet", System: true, Spin: load.Burst{High: 1, Length: time.Second, Period: 10 * time.Second}},
	}}
}

// CalmNode is a node with much idle CPU: two bursty replicas, a batch pod, a pod without a limit and
// one that opted out.
func CalmNode(seed uint64) sim.Setup {
	burst := load.Requests{
		Rate:        load.Burst{Low: 20, High: 90, Start: 20 * time.Second, Length: 20 * time.Second, Period: 60 * time.Second},
		ServiceTime: 10 * time.Millisecond, Distribution: load.Exponential,
	}
	return sim.Setup{Machine: sim.Machine{Cores: 16}, Length: 100 * time.Second, Seed: seed, Pods: []sim.PodSpec{
		{Name: "web-1", Workload: "web", Request: 300, Limit: 600, Requests: burst},
		{Name: "web-2", Workload: "web", Request: 300, Limit: 600, Requests: burst},
		{Name: "batch", Request: 200, Limit: 800, Spin: load.Burst{High: 2, Start: 30 * time.Second, Length: 45 * time.Second}},
		{Name: "free", Request: 100, Requests: burst},
		{Name: "own", Request: 100, Limit: 200, OptOut: true, Requests: burst},
	}}
}

// AlmostEqual is equality up to rounding.
func AlmostEqual(a, b float64) bool { return a-b < 1e-9 && b-a < 1e-9 }
