// Package live runs one node in the simulator and reports every interval while the run goes on. It
// is the entry point for programs that show a simulation beside something else, as the demo does
// while Kubernetes compiles:
//
//	setup := scenario.Setup(0, 1) // or a sim.Setup of the program's own
//	_, err := live.Run(ctx, setup, mbcas.New(mbcas.DefaultConfig()), func(p live.Point) error { ... })
//
// The pace is the caller's: a report that sleeps slows the run down and changes nothing else.
//
// What it promises, each a test of the same name:
//   - ReportsChangeNothing: the result is that of sim.Run.
//   - PointsAreTheSeries: a point has the limits, usage and price that the result records for its
//     interval.
//   - TailIsOfTheWindow: P99 counts requests completed within the window, and no older ones.
package live

import (
	"context"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/lab/sim"
	"github.com/mbcas/mbcas/market"
)

// Window is the time over which P99 is measured. A shorter one has too few requests for a 99th
// percentile.
const Window = 10 * time.Second

// Point is the state of a node at the end of an interval. It is valid until the report returns.
type Point struct {
	Time  time.Duration // simulated, since the start
	Price market.Price  // 0 where the policy has none
	Idle  float64       // share of the cores, mean of the interval
	Pods  []Pod         // that run, in the order in which they started
}

// Pod is one pod of a point.
type Pod struct {
	Name     string
	Limit    cpu.Milli // in force; 0: none
	Usage    cpu.Milli // mean of the interval
	Demand   cpu.Milli // as the policy estimates it; 0 where it has no estimate
	Throttle float64   // share of the interval's CFS periods
	P99      time.Duration
	Served   uint64 // requests completed within the window
}

// Run runs a node to the end and calls report after each of the set-up's intervals. It stops at the
// first error of report, or when the context ends.
func Run(ctx context.Context, s sim.Setup, policy sim.Policy, report func(Point) error) (sim.Result, error) {
	if s.Interval == 0 {
		s.Interval = time.Second
	}
	run := sim.Start(s, policy)
	var tails []tail
	var point Point
	for at := s.Interval; at <= s.Length; at += s.Interval {
		if err := ctx.Err(); err != nil {
			return sim.Result{}, err
		}
		run.RunUntil(at)
		partial := run.Partial()
		for len(tails) < len(partial.Pods) {
			tails = append(tails, tail{})
		}
		point = Point{Time: at, Idle: partial.Idle[len(partial.Idle)-1], Pods: point.Pods[:0]}
		if n := len(partial.Price); n > 0 {
			point.Price = partial.Price[n-1]
		}
		for i := range partial.Pods {
			p := &partial.Pods[i]
			window := tails[i].add(p.Latency, int(Window/s.Interval))
			last := p.Points[len(p.Points)-1]
			if last.Absent || p.Spec.System {
				continue
			}
			point.Pods = append(point.Pods, Pod{
				Name: p.Spec.Name, Limit: last.Limit, Usage: last.Usage, Demand: last.Demand, Throttle: last.Throttle,
				P99: window.Quantile(0.99), Served: window.Count,
			})
		}
		if err := report(point); err != nil {
			return sim.Result{}, err
		}
	}
	run.RunUntil(s.Length)
	return run.Result(), nil
}

// tail keeps the latencies of a pod at the ends of the last intervals.
type tail struct {
	counts *sim.Latencies   // that grow; the warm-up's end replaces them
	before []*sim.Latencies // oldest first
}

// add is the latencies of the last intervals, at most so many.
func (t *tail) add(counts *sim.Latencies, intervals int) sim.Latencies {
	if t.counts != counts {
		t.counts, t.before = counts, []*sim.Latencies{new(sim.Latencies)}
	}
	window := counts.Since(t.before[0])
	t.before = append(t.before, counts.Clone())
	t.before = t.before[max(0, len(t.before)-max(1, intervals)):]
	return window
}
