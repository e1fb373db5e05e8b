package demandsignal

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/mbcas/mbcas/api/v1alpha1"
)

// parallelReads is the number of metrics that are read at the same time of those that were answered at once the last time, and as many
// of the others, so that a metrics adapter that hangs delays no signal but those that depend on it.
const parallelReads = 8

// slowAnswer is how long an answer may take to count as given at once.
const slowAnswer = time.Second

// After so many reads of one source that took long and gave nothing, or of one API group without an answer in between, the rest of them
// is not read in this pass.
const (
	sourcePatience = 2
	groupPatience  = 4
)

// source is an API group with the namespace that its metrics are read for.
type source struct{ group, namespace string }

func sourceOf(d *v1alpha1.DemandSignal) source {
	if d.Spec.Metric.Type == v1alpha1.ExternalMetric {
		return source{"external", d.Namespace}
	}
	return source{"custom", d.Namespace}
}

// evaluateAll evaluates signals for an interval at most. Signals for which there is no time come first in the next pass.
func (c *Controller) evaluateAll(ctx context.Context, list []v1alpha1.DemandSignal) {
	var quick, slow []*v1alpha1.DemandSignal
	last := map[*v1alpha1.DemandSignal]time.Time{}
	for i := range list {
		d := &list[i]
		s := c.signals.of(d)
		last[d] = s.asked
		if s.slow {
			slow = append(slow, d)
		} else {
			quick = append(quick, d)
		}
	}
	end := c.Now().Add(c.Config.Interval)
	var wg sync.WaitGroup
	for _, part := range [][]*v1alpha1.DemandSignal{quick, slow} {
		b := &batch{evaluate: c.evaluate, now: c.Now, end: end, unanswered: map[source]int{}}
		wg.Go(func() { b.run(ctx, fairOrder(part, last)) })
	}
	wg.Wait()
}

// fairOrder orders signals so that each source has its first read before any has its second; within a source, and among those that are
// as far, the signal comes first that was last read longest ago.
func fairOrder(list []*v1alpha1.DemandSignal, last map[*v1alpha1.DemandSignal]time.Time) []*v1alpha1.DemandSignal {
	list = slices.Clone(list)
	byLast := func(a, b *v1alpha1.DemandSignal) int { return last[a].Compare(last[b]) }
	slices.SortStableFunc(list, byLast)
	before, rank := map[source]int{}, map[*v1alpha1.DemandSignal]int{}
	for _, d := range list {
		rank[d] = before[sourceOf(d)]
		before[sourceOf(d)]++
	}
	slices.SortStableFunc(list, func(a, b *v1alpha1.DemandSignal) int { return cmp.Or(rank[a]-rank[b], byLast(a, b)) })
	return list
}

// batch is a part of a pass.
type batch struct {
	evaluate func(ctx context.Context, d *v1alpha1.DemandSignal, how attempt) (unanswered bool)
	now      func() time.Time
	end      time.Time

	mu         sync.Mutex
	unanswered map[source]int // reads that gave nothing; without a namespace: of the group, since its last answer
}

func (b *batch) run(ctx context.Context, list []*v1alpha1.DemandSignal) {
	slots := make(chan struct{}, parallelReads)
	var wg sync.WaitGroup
	for _, d := range list {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if ctx.Err() != nil {
				return
			}
			how := b.attempt(d)
			b.done(d, how, b.evaluate(ctx, d, how))
		})
	}
	wg.Wait()
}

func (b *batch) attempt(d *v1alpha1.DemandSignal) attempt {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := sourceOf(d)
	switch {
	case !b.now().Before(b.end):
		return outOfTime
	case b.unanswered[s] >= sourcePatience, b.unanswered[source{group: s.group}] >= groupPatience:
		return skipRead
	}
	return readMetric
}

func (b *batch) done(d *v1alpha1.DemandSignal, how attempt, unanswered bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := sourceOf(d)
	switch group := (source{group: s.group}); {
	case how != readMetric:
	case unanswered:
		b.unanswered[s]++
		b.unanswered[group]++
	default:
		b.unanswered[group] = 0
	}
}
