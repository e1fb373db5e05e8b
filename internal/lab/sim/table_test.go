package sim

import (
	"testing"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/lab/load"
)

// noChanges changes nothing.
type noChanges struct{}

func (noChanges) Decide(r *Snapshot) ([]Action, time.Duration) { return nil, r.Now + time.Hour }

// duel is a service at 60 requests of 10 ms per second beside a batch pod of four threads, on two
// cores.
func duel(service, batch, serviceLimit, batchLimit cpu.Milli, threads float64) Setup {
	return Setup{Machine: Machine{Cores: 2}, Length: 120 * time.Second, WarmUp: 2 * time.Second, Seed: 1, Pods: []PodSpec{
		{Name: "service", Request: service, Limit: serviceLimit, Threads: 8, Requests: load.Requests{Rate: load.Constant(60), ServiceTime: 10 * time.Millisecond}},
		{Name: "batch", Request: batch, Limit: batchLimit, Spin: load.Constant(threads)},
	}}
}

func TestCappingTheBatchPodHelpsTheService(t *testing.T) {
	before := time.Hour
	for _, limit := range []cpu.Milli{0, 1200, 1000, 800, 600, 200} {
		r := Run(duel(125, 1000, 0, limit, 4), noChanges{})
		p99 := r.Pod("service").Latency.Quantile(0.99)
		if p99 >= before {
			t.Errorf("batch pod limited to %v: p99 %v, no better than %v", limit, p99, before)
		}
		before = p99
	}
}
