package controller

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/constraints"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/signal"
)

// latency creates a DemandSignal on an external metric for a Deployment, with a target of 200m and at most 300 %.
func (r *rig) latency(name, deployment, metric string) *v1alpha1.DemandSignal {
	r.Helper()
	aim := resource.MustParse("200m")
	d := &v1alpha1.DemandSignal{}
	d.Namespace, d.Name = r.namespace, name
	d.Spec = v1alpha1.DemandSignalSpec{
		TargetRef: v1alpha1.ObjectRef{APIVersion: "apps/v1", Kind: "Deployment", Name: deployment}, MaxPercent: 300,
		Metric: v1alpha1.SignalMetric{Type: v1alpha1.ExternalMetric, External: &v1alpha1.ExternalSignal{
			Metric: v1alpha1.MetricID{Name: metric, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"service": deployment}}},
			Target: v1alpha1.SignalObjective{Type: "Value", Value: &aim},
		}},
	}
	r.must(r.Client.Create(r.Context(), d))
	r.Cleanup(func() {
		if err := r.Client.Delete(context.Background(), d); client.IgnoreNotFound(err) != nil {
			r.Error(err)
		}
	})
	return d
}

// stored is the signal as it is stored, with the reason of its condition.
func (r *rig) storedSignal(d *v1alpha1.DemandSignal) (*v1alpha1.DemandSignal, string) {
	r.Helper()
	got := &v1alpha1.DemandSignal{}
	r.must(r.Client.Get(r.Context(), client.ObjectKeyFromObject(d), got))
	if c := meta.FindStatusCondition(got.Status.Conditions, v1alpha1.SignalAvailable); c != nil {
		return got, c.Reason
	}
	return got, ""
}

// says waits until the condition of a signal has a reason, and holds its message to contain some words.
func (r *rig) says(d *v1alpha1.DemandSignal, reason string, words ...string) *v1alpha1.DemandSignal {
	r.Helper()
	var got *v1alpha1.DemandSignal
	r.until("signal "+d.Name+" is "+reason, func() (bool, any) {
		var is string
		got, is = r.storedSignal(d)
		return is == reason && got.Status.ObservedGeneration == got.Generation, got.Status
	})
	for _, w := range words {
		if m := got.Status.Conditions[0].Message; !strings.Contains(m, w) {
			r.Errorf("%s: message %q, want %q in it", reason, m, w)
		}
	}
	return got
}

// demandIs waits until a pod's terms ask for a demand; 0 for none.
func (r *rig) demandIs(pod *corev1.Pod, what string, is func(percent int32) bool) {
	r.Helper()
	r.allocation(pod, what, func(pa *v1alpha1.PodAllocation) bool { return is(asksFor(pa)) })
}

func asksFor(pa *v1alpha1.PodAllocation) int32 {
	if pa.Status.Constraints == nil || pa.Status.Constraints.DemandPercent == nil {
		return 0
	}
	return *pa.Status.Constraints.DemandPercent
}

func none(percent int32) bool { return percent == 0 }

// externalMetric serves an external metric through the API server itself: a custom resource whose plural is the metric's name, and
// whose objects are its series.
func externalMetric(plural string) *apiextensionsv1.CustomResourceDefinition {
	crd := custom(plural, "external.metrics.k8s.io", "ExternalMetricValue", false)
	yes := true
	crd.Spec.Versions[0].Name, crd.Spec.Versions[0].Subresources = "v1beta1", nil
	crd.Spec.Versions[0].Schema.OpenAPIV3Schema = &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &yes}
	return crd
}

// series sets the one series of an external metric; nil removes it.
func (r *rig) series(plural, service string, value any, at time.Time) {
	r.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetAPIVersion("external.metrics.k8s.io/v1beta1")
	o.SetKind("ExternalMetricValue")
	o.SetNamespace(r.namespace)
	o.SetName(plural)
	if value == nil {
		r.must(client.IgnoreNotFound(r.Client.Delete(r.Context(), o)))
		return
	}
	o.SetLabels(map[string]string{"service": service})
	o.Object["metricName"], o.Object["value"], o.Object["timestamp"] = plural, value, at.UTC().Format(time.RFC3339)
	text, err := json.Marshal(o.Object)
	r.must(err)
	r.until("the metric "+plural+" is served", func() (bool, any) {
		err := r.Client.Patch(r.Context(), o, client.RawPatch("application/apply-patch+yaml", text), client.FieldOwner("test"), client.ForceOwnership)
		return err == nil, err
	})
}

// TestSignalDrivesDemand runs the controller as it ships beside an external metric that the real API server serves.
func TestSignalDrivesDemand(t *testing.T) {
	r := newRig(t)
	r.config.SignalInterval = 100 * time.Millisecond
	r.config.Signal.Gain, r.config.Signal.HoldFor, r.config.Signal.HalfLife = 120, 500*time.Millisecond, 50*time.Millisecond
	r.start(func(re *Reconciler) { // as cmd/mbcas-controller wires it
		api, err := NewMetricsAPI(r.Config, r.Client.RESTMapper())
		r.must(err)
		re.ReadMetric, re.signals.known = api.Read, false
	})
	web, other := r.ownedPod("web", "web", "100m", "500m"), r.ownedPod("other", "other", "100m", "500m")
	for _, pod := range []*corev1.Pod{web, other} {
		r.allocation(pod, "made", stands(v1alpha1.PhasePending, reasons.NoDecisionYet))
	}
	d := r.latency("web-latency", "web", "latencies")
	r.says(d, v1alpha1.ReasonMetricsAPIMissing, "external.metrics.k8s.io", "install a metrics adapter")
	r.demandIs(web, "without a metric", none)

	remove := install(r, externalMetric("latencies"))
	r.series("latencies", "somebody-else", "9", time.Now())
	r.says(d, v1alpha1.ReasonMetricMissing, "external metric latencies{service=web}")

	r.series("latencies", "web", "400m", time.Now())
	got := r.says(d, v1alpha1.ReasonMetricRead)
	if got.Status.Current == nil || got.Status.Current.String() != "400m" || got.Status.LastReadTime == nil {
		t.Errorf("status %+v", got.Status)
	}
	r.demandIs(web, "twice the target", func(p int32) bool { return p == 300 })
	if pa := r.stored(web); pa.Status.Constraints.DemandBy != "DemandSignal/web-latency" {
		t.Errorf("terms %+v", pa.Status.Constraints)
	}
	r.demandIs(other, "not meant", none)
	r.series("latencies", "web", "100m", time.Now())
	r.demandIs(web, "half the target", none)
	r.series("latencies", "web", "1", time.Now())
	r.demandIs(web, "five times the target", func(p int32) bool { return p == 300 })

	r.series("latencies", "web", nil, time.Time{})
	r.says(d, v1alpha1.ReasonMetricMissing)
	r.demandIs(web, "the metric has vanished", none)
	r.until("the signal has no say", func() (bool, any) {
		got, _ := r.storedSignal(d)
		return got.Status.DemandPercent == nil, got.Status
	})

	r.series("latencies", "web", "1", time.Now().Add(-time.Hour))
	r.says(d, v1alpha1.ReasonMetricStale, "more than 2m0s ago")
	r.series("latencies", "web", "0", time.Now())
	r.says(d, v1alpha1.ReasonMetricRead)
	r.series("latencies", "web", "-1", time.Now())
	r.says(d, v1alpha1.ReasonInvalidMetric, "below 0")
	r.series("latencies", "web", "1", time.Now().Add(time.Hour))
	r.says(d, v1alpha1.ReasonMetricStale, "the clocks")
	r.demandIs(web, "nothing that can be used", none)

	r.series("latencies", "web", "1", time.Now())
	r.demandIs(web, "back", func(p int32) bool { return p > 200 })
	remove()
	r.says(d, v1alpha1.ReasonMetricsAPIMissing)
	r.demandIs(web, "the API has vanished", none)
}

// metrics is a metrics API of the test's.
type metrics struct {
	value float64
	err   error
	reads int
}

func (m *metrics) read(_ context.Context, _ string, _ kube.Metric, _ labels.Selector, now time.Time) ([]MetricValue, error) {
	m.reads++
	return []MetricValue{{Value: m.value, At: now}}, m.err
}

// polls is a life that looks at the signals with the node.
func (l *life) follows(m *metrics) *life {
	l.ReadMetric, l.signals.known = m.read, false
	return l
}

// later lets time pass in looks of 15 s.
func (l *life) later(long time.Duration) {
	l.Helper()
	for range int(long / (15 * time.Second)) {
		l.ahead += 15 * time.Second
		l.pollSignals(l.Context())
	}
}

// TestFallsBackToTheKernel: the percentage stays for a minute, goes back, and is gone; who changes the signal, deletes it, or starts the
// controller anew finds it followed.
func TestFallsBackToTheKernel(t *testing.T) {
	r := newRig(t)
	m := &metrics{value: 0.8}
	l := r.live(0, false).follows(m)
	pod := r.ownedPod("web", "web", "100m", "500m")
	d := r.latency("web", "web", "p99")
	percent := func() int32 { r.hearAt(l.Now()); return asksFor(l.look(pod)) }

	l.later(3 * time.Minute) // four times the target: 4^0.1 a minute, from the first look on
	if p := percent(); p < 140 || p > 150 {
		t.Fatalf("%d %% after three minutes at four times the target", p)
	}
	second := r.live(0, false).follows(m) // leads from now on
	second.ahead = l.ahead
	l = second
	if p := percent(); p < 140 || p > 150 {
		t.Errorf("%d %% before the new leader has looked", p)
	}
	m.err = fmt.Errorf("lost")
	l.later(75 * time.Second) // the last read before may have gone unwritten
	if p := percent(); p < 140 || p > 150 {
		t.Errorf("%d %% a minute after the metric was lost", p)
	}
	if _, reason := r.storedSignal(d); reason != v1alpha1.ReasonMetricsAPIUnavailable {
		t.Errorf("reason %s", reason)
	}
	l.later(15 * time.Second)
	if p := percent(); p < 118 || p > 130 {
		t.Errorf("%d %% 15 s later, want half way back", p)
	}
	l.later(time.Minute)
	if p := percent(); p != 0 {
		t.Errorf("%d %% a minute later", p)
	}
	m.err = nil
	l.later(5 * time.Minute)
	if p := percent(); p < 170 {
		t.Errorf("%d %% when the metric is back", p)
	}

	before := d.DeepCopy()
	d.Spec.MaxPercent = 120
	r.must(r.Client.Patch(t.Context(), d, client.MergeFrom(before)))
	l.later(15 * time.Second)
	if p := percent(); p != 120 {
		t.Errorf("%d %% of at most 120", p)
	}
	before = d.DeepCopy()
	d.Spec.TargetRef.Name = "none"
	r.must(r.Client.Patch(t.Context(), d, client.MergeFrom(before)))
	l.later(15 * time.Second)
	if p := percent(); p != 0 {
		t.Errorf("%d %% of a pod that is not meant any more", p)
	}
	r.says(d, v1alpha1.ReasonTargetUnknown, "Deployment/none", "spec.targetRef")
	before = d.DeepCopy()
	d.Spec.TargetRef.Name = "web"
	r.must(r.Client.Patch(t.Context(), d, client.MergeFrom(before)))
	l.later(2 * time.Minute)
	if p := percent(); p != 120 {
		t.Errorf("%d %% two minutes after it is meant again", p)
	}
	if asks, _ := l.signals.asks(r.namespace + "-2"); len(asks) > 0 {
		t.Errorf("another namespace is asked for %v", asks)
	}
	for len(l.requeue.namespace) > 0 {
		<-l.requeue.namespace
	}
	r.must(r.Client.Delete(t.Context(), d))
	l.later(15 * time.Second)
	if p := percent(); p != 0 || len(l.requeue.namespace) != 1 {
		t.Errorf("%d %% after the signal was deleted, and %d wake-ups", p, len(l.requeue.namespace))
	}
}

// TestDeletedWhileNobodyLooked: what a signal asked for goes with the first look of a new leader.
func TestDeletedWhileNobodyLooked(t *testing.T) {
	r := newRig(t)
	m := &metrics{value: 0.8}
	l := r.live(0, false).follows(m)
	pod := r.ownedPod("web", "web", "100m", "500m")
	d := r.latency("web", "web", "p99")
	l.later(3 * time.Minute)
	if p := asksFor(l.look(pod)); p < 140 {
		t.Fatalf("%d %%", p)
	}
	r.must(r.Client.Delete(t.Context(), d))
	second := r.live(0, false).follows(m)
	<-second.wakes(func() { second.pollSignals(t.Context()) })
	if p := asksFor(second.look(pod)); p != 0 {
		t.Errorf("%d %% of a signal that is gone", p)
	}
}

// wakes runs f, and returns a channel that tells that all nodes are woken.
func (l *life) wakes(f func()) <-chan struct{} {
	f()
	done := make(chan struct{})
	select {
	case <-l.requeue.all:
		close(done)
	default:
		l.Fatal("nobody is woken")
	}
	return done
}

// TestSignalsAreQuiet: a metric that stays costs a write a minute, and wakes nobody; without signals there is nothing but the list.
func TestSignalsAreQuiet(t *testing.T) {
	r := newRig(t)
	m := &metrics{value: 0.2}
	l := r.live(0, false).follows(m)
	r.ownedPod("web", "web", "100m", "500m")
	l.later(15 * time.Second)
	<-l.wakes(func() {})
	if m.reads != 0 || l.writes.count() != 0 {
		t.Errorf("%d reads and %d writes without signals", m.reads, l.writes.count())
	}
	r.latency("web", "web", "p99")
	l.later(time.Minute)
	before := l.writes.count()
	l.later(10 * time.Minute)
	if n := l.writes.count() - before; n < 9 || n > 11 {
		t.Errorf("%d writes in ten minutes, want one a minute", n)
	}
	m.err = &unread{v1alpha1.ReasonMetricMissing, "gone"}
	l.later(3 * time.Minute)
	before = l.writes.count()
	l.later(10 * time.Minute)
	if n := l.writes.count() - before; n != 0 {
		t.Errorf("%d writes in ten minutes without a metric, want none", n)
	}
	if len(l.requeue.namespace) != 0 || len(l.requeue.all) != 0 {
		t.Errorf("%d and %d wake-ups, though nothing was ever asked for", len(l.requeue.namespace), len(l.requeue.all))
	}
	m.err, m.value = nil, 0.4
	l.later(time.Minute)
	if n := len(l.requeue.namespace); n != 2 {
		t.Errorf("%d wake-ups while the percentage went from 100 to 113 in four steps, want two", n)
	}
}

// TestSignalsWithoutTheirDefinition: an installation from before DemandSignals works on as it is, and takes them up when they are
// defined; where the right to list them is missing it says so once.
func TestSignalsWithoutTheirDefinition(t *testing.T) {
	r := newRig(t)
	m := &metrics{value: 0.8}
	l := r.live(0, false).follows(m)
	pod := r.ownedPod("web", "web", "100m", "500m")
	r.latency("web", "web", "p99")
	l.later(3 * time.Minute)
	if p := asksFor(l.look(pod)); p < 140 {
		t.Fatalf("%d %%", p)
	}
	var log bytes.Buffer
	l.Log = slog.New(slog.NewTextHandler(&log, nil))
	crd := &apiextensionsv1.CustomResourceDefinition{}
	crd.Name = "demandsignals.allocation.mbcas.io"
	scheme := runtime.NewScheme()
	r.must(apiextensionsv1.AddToScheme(scheme))
	c, err := client.New(r.Config, client.Options{Scheme: scheme})
	r.must(err)
	r.must(c.Delete(t.Context(), crd))
	reinstall := func() {
		_, err := envtest.InstallCRDs(r.Config, envtest.CRDInstallOptions{Paths: []string{"../../config/crd"}, MaxTime: time.Minute})
		if err != nil {
			t.Errorf("install the CRD again: %v", err)
		}
	}
	t.Cleanup(reinstall)
	r.until("the definition is gone", func() (bool, any) {
		err := c.Get(t.Context(), client.ObjectKeyFromObject(crd), crd)
		return client.IgnoreNotFound(err) == nil && err != nil, err
	})
	r.until("nothing is asked for", func() (bool, any) {
		l.later(15 * time.Second)
		r.hearAt(l.Now())
		p := asksFor(l.look(pod))
		return p == 0, p
	})
	if log.Len() > 0 {
		t.Errorf("it complains:\n%s", log.String())
	}
	reinstall()
	r.latency("web", "web", "p99")
	l.later(3 * time.Minute)
	r.hearAt(l.Now())
	if p := asksFor(l.look(pod)); p < 140 {
		t.Errorf("%d %% when they are defined again", p)
	}

	log.Reset()
	l.Live = r.As(t, "nobody")
	second := r.live(0, false).follows(m)
	second.ahead, second.Live = l.ahead, l.Live
	second.later(time.Minute)
	if p := asksFor(second.look(pod)); p < 140 {
		t.Errorf("%d %% within a minute of a start", p)
	}
	second.later(30 * time.Second)
	<-second.wakes(func() {})
	if p := asksFor(second.look(pod)); p != 0 {
		t.Errorf("%d %% later: want none, as nobody knows whether it is asked for", p)
	}
	l.look(pod)

	l.later(time.Minute)
	if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(log.String(), "forbidden") {
		t.Errorf("%d lines without the right to list them, want one:\n%s", n, log.String())
	}
	if p := asksFor(l.look(pod)); p < 140 {
		t.Errorf("%d %% a minute after they could be listed: want what was asked for last", p)
	}
	l.later(2 * time.Minute)
	if p := asksFor(l.look(pod)); p != 0 || len(l.requeue.namespace) == 0 {
		t.Errorf("%d %% after three minutes, %d wake-ups", p, len(l.requeue.namespace))
	}
}

// TestQuotaHearsSignals: what a pod's demand is taken for counts where a quota is short, and none is taken for less than it is.
func TestQuotaHearsSignals(t *testing.T) {
	pod := running("u1", 500, false)
	yes := true
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", Controller: &yes}}
	pa := allocation.New(pod)
	pa.Status.DeclaredLimits = []v1alpha1.ContainerLimit{app(500)}
	pa.Spec.Decision = &v1alpha1.Decision{Demand: 400}
	n := &constraints.NamespaceObjects{}
	for percent, want := range map[int32]cpu.Milli{50: 400, 100: 400, 250: 1000} {
		n.Signals = []constraints.Signal{{Name: "db", Target: kube.Target{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db"}, Percent: percent}}
		if got := claimOf(n, pod, pa, 4000).Demand; got != want {
			t.Errorf("at %d %% a demand of 400m counts as %v, want %v", percent, got, want)
		}
	}
}

// TestGatherValues: one reading of many values.
func TestGatherValues(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	pods := map[string]bool{"a": true, "b": true, "c": true}
	v := func(pod string, value float64, age time.Duration) MetricValue {
		return MetricValue{pod, value, now.Add(-age)}
	}
	of, series, perPod := kube.Metric{Type: v1alpha1.PodsMetric}, kube.Metric{Type: v1alpha1.ExternalMetric}, kube.Metric{Type: v1alpha1.ExternalMetric, PerPod: true}
	const s, old = time.Second, time.Hour
	for name, tt := range map[string]struct {
		m      kube.Metric
		values []MetricValue
		want   float64
		age    time.Duration
		none   bool
	}{
		"the mean of pods":               {of, []MetricValue{v("a", 1, s), v("b", 3, 2*s), v("c", 5, s)}, 3, 2 * s, false},
		"of pods that tell":              {of, []MetricValue{v("a", 1, s), v("b", 3, s)}, 2, s, false},
		"of its own":                     {of, []MetricValue{v("a", 1, s), v("x", 99, s)}, 1, s, false},
		"none of its own":                {of, []MetricValue{v("x", 99, s)}, 0, 0, true},
		"without the stale ones":         {of, []MetricValue{v("a", 9, old), v("b", 3, s), v("c", 99, old)}, 3, s, false},
		"all stale: the newest speaks":   {of, []MetricValue{v("a", 9, 2*old), v("b", 3, old), v("c", 3, 3*old)}, 5, old, false},
		"a pod that measured nothing":    {of, []MetricValue{v("a", 0, s), v("b", 4, s)}, 2, s, false},
		"a pod below zero":               {of, []MetricValue{v("a", -1, s), v("b", 4, s)}, math.NaN(), s, false},
		"the sum of series":              {series, []MetricValue{v("", 1, s), v("", 3, s)}, 4, s, false},
		"the sum of series, for one pod": {perPod, []MetricValue{v("", 1, s), v("", 5, s)}, 2, s, false},
		"an object that is called a pod": {series, []MetricValue{v("x", 1, s)}, 1, s, false},
	} {
		r, some := gatherValues(signal.DefaultConfig(), tt.m, tt.values, pods, now)
		same := math.Abs(r.Value-tt.want) < 1e-9 || math.IsNaN(r.Value) && math.IsNaN(tt.want)
		if some == tt.none || some && (!same || now.Sub(r.At) != tt.age) {
			t.Errorf("%s: %+v (%v), want %v from %v ago", name, r, some, tt.want, tt.age)
		}
	}
}
