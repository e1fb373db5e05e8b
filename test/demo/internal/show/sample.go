//go:build linux

package show

import (
	"context"
	"time"

	"github.com/mbcas/mbcas/test/demo/internal/ledger"
	"github.com/mbcas/mbcas/test/demo/internal/record"
	"github.com/mbcas/mbcas/test/demo/internal/script"
	"github.com/mbcas/mbcas/test/internal/cgroup"
	"github.com/mbcas/mbcas/test/internal/machine"
)

// sample reads every pod once a second until ctx ends.
func (s Show) sample(ctx context.Context, name string, play script.Script, start time.Time, latency func(service string, at time.Duration) (p50, p99 float64)) (all []record.Sample, node []record.NodeSample) {
	probes := map[string]*probe{} // by pod UID
	var meter machine.Meter
	wait(ctx, time.Until(start))
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		at := time.Since(start)
		phase := play.At(max(0, at-time.Second/2)) // most of the sample lies in it
		var now []record.Sample
		for _, p := range s.Ledger.Pods() {
			x, ok := s.probe(probes, p)
			if !ok {
				continue
			}
			x.At, x.Phase, x.App, x.Request, x.Limit = at, phase.Name, p.App, p.Request, p.Limit
			x.P50, x.P99 = latency(p.App, at)
			if d, ok := s.Ledger.Decision(p.UID); ok {
				x.Demand, x.Price = d.Demand, d.Price
			}
			now = append(now, x)
		}
		all = append(all, now...)
		if busy, idle, ok := meter.Next(); ok {
			node = append(node, record.NodeSample{At: at, Busy: busy, Idle: idle})
		}
		s.Watch(Moment{Run: name, Phase: phase, At: at, End: play.Length(), Samples: now})
		select {
		case <-ctx.Done():
			return all, node
		case <-tick.C:
		}
	}
}

// probe is a container's files and the reading before.
type probe struct {
	files cgroup.Container
	last  cgroup.Reading
}

// probe is the pod's rates since the last call; not ok for the first one, and for a pod that is not
// running.
func (s Show) probe(probes map[string]*probe, p ledger.Pod) (x record.Sample, ok bool) {
	b, known := probes[p.UID]
	if !known {
		files, err := s.Node.Find(p.ContainerID)
		if err != nil {
			return x, false
		}
		b = &probe{files: files}
		probes[p.UID] = b
	}
	r, err := b.files.Read()
	if err != nil {
		delete(probes, p.UID)
		return x, false
	}
	last := b.last
	b.last = r
	if last.At.IsZero() {
		return x, false
	}
	return rates(last, r), true
}

func rates(a, b cgroup.Reading) record.Sample {
	seconds := b.At.Sub(a.At).Seconds()
	x := record.Sample{
		Quota:     b.Quota,
		Use:       int64((b.Usage - a.Usage).Seconds() / seconds * 1000),
		Throttled: record.Milliseconds(b.Throttled-a.Throttled) / seconds,
	}
	if periods := b.Periods - a.Periods; periods > 0 {
		x.Ratio = float64(b.Throttles-a.Throttles) / float64(periods)
	}
	return x
}
