package recorder

import (
	"context"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/test/internal/cgroup"
	"github.com/mbcas/mbcas/test/internal/machine"
	"github.com/mbcas/mbcas/test/internal/poll"
	"github.com/mbcas/mbcas/test/internal/traffic"
	"github.com/mbcas/mbcas/test/measure/internal/script"
)

// Latencies are those of the requests that ended lately, by service.
type Latencies map[string][]Ended

// Ended is when a request ended, and how long it took.
type Ended struct{ At, Latency time.Duration }

// Window is the latency of the requests that ended in the last Window, in milliseconds; older ones
// are dropped.
func (l Latencies) Window(service string, now time.Duration) (p50, p99 float64) {
	all := l[service]
	for len(all) > 0 && all[0].At < now-Window {
		all = all[1:]
	}
	l[service] = all
	latencies := make([]time.Duration, len(all))
	for i, e := range all {
		latencies[i] = e.Latency
	}
	median, _ := traffic.Quantile(latencies, 0.5)
	tail, _ := traffic.Quantile(latencies, 0.99)
	return Milliseconds(median), Milliseconds(tail)
}

// Sample samples every pod and the machine once a second until ctx ends, into run. second gets the
// samples of each second.
func (r *Recorder) Sample(
	ctx context.Context, run *Run, latency func(service string, at time.Duration) (p50, p99 float64),
	second func(at time.Duration, now []Sample),
) {
	probes := map[string]*probe{} // by pod UID
	var meter machine.Meter
	poll.Sleep(ctx, time.Until(run.Start))
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		at := time.Since(run.Start)
		now := r.workloads(probes, run.Plan.At(max(0, at-time.Second/2)), at) // most of the sample lies in that phase
		for i := range now {
			now[i].P50, now[i].P99 = latency(now[i].App, at)
		}
		run.Samples = append(run.Samples, now...)
		if busy, idle, ok := meter.Next(); ok {
			x := NodeSample{At: at, Busy: cpu.Milli(busy), Idle: cpu.Milli(idle)}
			x.Used, x.Hard = r.Quota()
			for _, p := range r.Pods("") {
				if _, ok := r.Script.Find(p.App); !ok {
					x.NewPods += p.Limit
				}
			}
			run.Node = append(run.Node, x)
		}
		second(at, now)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// workloads has a sample for each workload with a running pod.
func (r *Recorder) workloads(probes map[string]*probe, step script.Step, at time.Duration) (now []Sample) {
	for _, p := range r.Pods("") {
		if _, ok := r.Script.Find(p.App); !ok {
			continue
		}
		x, ok := r.probe(probes, p)
		if !ok {
			continue
		}
		if n := len(now); n == 0 || now[n-1].App != p.App {
			now = append(now, Sample{At: at, Phase: step.Name, App: p.App})
		}
		s := &now[len(now)-1]
		if p.Ready {
			s.Ready++
		}
		s.Request, s.Limit, s.Quota, s.Usage = s.Request+p.Request, s.Limit+p.Limit, s.Quota+x.Quota, s.Usage+x.Usage
		s.Throttled, s.ThrottleRatio = s.Throttled+x.Throttled, max(s.ThrottleRatio, x.ThrottleRatio)
		r.mu.Lock()
		d := r.decisions[p.UID]
		s.Demand, s.Price, s.PriceAt, s.Desired = s.Demand+d.demand, d.price, d.at, r.desired[p.App]
		r.mu.Unlock()
	}
	return now
}

// probe is a container's files and the counters of the sample before.
type probe struct {
	files cgroup.Container
	last  cgroup.Sample
}

// probe is the pod's rates since the last call; not ok for the first one, and for a pod that does
// not run.
func (r *Recorder) probe(probes map[string]*probe, p Pod) (x Sample, ok bool) {
	b, known := probes[p.UID]
	if !known {
		files, err := r.Node.Find(p.ContainerID)
		if err != nil {
			return x, false
		}
		b = &probe{files: files}
		probes[p.UID] = b
	}
	now, err := b.files.Read()
	if err != nil {
		delete(probes, p.UID)
		return x, false
	}
	last := b.last
	b.last = now
	if last.At.IsZero() {
		return x, false
	}
	return rates(last, now), true
}

func rates(a, b cgroup.Sample) Sample {
	seconds := b.At.Sub(a.At).Seconds()
	x := Sample{
		Quota:     cpu.Milli(b.Quota),
		Usage:     cpu.FromUsage(b.Usage-a.Usage, b.At.Sub(a.At)),
		Throttled: Milliseconds(b.Throttled-a.Throttled) / seconds,
	}
	if periods := b.Periods - a.Periods; periods > 0 {
		x.ThrottleRatio = float64(b.Throttles-a.Throttles) / float64(periods)
	}
	return x
}
