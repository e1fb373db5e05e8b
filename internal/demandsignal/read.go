package demandsignal

import (
	"context"
	"fmt"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/autoscalers"
	"github.com/mbcas/mbcas/internal/demandsignal/control"
	"github.com/mbcas/mbcas/internal/kube"
)

// sample reads a signal's metric. An error is a *readError.
func (c *Controller) sample(ctx context.Context, d *v1alpha1.DemandSignal) (control.Sample, error) {
	m, err := kube.MetricOf(d)
	if err != nil {
		return control.Sample{}, &readError{v1alpha1.ReasonInvalidMetric, err.Error()}
	}
	pods, selector, err := c.podsOf(ctx, d.Namespace, kube.SignalTarget(d))
	if err != nil {
		return control.Sample{}, err
	}
	values, err := c.Read(ctx, d.Namespace, m, selector, c.Now())
	if err != nil {
		return control.Sample{}, err
	}
	now := c.Now()
	sample, some := aggregate(c.Config.Control, m, values, pods, now)
	if !some {
		return sample, &readError{v1alpha1.ReasonMetricMissing, m.Group() + " has no value of " + m.String() + " of " +
			d.Spec.TargetRef.Kind + "/" + d.Spec.TargetRef.Name + ": look at what feeds the metrics adapter"}
	}
	switch c.Config.Control.Check(sample, now) {
	case control.NotANumber:
		return sample, &readError{v1alpha1.ReasonInvalidMetric,
			"the " + m.String() + " has a value that is below 0 or no number: check spec.metric, and what feeds the metrics adapter"}
	case control.Stale:
		return sample, &readError{v1alpha1.ReasonMetricStale, fmt.Sprintf(
			"the newest value of the %v is from %s, more than %v ago: look at what feeds the metrics adapter",
			m, sample.At.UTC().Format(time.RFC3339), c.Config.Control.MaxAge)}
	case control.FromTheFuture:
		return sample, &readError{v1alpha1.ReasonMetricStale, fmt.Sprintf(
			"the value of the %v is dated more than %v ahead: the clocks of the metrics adapter and of the controller disagree",
			m, c.Config.Control.MaxAge)}
	}
	return sample, nil
}

// podsOf are the names of a target's pods, and a selector that finds them among others.
func (c *Controller) podsOf(ctx context.Context, namespace string, t kube.Target) (map[string]bool, labels.Selector, error) {
	var selector labels.Selector
	if !t.KnownByOwner() || t.HasScale() {
		var err error
		if selector, err = c.Targets.Selector(ctx, namespace, t); err != nil && !t.KnownByOwner() {
			return nil, nil, &readError{v1alpha1.ReasonTargetUnknown, "the pods of " + t.String() + " are not known: " + autoscalers.Cause(err)}
		}
	}
	var list corev1.PodList
	if err := c.Client.List(ctx, &list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, &readError{v1alpha1.ReasonTargetUnknown, "the pods of the namespace cannot be listed: " + err.Error()}
	}
	pods := map[string]bool{}
	var targeted []*corev1.Pod
	for i := range list.Items {
		if pod := &list.Items[i]; !kube.Ended(pod) && t.Owns(pod, selector) {
			pods[pod.Name], targeted = true, append(targeted, pod)
		}
	}
	if len(pods) == 0 {
		return nil, nil, &readError{v1alpha1.ReasonTargetUnknown, "no pod of this namespace belongs to " + t.String() + ": check spec.targetRef"}
	}
	if pod, why := c.Unmanaged(ctx, targeted); why != "" {
		return nil, nil, &readError{v1alpha1.ReasonTargetNotManaged, fmt.Sprintf(
			"MBCAS resizes no pod of %v, so that nothing can be kept free for it; pod %s: %s (%s)", t, pod, why.Sentence(), why)}
	}
	if selector == nil || selector.Empty() {
		selector = labels.Everything()
	}
	return pods, selector, nil
}

// aggregate makes one sample of the values of a metric: the mean over pods, or the sum over series. Of values that are not
// all fresh the fresh ones count, and of those the oldest says how old the sample is. some is false if there is none.
func aggregate(cfg control.Config, m kube.Metric, values []Value, pods map[string]bool, now time.Time) (sample control.Sample, some bool) {
	sample.Target = m.Target
	n, fresh := 0, false
	for _, v := range values {
		if m.Type == v1alpha1.PodsMetric && !pods[v.Pod] {
			continue
		}
		isFresh := max(now.Sub(v.At), v.At.Sub(now)) <= cfg.MaxAge
		switch {
		case !isFresh && fresh:
			continue
		case isFresh && !fresh:
			n, sample.Value, sample.At, fresh = 0, 0, time.Time{}, true
		}
		if n++; v.Value < 0 {
			v.Value = math.NaN() // and so is the sum
		}
		sample.Value += v.Value
		if n == 1 || v.At.Before(sample.At) == fresh {
			sample.At = v.At
		}
	}
	switch {
	case m.Type == v1alpha1.PodsMetric:
		sample.Value /= float64(max(1, n))
	case m.PerPod:
		sample.Value /= float64(max(1, len(pods)))
	}
	return sample, n > 0
}
