package demandsignal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/must"
)

// later lets time pass in passes of 15 s.
func (h *cluster) later(c *Controller, long time.Duration) {
	h.Helper()
	for range int(long / (15 * time.Second)) {
		<-time.After(15 * time.Second)
		c.poll(h.Context())
	}
}

// percent is what the only signal of a namespace asks for; 0: nothing.
func percent(c *Controller, namespace string) int32 {
	asks, _ := c.Percentages(namespace)
	if len(asks) == 0 {
		return 0
	}
	return asks[0].Percent
}

// edit changes the signal of namespace shop as a user does.
func (h *cluster) edit(change func(*v1alpha1.DemandSignalSpec)) {
	h.Helper()
	d := h.shop()
	change(&d.Spec)
	d.Generation++
	must.Succeed(h, h.Update(h.Context(), d))
}

func (h *cluster) shop() *v1alpha1.DemandSignal {
	h.Helper()
	d := &v1alpha1.DemandSignal{}
	must.Succeed(h, h.Get(h.Context(), client.ObjectKey{Namespace: "shop", Name: "signal-0"}, d))
	return d
}

// TestFallsBackToTheKernel: the percentage stays for a minute, goes back, and is gone, also with a
// new leader. A deleted signal asks for nothing.
func TestFallsBackToTheKernel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newCluster(t)
		h.signals("shop", 1, v1alpha1.ExternalMetric)
		is := func(what string, low, high int32) {
			t.Helper()
			if p := percent(h.c, "shop"); p < low || p > high {
				t.Errorf("%d %% %s, want %d to %d", p, what, low, high)
			}
		}
		h.later(h.c, 3*time.Minute) // four times the target: 4^0.1 a minute, from the first read on
		is("after three minutes at four times the target", 140, 150)
		h.c = h.leader()
		h.adapter = func(string, string) (time.Duration, bool) { return 0, false }
		h.later(h.c, 75*time.Second) // the last read before may have gone unwritten
		is("a minute after the metric was lost, with a new leader", 140, 150)
		if _, reason := h.of("shop", 0); reason != v1alpha1.ReasonMetricsAPIUnavailable {
			t.Errorf("reason %s", reason)
		}
		h.later(h.c, 15*time.Second)
		is("15 s later: half way back", 118, 130)
		h.later(h.c, time.Minute)
		is("a minute later", 0, 0)
		h.adapter = func(string, string) (time.Duration, bool) { return 0, true }
		h.later(h.c, 5*time.Minute)
		is("when the metric is back", 170, 300)
		if asks, _ := h.c.Percentages("shop-2"); len(asks) > 0 {
			t.Errorf("another namespace is asked for %v", asks)
		}
		h.changed = nil
		must.Succeed(t, h.Delete(t.Context(), h.shop()))
		h.later(h.c, 15*time.Second)
		is("after the signal was deleted", 0, 0)
		if !slices.Equal(h.changed, []string{"shop"}) {
			t.Errorf("requeued %q, want the namespace once", h.changed)
		}
	})
}

// TestMetricOf: a signal's metric is another one with another object, name, selector or target, and with no other way to write it.
func TestMetricOf(t *testing.T) {
	of := func(edit func(*v1alpha1.ObjectSignal)) string {
		o := &v1alpha1.ObjectSignal{
			DescribedObject: v1alpha1.ObjectRef{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
			Metric:          v1alpha1.MetricID{Name: "latency", Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "1", "b": "2", "c": "3"}}},
			Target:          v1alpha1.SignalObjective{Type: "Value", Value: new(resource.MustParse("1000m"))},
		}
		edit(o)
		return metricOf(&v1alpha1.DemandSignal{Spec: v1alpha1.DemandSignalSpec{Metric: v1alpha1.SignalMetric{Type: v1alpha1.ObjectMetric, Object: o}}})
	}
	base := of(func(*v1alpha1.ObjectSignal) {})
	for name, edit := range map[string]func(*v1alpha1.ObjectSignal){
		"group":    func(o *v1alpha1.ObjectSignal) { o.DescribedObject.APIVersion = "example.org/v1" },
		"name":     func(o *v1alpha1.ObjectSignal) { o.Metric.Name = "errors" },
		"selector": func(o *v1alpha1.ObjectSignal) { o.Metric.Selector.MatchLabels["a"] = "2" },
		"target":   func(o *v1alpha1.ObjectSignal) { *o.Target.Value = resource.MustParse("1e20000000") },
		"kind of target": func(o *v1alpha1.ObjectSignal) {
			o.Target = v1alpha1.SignalObjective{Type: "AverageValue", AverageValue: o.Target.Value}
		},
	} {
		if of(edit) == base {
			t.Errorf("another %s is no other metric", name)
		}
	}
	if of(func(o *v1alpha1.ObjectSignal) { *o.Target.Value = resource.MustParse("1") }) != base {
		t.Error("1000m and 1 are different targets")
	}
}

// TestExtremeMetrics: whatever two series a metrics API gives, beside whatever target, the percentage is within the signal's bounds, and
// follows the ratio.
func TestExtremeMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newCluster(t)
		amounts := []string{"0", "1n", "9m", "10m", "99999.999", "100k", "1M", "500Mi", "9223372036854775807", "1e400", "-1"}
		series, ratios := map[string]float64{}, map[string]float64{}
		for i, value := range amounts {
			for j, target := range amounts {
				namespace, v, aim := fmt.Sprintf("shop-%d-%d", i, j), resource.MustParse(value), resource.MustParse(target)
				series[namespace] = v.AsApproximateFloat64()
				ratios[namespace] = 2 * v.AsApproximateFloat64() / aim.AsApproximateFloat64()
				h.signals(namespace, 1, v1alpha1.ExternalMetric, func(d *v1alpha1.DemandSignal) { d.Spec.Metric.External.Target.Value = &aim })
			}
		}
		h.c.Read = func(_ context.Context, namespace string, _ kube.Metric, _ labels.Selector, now time.Time) ([]Value, error) {
			one := Value{Value: series[namespace], At: now}
			return []Value{one, one}, nil
		}
		h.later(h.c, 5*time.Minute)
		for namespace, ratio := range ratios {
			low, high := int32(101), int32(300)
			switch {
			case !(ratio >= 0) || math.Signbit(ratio) || series[namespace] < 0 || math.IsInf(ratio, 0) || math.IsInf(series[namespace], 0): // no metric
				low, high = 0, 0
			case ratio <= 1:
				low, high = 100, 100
			}
			if p := percent(h.c, namespace); p < low || p > high {
				t.Errorf("%s: %d %% at a ratio of %v, want %d to %d", namespace, p, ratio, low, high)
			}
		}
	})
}

// TestFollowsTheLeader: a replica that does not lead has the percentage that the leader wrote, within an
// interval, and reads and writes nothing. When it becomes the leader the percentage stays.
func TestFollowsTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newCluster(t)
		h.signals("shop", 1, v1alpha1.ExternalMetric)
		leads := false
		second := h.leader()
		second.Leads = func() bool { return leads }
		second.Client = nil // a write panics
		second.Read = nil   // and so does a read
		for range 12 {
			h.later(h.c, 15*time.Second)
			h.changed = nil
			before := percent(second, "shop")
			second.poll(t.Context())
			if a, b := percent(h.c, "shop"), percent(second, "shop"); a != b {
				t.Errorf("the leader has %d %%, the other replica %d %%", a, b)
			} else if a != before && before != 0 && !slices.Equal(h.changed, []string{"shop"}) {
				t.Errorf("from %d to %d %%, requeued %q", before, a, h.changed)
			}
		}
		was := percent(second, "shop")
		if was < 140 {
			t.Errorf("%d %% after three minutes at four times the target", was)
		}
		leads, second.Client, second.Read = true, h.Client, h.read
		h.later(second, 15*time.Second)
		if is := percent(second, "shop"); is < was || is > was+10 {
			t.Errorf("from %d to %d %% with the new leader", was, is)
		}
	})
}

// TestDeletedWithoutALeader: what a signal asked for stays unknown until the first list of a new leader, and goes with it.
func TestDeletedWithoutALeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newCluster(t)
		h.signals("shop", 1, v1alpha1.ExternalMetric)
		h.later(h.c, 3*time.Minute)
		must.Succeed(t, h.Delete(t.Context(), h.shop()))
		second := h.leader()
		h.changed = nil
		if _, known := second.Percentages("shop"); known {
			t.Error("known before the first list")
		}
		second.poll(t.Context())
		if asks, known := second.Percentages("shop"); !known || len(asks) > 0 || !slices.Equal(h.changed, []string{""}) {
			t.Errorf("asks %v, known %v; requeued %q, want all nodes", asks, known, h.changed)
		}
	})
}

// TestSignalsAreQuiet: a metric that does not change costs a write a minute, and requeues no node; without signals there is nothing but the list.
func TestSignalsAreQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newCluster(t)
		h.ratio = 1
		writes := 0
		h.c.Client = interceptor.NewClient(h.Client.(client.WithWatch), interceptor.Funcs{
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
				writes++
				return c.SubResource(sub).Patch(ctx, o, p, opts...)
			},
		})
		h.later(h.c, 15*time.Second)
		if len(h.reads) != 0 || writes != 0 || !slices.Equal(h.changed, []string{""}) {
			t.Errorf("%d reads and %d writes without signals, requeued %q", len(h.reads), writes, h.changed)
		}
		h.signals("shop", 1, v1alpha1.ExternalMetric)
		h.later(h.c, time.Minute)
		writes, h.changed = 0, nil
		h.later(h.c, 10*time.Minute)
		if writes < 9 || writes > 11 {
			t.Errorf("%d writes in ten minutes, want one a minute", writes)
		}
		h.adapter = func(string, string) (time.Duration, bool) { return 0, false }
		h.later(h.c, 3*time.Minute)
		writes = 0
		h.later(h.c, 10*time.Minute)
		if writes != 0 || len(h.changed) != 0 {
			t.Errorf("%d writes in ten minutes without a metric, requeued %q; want none", writes, h.changed)
		}
		h.adapter, h.ratio = func(string, string) (time.Duration, bool) { return 0, true }, 2
		h.later(h.c, time.Minute)
		if len(h.changed) != 2 {
			t.Errorf("requeued %q while the percentage went from 100 to 113 in four steps, want two", h.changed)
		}
	})
}

// TestWithoutAList: an installation without the CRD goes on, and follows signals when they are served again. If signals cannot be listed, that
// is logged once, and percentages go back as if the metric were lost.
func TestWithoutAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newCluster(t)
		h.signals("shop", 1, v1alpha1.ExternalMetric)
		var listError error
		live := interceptor.NewClient(h.Client.(client.WithWatch), interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				if listError != nil {
					return listError
				}
				return c.List(ctx, list, opts...)
			},
		})
		var log bytes.Buffer
		h.c.Live, h.c.Log = live, slog.New(slog.NewTextHandler(&log, nil))
		h.later(h.c, 3*time.Minute)
		log.Reset()
		listError = &meta.NoKindMatchError{}
		h.later(h.c, 15*time.Second)
		if p := percent(h.c, "shop"); p != 0 || log.Len() > 0 {
			t.Errorf("%d %% without the CRD, log:\n%s", p, log.String())
		}
		listError = nil
		h.later(h.c, 3*time.Minute)
		if p := percent(h.c, "shop"); p < 140 {
			t.Errorf("%d %% with the CRD", p)
		}

		log.Reset()
		second := h.leader()
		second.Live = live
		listError = apierrors.NewForbidden(schema.GroupResource{Resource: "demandsignals"}, "", errors.New("no right"))
		h.later(second, time.Minute)
		if _, known := second.Percentages("shop"); known {
			t.Error("known within a minute of a start without a list")
		}
		h.later(second, 30*time.Second)
		if asks, known := second.Percentages("shop"); !known || len(asks) > 0 {
			t.Errorf("later: %v, known %v; want none", asks, known)
		}
		h.changed = nil
		h.later(h.c, time.Minute)
		if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(log.String(), "forbidden") {
			t.Errorf("%d lines without the right to list them, want one:\n%s", n, log.String())
		}
		h.later(h.c, 3*time.Minute)
		if p := percent(h.c, "shop"); p != 0 || len(h.changed) == 0 {
			t.Errorf("%d %% after four minutes without a list, requeued %q", p, h.changed)
		}
	})
}

// TestIntervalIsWithinRetainFor: a metric that is read less often than its percentage is retained would lose it between two reads.
func TestIntervalIsWithinRetainFor(t *testing.T) {
	for interval, fine := range map[time.Duration]bool{0: true, time.Second: true, time.Minute: true, time.Minute + 1: false, time.Millisecond: false} {
		c := DefaultConfig()
		c.Interval = interval
		if err := c.Validate(); (err == nil) != fine {
			t.Errorf("interval %v: %v", interval, err)
		}
	}
}
