package controller

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/mbcas/mbcas/api/v1alpha1"
)

// metricsAtOnce is how many metrics are read at the same time of those that answered at once the last time, and as many
// of the others, so that a metrics adapter that hangs holds up nobody but those who depend on it.
const metricsAtOnce = 8

// slowAnswer is how long an answer may take to count as given at once.
const slowAnswer = time.Second

// After so many reads of one supplier that took long and gave nothing, or of one API group with no answer in between, the rest is not asked
// in this pass.
const (
	patience      = 2
	groupPatience = 4
)

// supplier is an API group with the namespace that asks it.
type supplier struct{ group, namespace string }

func supplierOf(d *v1alpha1.DemandSignal) supplier {
	if d.Spec.Metric.Type == v1alpha1.ExternalMetric {
		return supplier{"external", d.Namespace}
	}
	return supplier{"custom", d.Namespace}
}

// lookAt looks at signals for an interval at most, and returns the namespaces in which something else is asked for. Those
// for which there is no time come first in the next pass.
func (r *Reconciler) lookAt(ctx context.Context, list []v1alpha1.DemandSignal, pass int) map[string]bool {
	var quick, slow []*v1alpha1.DemandSignal
	turn := map[*v1alpha1.DemandSignal]int{}
	for i := range list {
		d := &list[i]
		f := r.signals.of(d)
		turn[d] = f.asked
		if f.slow {
			slow = append(slow, d)
		} else {
			quick = append(quick, d)
		}
	}
	end := r.Now().Add(r.Config.SignalInterval)
	first, second := newLane(r, pass, end), newLane(r, pass, end)
	_ = each(2, []func(){
		func() { first.run(ctx, inTurn(quick, turn)) },
		func() { second.run(ctx, inTurn(slow, turn)) },
	}, func(run func()) error { run(); return nil })
	for namespace, yes := range second.moved {
		first.moved[namespace] = first.moved[namespace] || yes
	}
	return first.moved
}

// inTurn orders signals so that each supplier has its first read before any has its second; within a supplier, and among those that are
// as far, the one comes first that has waited longest.
func inTurn(list []*v1alpha1.DemandSignal, asked map[*v1alpha1.DemandSignal]int) []*v1alpha1.DemandSignal {
	list = slices.Clone(list)
	waited := func(a, b *v1alpha1.DemandSignal) int { return asked[a] - asked[b] }
	slices.SortStableFunc(list, waited)
	before, rank := map[supplier]int{}, map[*v1alpha1.DemandSignal]int{}
	for _, d := range list {
		rank[d] = before[supplierOf(d)]
		before[supplierOf(d)]++
	}
	slices.SortStableFunc(list, func(a, b *v1alpha1.DemandSignal) int { return cmp.Or(rank[a]-rank[b], waited(a, b)) })
	return list
}

// lane is a part of a pass.
type lane struct {
	r    *Reconciler
	pass int
	end  time.Time

	mu    sync.Mutex
	mute  map[supplier]int // reads that gave nothing; without a namespace: of the group, since its last answer
	moved map[string]bool
}

func newLane(r *Reconciler, pass int, end time.Time) *lane {
	return &lane{r: r, pass: pass, end: end, mute: map[supplier]int{}, moved: map[string]bool{}}
}

// run looks at signals in their order.
func (l *lane) run(ctx context.Context, list []*v1alpha1.DemandSignal) {
	_ = each(metricsAtOnce, list, func(d *v1alpha1.DemandSignal) error {
		if ctx.Err() != nil {
			return nil // told to stop
		}
		how := l.attend(d)
		changed, mute := l.r.follow(ctx, d, l.pass, how)
		l.note(d, how, changed, mute)
		return nil
	})
}

// attend says what a signal gets.
func (l *lane) attend(d *v1alpha1.DemandSignal) attention {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := supplierOf(d)
	switch {
	case !l.r.Now().Before(l.end):
		return noTime
	case l.mute[q] >= patience, l.mute[supplier{group: q.group}] >= groupPatience:
		return notRead
	}
	return read
}

// note takes over what a look came to.
func (l *lane) note(d *v1alpha1.DemandSignal, how attention, changed, mute bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.moved[d.Namespace] = l.moved[d.Namespace] || changed
	q := supplierOf(d)
	switch all := (supplier{group: q.group}); {
	case how != read:
	case mute:
		l.mute[q]++
		l.mute[all]++
	default:
		l.mute[all] = 0
	}
}
