package controller

import (
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/demandsignal"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

// latency creates a DemandSignal on an external metric for a Deployment, with a target of 200m and at most 300 %.
func (r *rig) latency(name, deployment, metric string) *v1alpha1.DemandSignal {
	r.Helper()
	aim := resource.MustParse("200m")
	d := &v1alpha1.DemandSignal{}
	d.Namespace, d.Name = r.namespace, name
	d.Spec = v1alpha1.DemandSignalSpec{
		TargetRef: v1alpha1.ObjectRef{APIVersion: "apps/v1", Kind: "Deployment", Name: deployment}, MaxPercent: 300,
		Metric: v1alpha1.SignalMetric{Type: v1alpha1.ExternalMetric, External: &v1alpha1.MetricTarget{
			Metric: v1alpha1.MetricID{Name: metric, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"service": deployment}}},
			Target: v1alpha1.SignalObjective{Type: "Value", Value: &aim},
		}},
	}
	r.CreateUntilEnd(r, d)
	return d
}

// storedSignal is the signal as it is stored, with the reason of its condition.
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

// demandIs waits until a pod's constraints ask for a demand; 0 for none.
func (r *rig) demandIs(pod *corev1.Pod, what string, is func(percent int32) bool) {
	r.Helper()
	r.until(what, func() (bool, any) { p := asksFor(r.publishedConstraints(pod)); return is(p), p })
}

func asksFor(c *v1alpha1.Constraints) int32 {
	if c == nil || c.DemandPercent == nil {
		return 0
	}
	return *c.DemandPercent
}

func none(percent int32) bool { return percent == 0 }

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

// TestSignalDrivesDemand runs the controller as it ships beside an external metric that the real API
// server serves. What comes of metrics that cannot be used: TestFallsBackToTheKernel, TestReadErrors
// (internal/demandsignal).
func TestSignalDrivesDemand(t *testing.T) {
	r := newRig(t)
	r.config.Signal.Interval = 100 * time.Millisecond
	k := &r.config.Signal.Control
	k.Gain, k.MaxAge, k.RetainFor = 120, 100*time.Hour, 50*time.Hour // no pause between two reads is too long
	var ahead atomic.Int64
	r.start(r.hurries(&ahead), func(re *Reconciler) { // as cmd/mbcas-controller wires it
		api, err := demandsignal.NewMetricsAPI(r.Config, r.Client.RESTMapper())
		r.must(err)
		re.ReadMetric = api.Read
	})
	web, other := r.ownedPod("web", "web", "100m", "500m"), r.ownedPod("other", "other", "100m", "500m")
	for _, pod := range []*corev1.Pod{web, other} {
		r.allocation(pod, "made", stands(v1alpha1.PhasePending, reasons.NoDecisionYet))
	}
	d := r.latency("web-latency", "web", "latencies")
	r.says(d, v1alpha1.ReasonMetricsAPIMissing, "external.metrics.k8s.io", "install a metrics adapter")
	r.demandIs(web, "without a metric", none)

	r.install(apiserver.ExternalMetric("latencies"))
	r.series("latencies", "another-service", "9", time.Now())
	r.says(d, v1alpha1.ReasonMetricMissing, "external metric latencies{service=web}")
	r.series("latencies", "web", "400m", time.Now())
	got := r.says(d, v1alpha1.ReasonMetricRead)
	if got.Status.Current == nil || got.Status.Current.String() != "400m" || got.Status.LastReadTime == nil {
		t.Errorf("status %+v", got.Status)
	}
	r.demandIs(web, "twice the target", func(p int32) bool { return p == 300 })
	if c := r.publishedConstraints(web); c.DemandBy != "DemandSignal/web-latency" {
		t.Errorf("constraints %+v", c)
	}
	r.demandIs(other, "not meant", none)
	r.series("latencies", "web", "100m", time.Now())
	r.demandIs(web, "half the target", none)
	r.series("latencies", "web", "1", time.Now())
	r.demandIs(web, "five times the target", func(p int32) bool { return p == 300 })
	r.series("latencies", "web", nil, time.Time{})
	r.says(d, v1alpha1.ReasonMetricMissing)
	ahead.Store(int64(51 * time.Hour))
	r.demandIs(web, "the metric has vanished", none)
}

// TestUnmanaged: of a workload without any managed pod it is said why.
func TestUnmanaged(t *testing.T) {
	for name, tt := range map[string]struct {
		edit func(*corev1.Pod)
		mode string
		want reasons.Reason
	}{
		"out":             {func(p *corev1.Pod) { p.Labels = map[string]string{kube.ManagedKey: "false"} }, "enforce", reasons.OptedOut},
		"unlimited":       {func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Limits = nil }, "enforce", reasons.NoCPULimit},
		"the mode is off": {func(*corev1.Pod) {}, "off", reasons.NamespaceOff},
		"on its way":      {func(*corev1.Pod) {}, "recommend", ""},
		"managed":         {nil, "enforce", ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCached(t)
			pod := running("web-0", 500, false)
			if tt.edit != nil {
				pod = running("other", 500, false)
				tt.edit(pod)
			}
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{kube.ModeLabel: tt.mode}}}
			c.r.Gate.Set("", "")
			c.must(c.r.Client.Create(t.Context(), ns))
			if _, why := c.r.unmanaged(t.Context(), []*corev1.Pod{pod}); why != tt.want {
				t.Errorf("%q, want %q", why, tt.want)
			}
		})
	}
}
