// Package demandsignal is the controller of DemandSignals: it reads their metrics, and tells for which pods demand is multiplied by
// what. The per-pod path asks it for percentages and for nothing else. The leader reads metrics and writes the percentages into the
// status of the signals; the other replicas take them from there.
//
// What it promises, each a test of the same name:
//   - FallsBackToTheKernel: if the metric cannot be read, the percentage stays for a minute, goes back to 100, and is gone.
//   - ASlowAdapterDelaysNoOther: signals whose metrics are answered at once are read in time, whatever becomes of the others.
//   - ANewLeaderKeepsThePercentage: a restart, or a change of the leader, changes no percentage.
//   - FollowsTheLeader: a replica that does not lead has the leader's percentages, and reads and writes nothing.
//   - SignalsAreQuiet: a metric that does not change costs one write a minute, and requeues no node.
package demandsignal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/autoscalers"
	"github.com/mbcas/mbcas/internal/constraints"
	"github.com/mbcas/mbcas/internal/demandsignal/control"
	"github.com/mbcas/mbcas/internal/kube"
)

// Config is how the metrics of DemandSignals are read and used.
type Config struct {
	// Interval is how often they are read, at least every Control.RetainFor; 0: never. Shorter sees a change sooner, and costs a
	// request per signal each time.
	Interval time.Duration
	Control  control.Config
}

// DefaultConfig is what we would run ourselves.
func DefaultConfig() Config {
	return Config{Interval: 15 * time.Second, Control: control.DefaultConfig()}
}

// Validate says everything that is wrong.
func (c Config) Validate() error {
	errs := []error{c.Control.Validate()}
	if c.Interval != 0 && c.Interval < time.Second {
		errs = append(errs, fmt.Errorf("signal Interval is %v: want 0 or at least 1s", c.Interval))
	}
	if c.Interval > c.Control.RetainFor {
		errs = append(errs, fmt.Errorf("signal Interval is %v, and RetainFor %v: a percentage would be given up between two reads; "+
			"want an Interval of at most RetainFor", c.Interval, c.Control.RetainFor))
	}
	return errors.Join(errs...)
}

// Reader reads the values of a metric, as MetricsAPI.Read does. Errors that MetricsAPI.Read does not return count as an
// unavailable metrics API.
type Reader func(ctx context.Context, namespace string, m kube.Metric, pods labels.Selector, now time.Time) ([]Value, error)

// Controller follows the metrics of all DemandSignals.
type Controller struct {
	Config Config
	// Client reads from caches and writes to the API server.
	Client client.Client
	// Live reads from the API server itself.
	Live client.Reader
	Read Reader
	// Targets knows the pods of custom scale targets.
	Targets *autoscalers.ScaleTargets
	// Unmanaged names one of a workload's pods, and why MBCAS does not resize it; "" if it resizes one of them, or will, or if that
	// is not known at present.
	Unmanaged func(ctx context.Context, pods []*corev1.Pod) (name string, why reasons.Reason)
	// Changed is called with a namespace in which percentages have changed; with "" if that may be any.
	Changed func(namespace string)
	// Count is called with the number of DemandSignals by the reason of their condition.
	Count  func(byReason map[string]int)
	Events events.EventRecorder
	Log    *slog.Logger
	Now    func() time.Time
	// Leads says whether this replica is the leader.
	Leads func() bool

	signals signals
}

// Setup has the manager run the controller.
func (c *Controller) Setup(mgr ctrl.Manager) error {
	if err := mgr.Add(c); err != nil {
		return fmt.Errorf("set up the controller of DemandSignals: %w", err)
	}
	return nil
}

// Percentages are those of a namespace; known is false before the first list of signals, when what they asked for before a start
// stays in force.
func (c *Controller) Percentages(namespace string) (asks []constraints.Signal, known bool) {
	asks, known = c.signals.asks(namespace)
	return asks, known || c.Config.Interval == 0
}

// NeedLeaderElection is false: every replica has the percentages. The status of a signal has one writer, the leader.
func (c *Controller) NeedLeaderElection() bool { return false }

// Start follows the signals until ctx ends. With an Interval of 0 the leader writes once into all signals that none is read.
func (c *Controller) Start(ctx context.Context) error {
	tick := time.NewTicker(cmp.Or(c.Config.Interval, statusInterval))
	defer tick.Stop()
	for ctx.Err() == nil {
		if c.Config.Interval > 0 {
			c.poll(ctx)
		} else if c.Leads() && c.switchOff(ctx) {
			return nil
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	return nil
}

func (c *Controller) poll(ctx context.Context) {
	var list v1alpha1.DemandSignalList
	// Not from a cache: the CRD may be missing, and one request in an interval costs less than a watch.
	if err := c.Live.List(ctx, &list); err != nil && !kube.NotServed(err) {
		if ctx.Err() != nil {
			return
		}
		news, first := c.signals.listFailed(err.Error(), c.Config.Control, c.Now())
		if news {
			c.Log.Error("DemandSignals cannot be listed", "err", err)
		}
		c.requeue(first)
		return
	}
	if first := c.signals.listed(list.Items, c.Config.Control, c.Now()); first {
		c.Changed("")
	}
	if !c.Leads() {
		c.signals.follow(list.Items, c.Config.Control, c.Now())
		c.Count(nil)
		c.requeue(false)
		return
	}
	c.evaluateAll(ctx, list.Items)
	if ctx.Err() != nil {
		return
	}
	c.Count(c.signals.reasons())
	c.requeue(false)
}

// requeue reports changed percentages, or after the first list all.
func (c *Controller) requeue(all bool) {
	if all {
		c.Changed("")
	}
	for _, namespace := range c.signals.takeChanged() {
		c.Changed(namespace)
	}
}

// attempt says how far a signal gets in a pass.
type attempt uint8

const (
	readMetric attempt = iota // its metric is read
	skipRead                  // it is not: other metrics of its source, or its API group, gave nothing
	outOfTime                 // nor is there time to write so into its status
)

// evaluate takes one signal a pass further. unanswered says that its metrics API took long and gave nothing.
func (c *Controller) evaluate(ctx context.Context, d *v1alpha1.DemandSignal, how attempt) (unanswered bool) {
	s := c.signals.of(d)
	var sample control.Sample
	var err error
	switch how {
	case readMetric:
		begin := c.Now()
		sample, err = c.sample(ctx, d)
		if ctx.Err() != nil {
			return false // the metric is not at fault
		}
		s.asked, s.slow = begin, c.Now().Sub(begin) >= slowAnswer
		unanswered = s.slow && reasonOf(err) == v1alpha1.ReasonMetricsAPIUnavailable
	case skipRead:
		s.slow, err = true, notRead(d)
	}
	now := c.Now()
	if how == readMetric && err == nil {
		s.state = c.Config.Control.Update(s.state, s.bounds, sample, now)
	} else {
		s.state = c.Config.Control.Decay(s.state, s.bounds, now)
	}
	ask := constraints.Signal{Name: d.Name, Target: kube.SignalTarget(d), Percent: s.state.Percent}
	changed := ask != s.ask && max(ask.Percent, s.ask.Percent) > 100
	s.ask = ask
	status := percentStatus(d, s.state.Percent)
	if how != outOfTime {
		status = readStatus(d, s.state.Percent, sample, err, now)
	}
	c.announce(d, &s, status)
	c.storeStatus(ctx, d, &s, status, now)
	c.signals.set(d.UID, s, changed)
	return unanswered
}
