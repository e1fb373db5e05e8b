//go:build linux

package stage

import (
	"math/rand/v2"
	"time"

	"github.com/mbcas/mbcas/test/evaluation/internal/client"
	"github.com/mbcas/mbcas/test/evaluation/internal/plan"
	"github.com/mbcas/mbcas/test/internal/traffic"
)

// timeline is when a cell plays what.
type timeline struct {
	begin time.Time // of the load
	// warm is the length of the warm-up, then comes the learning, then what is measured.
	warm, learning, length, event time.Duration
}

// newTimeline begins the load when the youngest pod is old enough: until then there is none.
func newTimeline(c plan.Cell, now, youngest time.Time) timeline {
	t := timeline{begin: now, warm: plan.Warm, length: c.Situation.Length, event: c.Situation.Event}
	if l := c.Learning(); l > 0 {
		t.warm, t.learning = 0, l
	}
	if old := youngest.Add(c.Age() - c.Load()); old.After(now) {
		t.begin = old
	}
	return t
}

// offset is from the begin to the measured time.
func (t timeline) offset() time.Duration { return t.warm + t.learning }

// start of the measured time.
func (t timeline) start() time.Time { return t.begin.Add(t.offset()) }

// eventAt is when the load steps up or the batch jobs start.
func (t timeline) eventAt() time.Time { return t.start().Add(t.event) }

// end of the measured time.
func (t timeline) end() time.Time { return t.start().Add(t.length) }

// arrivals of a service's requests from the begin on. Those of the measured time depend on the seed alone, not on how
// long warm-up and learning are.
func (t timeline) arrivals(w plan.Workload, seed uint64, requestMS float64) []time.Duration {
	first, last := w.Load[0].Cores, w.Load[len(w.Load)-1].Cores
	all := traffic.Arrivals(seed+1, []traffic.Segment{
		{For: t.warm, Rate: rate(first, requestMS)}, {For: t.learning, Rate: rate(last, requestMS)},
	})
	var segments []traffic.Segment
	for i, step := range w.Load {
		until := t.length
		if i+1 < len(w.Load) {
			until = w.Load[i+1].At
		}
		segments = append(segments, traffic.Segment{For: until - step.At, Rate: rate(step.Cores, requestMS)})
	}
	for _, at := range traffic.Arrivals(seed, segments) {
		all = append(all, t.offset()+at)
	}
	return all
}

// rate is requests per second that need so many cores.
func rate(cores, requestMS float64) float64 { return cores * 1000 / requestMS }

// plans of a batch job: it works all through the learning, and from the event to the end. What it does after that does
// not count: it is there so that the last requests are not answered on a node that is idle again.
func (t timeline) plans(threads int) (all []client.Plan) {
	if t.learning > 0 {
		all = append(all, client.Plan{Threads: threads, From: t.begin.Add(t.warm), Until: t.start()})
	}
	return append(all, client.Plan{Threads: threads, From: t.eventAt(), Until: t.end()},
		client.Plan{Threads: threads, From: t.end(), Until: t.end().Add(Timeout), Uncounted: true})
}

// numbers are the choices among the data of a service, from a seed.
func numbers(seed uint64) func() int {
	rng := rand.New(rand.NewPCG(seed, 7))
	return func() int { return rng.IntN(1 << 30) }
}
