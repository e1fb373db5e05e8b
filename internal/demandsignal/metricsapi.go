package demandsignal

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	custombeta2 "k8s.io/metrics/pkg/apis/custom_metrics/v1beta2"
	"k8s.io/metrics/pkg/client/custom_metrics"
	"k8s.io/metrics/pkg/client/external_metrics"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/kube"
)

// Value is one value of a metric: of a pod, of an object, or of a series.
type Value struct {
	Pod   string // of a metric of pods
	Value float64
	At    time.Time
}

// readError is why a metric could not be read: the reason and the message of the condition.
type readError struct {
	reason  string
	message string
}

func (e *readError) Error() string { return e.reason + ": " + e.message }

// MetricsAPI reads metrics from the APIs that metrics adapters serve, as HorizontalPodAutoscalers do.
type MetricsAPI struct {
	mapper    meta.RESTMapper
	discovery rest.Interface
	custom    custom_metrics.CustomMetricsClient
	external  external_metrics.ExternalMetricsClient

	mu     sync.Mutex
	groups map[string]served
}

// served says whether the API server serves a group.
type served struct {
	versions []string // none: the group is not served
	until    time.Time
}

// metricTimeout is how long one read may take: the clients of k8s.io/metrics take no context.
const metricTimeout = 5 * time.Second

// How long an answer is kept that a group is served, and that it is not.
const (
	keepServed  = 5 * time.Minute
	keepMissing = 10 * time.Second
)

// NewMetricsAPI reads with the rights of config. mapper finds the resources of objects' kinds.
func NewMetricsAPI(config *rest.Config, mapper meta.RESTMapper) (*MetricsAPI, error) {
	config = rest.CopyConfig(config)
	config.Timeout = metricTimeout
	disco, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("set up discovery of the metrics APIs: %w", err)
	}
	external, err := external_metrics.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("set up a client of the external metrics API: %w", err)
	}
	a := &MetricsAPI{mapper: mapper, discovery: disco.RESTClient(), external: external, groups: map[string]served{}}
	a.custom = custom_metrics.NewForConfig(config, mapper, a)
	return a, nil
}

// Read reads the values of a metric, in no order. pods selects the pods of a metric of pods. The error is a *readError.
func (a *MetricsAPI) Read(ctx context.Context, namespace string, m kube.Metric, pods labels.Selector, now time.Time) ([]Value, error) {
	versions, err := a.versions(ctx, m.Group(), now)
	if err != nil {
		return nil, readErrorOf(m, err)
	}
	if len(versions) == 0 {
		return nil, noAPI(m)
	}
	var values []Value
	if m.Type == v1alpha1.ExternalMetric {
		values, err = a.readExternal(namespace, m)
	} else {
		values, err = a.readCustom(namespace, m, pods)
	}
	if apierrors.IsNotFound(err) { // the metric, or all of them?
		a.invalidate(m.Group())
		if now, lost := a.versions(ctx, m.Group(), now); lost == nil && len(now) == 0 {
			return nil, noAPI(m)
		}
	}
	if err != nil {
		return nil, readErrorOf(m, err)
	}
	if len(values) == 0 {
		return nil, &readError{v1alpha1.ReasonMetricMissing, m.Group() + " has no value of " + m.String() + ": look at what feeds the metrics adapter"}
	}
	return values, nil
}

// versions are those in which the group is served.
func (a *MetricsAPI) versions(ctx context.Context, group string, now time.Time) ([]string, error) {
	a.mu.Lock()
	known, ok := a.groups[group]
	a.mu.Unlock()
	if ok && now.Before(known.until) {
		return known.versions, nil
	}
	var answer metav1.APIGroup
	known = served{until: now.Add(keepMissing)}
	switch err := a.discovery.Get().AbsPath("/apis", group).Do(ctx).Into(&answer); {
	case apierrors.IsNotFound(err):
	case err != nil:
		return nil, err
	default:
		known.until = now.Add(keepServed)
		for _, v := range answer.Versions {
			known.versions = append(known.versions, v.Version)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.groups[group] = known
	return known.versions, nil
}

// invalidate has the API server asked again for the versions of a group.
func (a *MetricsAPI) invalidate(group string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.groups[group] = served{versions: a.groups[group].versions}
}

func (a *MetricsAPI) readExternal(namespace string, m kube.Metric) ([]Value, error) {
	list, err := a.external.NamespacedMetrics(namespace).List(m.Name, m.Selector)
	if err != nil {
		return nil, err
	}
	values := make([]Value, len(list.Items))
	for i, v := range list.Items {
		values[i] = Value{Value: v.Value.AsApproximateFloat64(), At: v.Timestamp.Time}
	}
	return values, nil
}

func (a *MetricsAPI) readCustom(namespace string, m kube.Metric, pods labels.Selector) ([]Value, error) {
	metrics := a.custom.NamespacedMetrics(namespace)
	if m.Type == v1alpha1.ObjectMetric {
		kind := m.Object.GroupKind()
		if _, err := a.mapper.RESTMapping(kind); meta.IsNoMatchError(err) {
			return nil, &readError{v1alpha1.ReasonInvalidMetric, "the cluster knows no kind " + kind.String() + ": check spec.metric.object.describedObject"}
		}
		v, err := metrics.GetForObject(kind, m.Object.Name, m.Name, m.Selector)
		if err != nil {
			return nil, err
		}
		return []Value{value(v)}, nil
	}
	list, err := metrics.GetForObjects(schema.GroupKind{Kind: "Pod"}, pods, m.Name, m.Selector)
	if err != nil {
		return nil, err
	}
	values := make([]Value, len(list.Items))
	for i := range list.Items {
		values[i] = value(&list.Items[i])
	}
	return values, nil
}

func value(v *custombeta2.MetricValue) Value {
	m := Value{Value: v.Value.AsApproximateFloat64(), At: v.Timestamp.Time}
	if k := v.DescribedObject.Kind; k == "Pod" || k == "" {
		m.Pod = v.DescribedObject.Name
	}
	return m
}

// PreferredVersion is the best version of the custom metrics API that both sides know.
func (a *MetricsAPI) PreferredVersion() (schema.GroupVersion, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	versions := a.groups[custom_metrics.MetricVersions[0].Group].versions
	for _, gv := range custom_metrics.MetricVersions {
		if slices.Contains(versions, gv.Version) {
			return gv, nil
		}
	}
	return schema.GroupVersion{}, &readError{v1alpha1.ReasonMetricsAPIUnavailable, fmt.Sprintf(
		"custom.metrics.k8s.io is served in the versions %v alone, which this version of MBCAS does not speak", versions)}
}

// Invalidate has the API server asked again.
func (a *MetricsAPI) Invalidate() { a.invalidate(custom_metrics.MetricVersions[0].Group) }

func noAPI(m kube.Metric) error {
	return &readError{v1alpha1.ReasonMetricsAPIMissing, "the cluster does not serve " + m.Group() + ": install a metrics adapter that does, such as prometheus-adapter or KEDA"}
}

// readErrorOf says in a sentence what an error means, and what to do.
func readErrorOf(m kube.Metric, err error) error {
	var known *readError
	var status apierrors.APIStatus
	var transport *url.Error
	switch {
	case errors.As(err, &known):
		return known
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return &readError{v1alpha1.ReasonMetricForbidden, "the controller may not read " + m.String() + ": let its service account, as config/rbac/controller_role.yaml does: " + err.Error()}
	case apierrors.IsNotFound(err):
		return &readError{v1alpha1.ReasonMetricMissing, m.Group() + " has no " + m.String() + ": check spec.metric, and what the metrics adapter serves: " + err.Error()}
	case apierrors.IsBadRequest(err), apierrors.IsInvalid(err):
		return &readError{v1alpha1.ReasonInvalidMetric, m.Group() + " does not take the question for " + m.String() + ": check spec.metric: " + err.Error()}
	case errors.As(err, &status), errors.As(err, &transport):
		return &readError{v1alpha1.ReasonMetricsAPIUnavailable, m.Group() + " does not answer: look at the metrics adapter and its APIService: " + err.Error()}
	}
	return &readError{v1alpha1.ReasonMetricMissing, m.Group() + " gives no answer for " + m.String() + " that can be used: " + err.Error()}
}
