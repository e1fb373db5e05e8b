package controller

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/autoscalers"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/signal"
)

// readSignal reads a signal's metric. An error is an *unread.
func (r *Reconciler) readSignal(ctx context.Context, d *v1alpha1.DemandSignal) (signal.Reading, error) {
	m, err := kube.MetricOf(d)
	if err != nil {
		return signal.Reading{}, &unread{v1alpha1.ReasonInvalidMetric, err.Error()}
	}
	pods, selector, err := r.podsOf(ctx, d.Namespace, kube.SignalTarget(d))
	if err != nil {
		return signal.Reading{}, err
	}
	values, err := r.ReadMetric(ctx, d.Namespace, m, selector, r.Now())
	if err != nil {
		var known *unread
		if !errors.As(err, &known) {
			err = &unread{v1alpha1.ReasonMetricsAPIUnavailable, err.Error()}
		}
		return signal.Reading{}, err
	}
	now := r.Now()
	reading, some := gatherValues(r.Config.Signal, m, values, pods, now)
	if !some {
		return reading, &unread{v1alpha1.ReasonMetricMissing, m.Group() + " has no value of " + m.String() + " of " + d.Spec.TargetRef.Kind + "/" + d.Spec.TargetRef.Name + ": look at what feeds the metrics adapter"}
	}
	switch r.Config.Signal.Check(reading, now) {
	case signal.NoFigure:
		return reading, &unread{v1alpha1.ReasonInvalidMetric, "the " + m.String() + " has a value that is below 0 or no number: check spec.metric, and what feeds the metrics adapter"}
	case signal.Stale:
		return reading, &unread{v1alpha1.ReasonMetricStale, fmt.Sprintf("the newest value of the %v is from %s, more than %v ago: look at what feeds the metrics adapter", m, reading.At.UTC().Format(time.RFC3339), r.Config.Signal.FreshFor)}
	case signal.Ahead:
		return reading, &unread{v1alpha1.ReasonMetricStale, fmt.Sprintf("the value of the %v is dated more than %v ahead: the clocks of the metrics adapter and of the controller disagree", m, r.Config.Signal.FreshFor)}
	}
	return reading, nil
}

// podsOf are the names of a target's pods, and a selector that finds them among others.
func (r *Reconciler) podsOf(ctx context.Context, namespace string, t kube.Target) (map[string]bool, labels.Selector, error) {
	var selector labels.Selector
	if !t.KnownByOwner() || t.HasScale() {
		var err error
		if selector, err = r.scaleTargets.Selector(ctx, namespace, t); err != nil && !t.KnownByOwner() {
			return nil, nil, &unread{v1alpha1.ReasonTargetUnknown, "the pods of " + t.String() + " are not known: " + autoscalers.Cause(err)}
		}
	}
	var list corev1.PodList
	if err := r.Client.List(ctx, &list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, &unread{v1alpha1.ReasonTargetUnknown, "the pods of the namespace cannot be listed: " + err.Error()}
	}
	pods := map[string]bool{}
	var meant []*corev1.Pod
	for i := range list.Items {
		if pod := &list.Items[i]; !kube.Ended(pod) && t.Owns(pod, selector) {
			pods[pod.Name], meant = true, append(meant, pod)
		}
	}
	if len(pods) == 0 {
		return nil, nil, &unread{v1alpha1.ReasonTargetUnknown, "no pod of this namespace belongs to " + t.String() + ": check spec.targetRef"}
	}
	if pod, why := r.unmanaged(ctx, meant); why != "" {
		return nil, nil, &unread{v1alpha1.ReasonTargetNotManaged, fmt.Sprintf("the market moves no pod of %v, so that nothing can be kept free for it; pod %s: %s (%s)", t, pod, why.Sentence(), why)}
	}
	if selector == nil || selector.Empty() {
		selector = labels.Everything()
	}
	return pods, selector, nil
}

// unmanaged names one of a workload's pods, and why the market does not move it; "" where there is one that it moves, or will, or where
// that cannot be told now.
func (r *Reconciler) unmanaged(ctx context.Context, pods []*corev1.Pod) (name string, why reasons.Reason) {
	namespace := pods[0].Namespace
	var list v1alpha1.PodAllocationList
	if closed, _ := r.Gate.Closed(); closed == reasons.CRDNotInstalled || r.Client.List(ctx, &list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy) != nil {
		return "", ""
	}
	allocated := map[types.UID]bool{}
	for i := range list.Items {
		allocated[list.Items[i].Spec.PodRef.UID] = true
	}
	for _, pod := range pods {
		if allocated[pod.UID] {
			return "", ""
		}
	}
	n, err := r.neighbours(ctx, &snapshot{namespaces: map[string]*neighbourhood{}}, namespace)
	if err != nil {
		return "", ""
	}
	for _, pod := range pods {
		reason := exclusion(pod, n, r.Config.Namespace).Reason
		if reason == "" {
			return "", "" // its PodAllocation is on its way
		}
		if name == "" {
			name, why = pod.Name, reason
		}
	}
	return name, why
}

// gatherValues makes one reading of the values of a metric: the mean over pods, or the sum over series. Of values that are not
// all fresh the fresh ones count, and of those the oldest says how old the reading is. some is false where there is none.
func gatherValues(cfg signal.Config, m kube.Metric, values []MetricValue, pods map[string]bool, now time.Time) (r signal.Reading, some bool) {
	r.Target = m.Target
	n, fresh := 0, false
	for _, v := range values {
		if m.Type == v1alpha1.PodsMetric && !pods[v.Pod] {
			continue
		}
		isFresh := max(now.Sub(v.At), v.At.Sub(now)) <= cfg.FreshFor
		switch {
		case !isFresh && fresh:
			continue
		case isFresh && !fresh:
			n, r.Value, r.At, fresh = 0, 0, time.Time{}, true
		}
		if n++; v.Value < 0 {
			v.Value = math.NaN() // and so is the sum
		}
		r.Value += v.Value
		if n == 1 || v.At.Before(r.At) == fresh {
			r.At = v.At
		}
	}
	switch {
	case m.Type == v1alpha1.PodsMetric:
		r.Value /= float64(max(1, n))
	case m.PerPod:
		r.Value /= float64(max(1, len(pods)))
	}
	return r, n > 0
}
