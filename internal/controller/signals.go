package controller

import (
	"cmp"
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/constraints"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/signal"
)

// signals is what DemandSignals ask for, as of the last look at their metrics.
type signals struct {
	mu    sync.Mutex
	known bool // false: nobody has listed them yet
	by    map[types.UID]*followed
	pass  int       // the number of the last one
	lost  string    // why they could not be listed
	since time.Time // when they could not be listed before anybody had
}

// followed is one DemandSignal.
type followed struct {
	namespace string
	ask       constraints.Signal
	metric    v1alpha1.SignalMetric // that state comes of
	state     signal.State
	bounds    signal.Bounds
	reason    string    // of its condition
	written   time.Time // its status
	unwritten string    // why it could not be
	asked     int       // the pass in which its metric was last asked for
	slow      bool      // the answer took long, or did not come
}

// asks is what is asked for in a namespace; known is false before anybody has listed them, when what was asked for stands.
func (s *signals) asks(namespace string) (asks []constraints.Signal, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.by {
		if f.namespace == namespace && f.ask.Percent > 0 {
			asks = append(asks, f.ask)
		}
	}
	return asks, s.known
}

// begin takes over a list of all signals: it forgets those that are gone, and takes those that are new for what their status
// says, so that nothing has to wait for the first look at them. It returns the namespaces in which a forgotten one asked for something, and
// the number of the pass. first says that nobody had listed them before.
func (s *signals) begin(list []v1alpha1.DemandSignal, cfg signal.Config, now time.Time) (changed map[string]bool, pass int, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed = map[string]bool{}
	exists := map[types.UID]bool{}
	for i := range list {
		d := &list[i]
		exists[d.UID] = true
		if s.by[d.UID] == nil {
			s.by[d.UID] = resumed(d, cfg, now)
		}
	}
	for uid, f := range s.by {
		if !exists[uid] {
			changed[f.namespace] = changed[f.namespace] || f.ask.Percent > 100
			delete(s.by, uid)
		}
	}
	s.pass++
	first, s.known, s.lost = !s.known, true, ""
	return changed, s.pass, first
}

// resumed is a signal as its status tells of it.
func resumed(d *v1alpha1.DemandSignal, cfg signal.Config, now time.Time) *followed {
	f := &followed{namespace: d.Namespace, metric: d.Spec.Metric, bounds: boundsOf(d), ask: constraints.Signal{Name: d.Name, Target: kube.SignalTarget(d)}}
	if c := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.SignalAvailable); c != nil {
		f.reason = c.Reason
	}
	// Of an edited one nobody knows whose percentage it is.
	if d.Status.DemandPercent != nil && d.Status.LastReadTime != nil && d.Status.ObservedGeneration == d.Generation {
		// The metric may have been read since, without that being written: a leader that dies leaves up to showAgain behind.
		f.state = signal.Resume(*d.Status.DemandPercent, d.Status.LastReadTime.Add(showAgain), now)
		f.state = cfg.Miss(f.state, f.bounds, now)
		f.ask.Percent = f.state.Percent
	}
	return f
}

func boundsOf(d *v1alpha1.DemandSignal) signal.Bounds {
	return signal.Bounds{Min: d.Spec.MinPercent, Max: d.Spec.MaxPercent}
}

// of is what is known of a signal that begin has seen. A percentage that came of another metric, or of other pods, counts no more.
func (s *signals) of(d *v1alpha1.DemandSignal) followed {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := *s.by[d.UID]
	if f.ask.Target != kube.SignalTarget(d) || !equality.Semantic.DeepEqual(f.metric, d.Spec.Metric) {
		f.metric, f.state = d.Spec.Metric, signal.State{}
	}
	f.bounds = boundsOf(d)
	return f
}

func (s *signals) set(uid types.UID, f followed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.by[uid] = &f
}

// reasons counts the signals by them.
func (s *signals) reasons() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := map[string]int{}
	for _, f := range s.by {
		n[f.reason]++
	}
	return n
}

// missed notes why the signals could not be listed, says whether that is news, and returns the namespaces in which something else
// is asked for now: who cannot see a signal does not see its metric either. first says that what was asked for before a start
// stands no longer.
func (s *signals) missed(why string, cfg signal.Config, now time.Time) (news, first bool, changed map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	news, s.lost = s.lost != why, why
	changed = map[string]bool{}
	for _, f := range s.by {
		f.state = cfg.Miss(f.state, f.bounds, now)
		changed[f.namespace] = changed[f.namespace] || f.state.Percent != f.ask.Percent && f.ask.Percent > 100
		f.ask.Percent = f.state.Percent
	}
	if s.since.IsZero() {
		s.since = now
	}
	if first = !s.known && now.Sub(s.since) > cfg.HoldFor; first {
		s.known = true
	}
	return news, first, changed
}

// poller looks at the metrics of all DemandSignals again and again.
type poller struct{ r *Reconciler }

// NeedLeaderElection is true: the status of a signal has one writer.
func (p *poller) NeedLeaderElection() bool { return true }

// Start polls until it is told to stop. With an interval of 0 it has the signals say once that nobody looks at them.
func (p *poller) Start(ctx context.Context) error {
	tick := time.NewTicker(cmp.Or(p.r.Config.SignalInterval, showAgain))
	defer tick.Stop()
	for ctx.Err() == nil {
		if p.r.Config.SignalInterval > 0 {
			p.r.pollSignals(ctx)
		} else if p.r.switchOff(ctx) {
			return nil
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	return nil
}

// pollSignals looks at the DemandSignals once.
func (r *Reconciler) pollSignals(ctx context.Context) {
	var list v1alpha1.DemandSignalList
	// Not from a cache: the CRD may be missing, and one request in an interval costs less than a watch.
	if err := r.Live.List(ctx, &list); err != nil && !kube.NotServed(err) {
		if ctx.Err() != nil {
			return
		}
		news, first, changed := r.signals.missed(err.Error(), r.Config.Signal, r.Now())
		if news {
			r.Log.Error("demand signals are not looked at", "err", err)
		}
		if first {
			r.requeue.allNodes()
		}
		r.stir(changed)
		return
	}
	changed, pass, first := r.signals.begin(list.Items, r.Config.Signal, r.Now())
	if first {
		r.requeue.allNodes() // what was asked for before may not be any more
	}
	moved := r.lookAt(ctx, list.Items, pass)
	if ctx.Err() != nil {
		return
	}
	r.Metrics.signals(r.signals.reasons())
	for namespace, yes := range moved {
		changed[namespace] = changed[namespace] || yes
	}
	r.stir(changed)
}

// stir has the nodes with pods of namespaces looked at.
func (r *Reconciler) stir(namespaces map[string]bool) {
	for namespace, yes := range namespaces {
		if !yes {
			continue
		}
		r.requeue.nodesOf(namespace)
	}
}

// attention is what a signal gets in a pass.
type attention uint8

const (
	read    attention = iota // its metric is read
	notRead                  // it is not: others of its supplier, or its group, gave nothing
	noTime                   // nor is there time to say so
)

// follow looks at one signal. changed says whether it asks for something else than before, mute that its metrics API took long and
// gave nothing.
func (r *Reconciler) follow(ctx context.Context, d *v1alpha1.DemandSignal, pass int, how attention) (changed, mute bool) {
	f := r.signals.of(d)
	var reading signal.Reading
	var err error
	switch how {
	case read:
		begin := r.Now()
		reading, err = r.readSignal(ctx, d)
		if ctx.Err() != nil {
			return false, false // told to stop: that is no fault of the metric
		}
		f.asked, f.slow = pass, r.Now().Sub(begin) >= slowAnswer
		mute = f.slow && reasonOf(err) == v1alpha1.ReasonMetricsAPIUnavailable
	case notRead:
		f.slow, err = true, notAsked(d)
	}
	now := r.Now()
	if how == read && err == nil {
		f.state = r.Config.Signal.Read(f.state, f.bounds, reading, now)
	} else {
		f.state = r.Config.Signal.Miss(f.state, f.bounds, now)
	}
	ask := constraints.Signal{Name: d.Name, Target: kube.SignalTarget(d), Percent: f.state.Percent}
	changed = ask != f.ask && max(ask.Percent, f.ask.Percent) > 100
	f.ask = ask
	status := laterStatus(d, f.state.Percent)
	if how != noTime {
		status = signalStatus(d, f.state.Percent, reading, err, now)
	}
	r.announce(d, &f, status)
	r.storeStatus(ctx, d, &f, status, now)
	r.signals.set(d.UID, f)
	return changed, mute
}
