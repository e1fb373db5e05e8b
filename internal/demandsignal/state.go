package demandsignal

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/constraints"
	"github.com/mbcas/mbcas/internal/demandsignal/control"
	"github.com/mbcas/mbcas/internal/kube"
)

// signals is the state of all DemandSignals.
type signals struct {
	mu        sync.Mutex
	known     bool // they have been listed, or could not be for long
	byUID     map[types.UID]*signal
	changed   []string  // namespaces in which percentages have changed
	listError string    // why they could not be listed
	failing   time.Time // when they could not be listed at first, before any list
}

// signal is the state of one DemandSignal.
type signal struct {
	namespace   string
	ask         constraints.Signal
	metric      string // that state comes of, with its target
	state       control.State
	bounds      control.Bounds
	reason      string    // of its condition
	written     time.Time // its status
	statusError string    // why it could not be written
	asked       time.Time // when its metric was last read
	slow        bool      // the answer took long, or did not come
}

// asks are the percentages of a namespace; known is false before the first list.
func (s *signals) asks(namespace string) (asks []constraints.Signal, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.byUID {
		if one.namespace == namespace && one.ask.Percent > 0 {
			asks = append(asks, one.ask)
		}
	}
	return asks, s.known
}

// listed takes over a list of all signals: it drops those that are gone, and begins new ones with what their status says, so that
// nothing waits for the first read. first says that there was no list before.
func (s *signals) listed(list []v1alpha1.DemandSignal, cfg control.Config, now time.Time) (first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	exists, before := map[types.UID]bool{}, s.byUID
	s.byUID = map[types.UID]*signal{}
	for i := range list {
		d := &list[i]
		exists[d.UID] = true
		if s.byUID[d.UID] = before[d.UID]; before[d.UID] == nil {
			s.byUID[d.UID] = resumed(d, cfg, now)
		}
	}
	for uid, one := range before {
		if !exists[uid] && one.ask.Percent > 100 {
			s.changed = append(s.changed, one.namespace)
		}
	}
	first, s.known, s.listError = !s.known, true, ""
	return first
}

// follow takes over what the leader has written into the status of the signals, all of which are listed.
func (s *signals) follow(list []v1alpha1.DemandSignal, cfg control.Config, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range list {
		d := &list[i]
		was, is := s.byUID[d.UID], resumed(d, cfg, now)
		if was.ask != is.ask && max(was.ask.Percent, is.ask.Percent) > 100 {
			s.changed = append(s.changed, d.Namespace)
		}
		s.byUID[d.UID] = is
	}
}

// listFailed notes why the signals could not be listed, and says whether that is news. Without a list no metric is read. first says that what was asked for before a start is given up.
func (s *signals) listFailed(cause string, cfg control.Config, now time.Time) (news, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	news, s.listError = s.listError != cause, cause
	for _, one := range s.byUID {
		one.state = cfg.Decay(one.state, one.bounds, now)
		if one.state.Percent != one.ask.Percent && one.ask.Percent > 100 {
			s.changed = append(s.changed, one.namespace)
		}
		one.ask.Percent = one.state.Percent
	}
	if s.failing.IsZero() {
		s.failing = now
	}
	if first = !s.known && now.Sub(s.failing) > cfg.RetainFor; first {
		s.known = true
	}
	return news, first
}

// resumed is a signal as its status tells of it.
func resumed(d *v1alpha1.DemandSignal, cfg control.Config, now time.Time) *signal {
	s := &signal{
		namespace: d.Namespace, metric: metricOf(d), bounds: boundsOf(d),
		ask: constraints.Signal{Name: d.Name, Target: kube.SignalTarget(d)},
	}
	if c := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.SignalAvailable); c != nil {
		s.reason = c.Reason
	}
	// If the signal was edited since, it is not known of which metric the percentage came.
	if d.Status.DemandPercent != nil && d.Status.LastReadTime != nil && d.Status.ObservedGeneration == d.Generation {
		// The metric may have been read since, without that being written: a leader that dies leaves up to statusInterval behind.
		s.state = control.Resume(*d.Status.DemandPercent, d.Status.LastReadTime.Add(statusInterval), now)
		s.state = cfg.Decay(s.state, s.bounds, now)
		s.ask.Percent = s.state.Percent
	}
	return s
}

// metricOf is the metric of a signal, as JSON, with its targets. Those are approximate: the API server stores amounts such as 1e20000000,
// of which Quantity.Cmp computes every digit.
func metricOf(d *v1alpha1.DemandSignal) string {
	spec := d.Spec.Metric.DeepCopy()
	var targets []float64
	take := func(o *v1alpha1.SignalObjective) {
		for _, q := range []*resource.Quantity{o.Value, o.AverageValue} {
			if q == nil {
				q = &resource.Quantity{}
			}
			targets = append(targets, q.AsApproximateFloat64())
		}
		o.Value, o.AverageValue = nil, nil
	}
	for _, m := range []*v1alpha1.MetricTarget{spec.Pods, spec.External} {
		if m != nil {
			take(&m.Target)
		}
	}
	if spec.Object != nil {
		take(&spec.Object.Target)
	}
	text, err := json.Marshal(spec)
	return fmt.Sprintf("%s %v %v", text, targets, err)
}

func boundsOf(d *v1alpha1.DemandSignal) control.Bounds {
	return control.Bounds{Min: d.Spec.MinPercent, Max: d.Spec.MaxPercent}
}

// of is the state of a listed signal. A percentage that came of another metric, or of other pods, no longer counts.
func (s *signals) of(d *v1alpha1.DemandSignal) signal {
	metric := metricOf(d)
	s.mu.Lock()
	defer s.mu.Unlock()
	one := *s.byUID[d.UID]
	if one.ask.Target != kube.SignalTarget(d) || one.metric != metric {
		one.metric, one.state = metric, control.State{}
	}
	one.bounds = boundsOf(d)
	return one
}

func (s *signals) set(uid types.UID, one signal, changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byUID[uid] = &one
	if changed {
		s.changed = append(s.changed, one.namespace)
	}
}

// takeChanged are the namespaces in which percentages have changed since the last call.
func (s *signals) takeChanged() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed := s.changed
	s.changed = nil
	slices.Sort(changed)
	return slices.Compact(changed)
}

// reasons counts the signals by the reason of their condition.
func (s *signals) reasons() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := map[string]int{}
	for _, one := range s.byUID {
		n[one.reason]++
	}
	return n
}
