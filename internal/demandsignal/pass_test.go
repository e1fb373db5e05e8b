package demandsignal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/must"
)

// cluster is a controller that reads metrics in the time of a synctest bubble, where nothing but the answers of metrics adapters takes
// any. Of the API server it needs no more than that signals are stored.
type cluster struct {
	*testing.T
	client.Client
	c *Controller

	mu        sync.Mutex
	adapter   func(namespace, metric string) (takes time.Duration, answers bool)
	ratio     float64                // of all metrics and their targets
	reads     map[string][]time.Time // by metric
	changed   []string               // namespaces whose nodes were requeued
	unmanaged reasons.Reason         // of all pods
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	h := &cluster{T: t, ratio: 4, reads: map[string][]time.Time{}, adapter: func(string, string) (time.Duration, bool) { return 0, true }}
	scheme := runtime.NewScheme()
	// Two groups alone: the client maps all kinds of its scheme anew for each patch.
	must.Succeed(t, errors.Join(corev1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)))
	h.Client = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.DemandSignal{}).Build()
	h.c = h.leader()
	return h
}

// leader is a controller that starts.
func (h *cluster) leader() *Controller {
	return &Controller{
		Config: DefaultConfig(), Client: h.Client, Live: h.Client, Read: h.read, Count: func(map[string]int) {},
		Unmanaged: func(_ context.Context, pods []*corev1.Pod) (string, reasons.Reason) { return pods[0].Name, h.unmanaged },
		Changed: func(namespace string) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.changed = append(h.changed, namespace)
		},
		Events: events.NewFakeRecorder(10000), Log: slog.New(slog.DiscardHandler), Now: time.Now,
		Leads: func() bool { return true },
	}
}

// read is a metrics adapter.
func (h *cluster) read(_ context.Context, namespace string, m kube.Metric, _ labels.Selector, _ time.Time) ([]Value, error) {
	h.mu.Lock()
	takes, answers := h.adapter(namespace, m.Name)
	h.reads[m.Name] = append(h.reads[m.Name], time.Now())
	ratio := h.ratio
	h.mu.Unlock()
	<-time.After(takes)
	if !answers {
		return nil, &readError{v1alpha1.ReasonMetricsAPIUnavailable, "no answer"}
	}
	return []Value{{Pod: "web", Value: ratio * m.Target, At: time.Now()}}, nil
}

// signals makes n signals of a namespace, with the pod that they are for. Their metrics are called NAMESPACE-0 and so on.
func (h *cluster) signals(namespace string, n int, of v1alpha1.SignalMetricType, edits ...func(*v1alpha1.DemandSignal)) {
	h.Helper()
	yes, aim := true, resource.MustParse("1")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web", UID: types.UID("pod-" + namespace)}}
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "web", UID: "job", Controller: &yes}}
	objects := []client.Object{pod}
	for i := range n {
		d := &v1alpha1.DemandSignal{}
		d.Namespace, d.Name, d.UID = namespace, fmt.Sprint("signal-", i), types.UID(fmt.Sprint(namespace, "-", i))
		d.Spec = v1alpha1.DemandSignalSpec{TargetRef: v1alpha1.ObjectRef{APIVersion: "batch/v1", Kind: "Job", Name: "web"}, MinPercent: 100, MaxPercent: 300}
		id := v1alpha1.MetricID{Name: fmt.Sprint(namespace, "-", i)}
		d.Spec.Metric.Type = of
		if of == v1alpha1.PodsMetric {
			d.Spec.Metric.Pods = &v1alpha1.MetricTarget{Metric: id, Target: v1alpha1.SignalObjective{Type: "AverageValue", AverageValue: &aim}}
		} else {
			d.Spec.Metric.External = &v1alpha1.MetricTarget{Metric: id, Target: v1alpha1.SignalObjective{Type: "Value", Value: &aim}}
		}
		for _, edit := range edits {
			edit(d)
		}
		objects = append(objects, d)
	}
	for _, o := range objects {
		must.Succeed(h, h.Create(h.Context(), o))
	}
}

// polls has a controller poll for a while.
func (h *cluster) polls(c *Controller, long time.Duration) {
	h.Helper()
	ctx, stop := context.WithCancel(h.Context())
	done := make(chan error)
	go func() { done <- c.Start(ctx) }()
	<-time.After(long)
	stop()
	told := time.Now()
	if err := <-done; err != nil || time.Since(told) > metricTimeout {
		h.Errorf("told to stop it stops %v later: %v", time.Since(told), err)
	}
}

// gap is the longest time between two reads of a metric, of which the second was after a time.
func (h *cluster) gap(metric string, begin, after time.Time) (longest time.Duration) {
	for _, at := range append(h.reads[metric], time.Now()) {
		if at.After(after) {
			longest = max(longest, at.Sub(begin))
		}
		begin = at
	}
	return longest
}

// of is the percentage of a signal, with the reason of its condition.
func (h *cluster) of(namespace string, i int) (percent int32, reason string) {
	h.Helper()
	d := &v1alpha1.DemandSignal{}
	must.Succeed(h, h.Get(h.Context(), client.ObjectKey{Namespace: namespace, Name: fmt.Sprint("signal-", i)}, d))
	if d.Status.DemandPercent != nil {
		percent = *d.Status.DemandPercent
	}
	if c := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.SignalAvailable); c != nil {
		reason = c.Reason
	}
	return percent, reason
}

// TestASlowAdapterDelaysNoOther: signals whose metrics are answered at once are read in time and get all that they ask for, whatever
// becomes of the others.
func TestASlowAdapterDelaysNoOther(t *testing.T) {
	const hangs = metricTimeout
	for name, tt := range map[string]struct {
		others, each int
		adapter      func(namespace, metric string) (time.Duration, bool)
		reason       string // of the others
	}{
		"a tenant with many signals on an adapter that hangs": {1, 40, func(string, string) (time.Duration, bool) { return hangs, false }, v1alpha1.ReasonMetricsAPIUnavailable},
		"forty tenants on one that hangs":                     {40, 1, func(string, string) (time.Duration, bool) { return hangs, false }, v1alpha1.ReasonMetricsAPIUnavailable},
		"many tenants on one that is slow":                    {10, 2, func(string, string) (time.Duration, bool) { return 4 * time.Second, true }, v1alpha1.ReasonMetricRead},
		"a tenant with many signals on one that is slow":      {1, 24, func(string, string) (time.Duration, bool) { return 4 * time.Second, true }, v1alpha1.ReasonMetricRead},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newCluster(t)
				h.adapter = func(namespace, metric string) (time.Duration, bool) {
					if strings.HasPrefix(namespace, "other") {
						return tt.adapter(namespace, metric)
					}
					return 10 * time.Millisecond, true
				}
				for i := range tt.others {
					h.signals(fmt.Sprint("other", i), tt.each, v1alpha1.ExternalMetric)
				}
				h.signals("zeta", 3, v1alpha1.PodsMetric) // the last in the list
				begin := time.Now()
				h.polls(h.c, 10*time.Minute)
				for i := range 3 {
					if p, reason := h.of("zeta", i); p != 300 || reason != v1alpha1.ReasonMetricRead {
						t.Errorf("%s: %d %%, want 300 after ten minutes at four times the target", reason, p)
					}
					metric := fmt.Sprint("zeta-", i)
					if first, then := h.gap(metric, begin, begin), h.gap(metric, begin, begin.Add(time.Minute)); first > 40*time.Second || then > 22*time.Second {
						t.Errorf("it is not read for %v, and later for %v; want 40 s and 22 s at most", first, then)
					}
				}
				for i := range tt.others {
					for j := range tt.each {
						p, reason := h.of(fmt.Sprint("other", i), j)
						gap := h.gap(fmt.Sprint("other", i, "-", j), begin, begin)
						if reason != tt.reason || reason == v1alpha1.ReasonMetricRead && (p != 300 || gap > time.Minute) {
							t.Errorf("signal %d of tenant %d: %s, %d %%, not read for %v", j, i, reason, p, gap)
						}
					}
				}
			})
		})
	}
}

// TestAnAdapterComesBack: as soon as it answers again, all DemandSignals that depend on it are read again.
func TestAnAdapterComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newCluster(t)
		h.signals("shop", 50, v1alpha1.ExternalMetric)
		h.adapter = func(string, string) (time.Duration, bool) { return metricTimeout, false }
		h.polls(h.c, 10*time.Minute)
		h.adapter = func(string, string) (time.Duration, bool) { return 0, true }
		h.polls(h.c, 30*time.Second)
		for i := range 50 {
			if _, reason := h.of("shop", i); reason != v1alpha1.ReasonMetricRead {
				t.Errorf("signal %d: %s", i, reason)
			}
		}
	})
}

// stood gives a signal a status of long ago.
func stood(percent int32, ago time.Duration) func(*v1alpha1.DemandSignal) {
	return func(d *v1alpha1.DemandSignal) {
		at := metav1.NewTime(time.Now().Add(-ago))
		d.Status.DemandPercent, d.Status.LastReadTime, d.Status.ObservedGeneration = &percent, &at, d.Generation
	}
}

// TestAStartWaitsForNoMetric: what a signal asked for before a start stands, or decays, from the first list on, however long its metric
// takes to be read.
func TestAStartWaitsForNoMetric(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newCluster(t)
		h.signals("new", 1, v1alpha1.ExternalMetric, stood(200, 70*time.Second))
		h.signals("old", 1, v1alpha1.ExternalMetric, stood(200, 10*time.Minute))
		h.adapter = func(string, string) (time.Duration, bool) { return metricTimeout, true }
		done := make(chan bool)
		go func() { h.c.poll(h.Context()); done <- true }()
		synctest.Wait() // all reads are on their way
		asks, known := h.c.Percentages("new")
		if !known || len(asks) != 1 || asks[0].Percent != 200 || asks[0].Target.Name != "web" {
			t.Errorf("asked for: %+v (%v), want 200 %%", asks, known)
		}
		if asks, known := h.c.Percentages("old"); !known || len(asks) > 0 {
			t.Errorf("asked for: %+v (%v), want nothing of ten minutes ago", asks, known)
		}
		<-done
	})
}

// TestANewLeaderKeepsThePercentage: the time of the last read in status is up to a minute old when a leader dies, and the next one
// comes 20 s later.
func TestANewLeaderKeepsThePercentage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newCluster(t)
		h.ratio = 1
		h.signals("shop", 1, v1alpha1.ExternalMetric, stood(200, statusInterval+20*time.Second))
		h.signals("late", 1, v1alpha1.ExternalMetric, stood(200, statusInterval+h.c.Config.Control.RetainFor+h.c.Config.Control.HalfLife))
		h.signals("edited", 1, v1alpha1.ExternalMetric, stood(200, time.Second), func(d *v1alpha1.DemandSignal) { d.Generation++ })
		h.polls(h.c, time.Second)
		for namespace, want := range map[string]int32{"shop": 200, "late": 150, "edited": 100} {
			if p, _ := h.of(namespace, 0); p != want {
				t.Errorf("%s: %d %%, want %d", namespace, p, want)
			}
		}
	})
}

// TestAnEditBeginsAnew: a percentage that came of another metric or of other pods says nothing.
func TestAnEditBeginsAnew(t *testing.T) {
	for name, tt := range map[string]struct {
		edit    func(*v1alpha1.DemandSignalSpec)
		want    int32
		message string // part of the condition's
	}{
		"the metric": {func(s *v1alpha1.DemandSignalSpec) { s.Metric.External.Metric.Name = "x" }, 100, "is read"},
		"its target": {func(s *v1alpha1.DemandSignalSpec) { q := resource.MustParse("2"); s.Metric.External.Target.Value = &q }, 100, "is read"},
		"the pods":   {func(s *v1alpha1.DemandSignalSpec) { s.TargetRef.Name = "none" }, 0, "belongs to Job/none: check spec.targetRef"},
		"the bounds": {func(s *v1alpha1.DemandSignalSpec) { s.MaxPercent = 250 }, 250, "is read"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newCluster(t)
				h.signals("shop", 1, v1alpha1.ExternalMetric)
				h.polls(h.c, 10*time.Minute)
				h.edit(tt.edit)
				h.polls(h.c, time.Second)
				message := h.shop().Status.Conditions[0].Message
				if p, _ := h.of("shop", 0); p != tt.want || !strings.Contains(message, tt.message) {
					t.Errorf("%d %% (%s) after an edit, want %d (%s)", p, message, tt.want, tt.message)
				}
			})
		})
	}
}

// TestSwitchedOff: with an interval of 0 each signal says once that its metric is not read.
func TestSwitchedOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newCluster(t)
		h.signals("shop", 1, v1alpha1.ExternalMetric)
		h.polls(h.c, 10*time.Minute)
		if p, _ := h.of("shop", 0); p != 300 {
			t.Fatalf("%d %%", p)
		}
		off := h.leader()
		off.Config.Interval = 0
		reads := len(h.reads["shop-0"])
		h.polls(off, 10*time.Minute)
		if p, reason := h.of("shop", 0); p != 0 || reason != v1alpha1.ReasonSignalsOff || len(h.reads["shop-0"]) != reads {
			t.Errorf("%d %%, %s, %d reads", p, reason, len(h.reads["shop-0"])-reads)
		}
	})
}

// TestSignalEvents: a change of the reason is told, once, and not again by the next leader.
func TestSignalEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newCluster(t)
		h.signals("shop", 1, v1alpha1.ExternalMetric)
		told := func(c *Controller) (list []string) {
			sent := c.Events.(*events.FakeRecorder).Events
			for range len(sent) {
				list = append(list, <-sent)
			}
			return list
		}
		h.polls(h.c, 5*time.Minute)
		h.adapter = func(string, string) (time.Duration, bool) { return 0, false }
		h.polls(h.c, 5*time.Minute)
		if d := cmp.Diff([]string{"Normal MetricRead the metric is read", "Warning MetricsAPIUnavailable no answer"}, told(h.c)); d != "" {
			t.Error(d)
		}
		second := h.leader()
		h.polls(second, 5*time.Minute)
		if list := told(second); len(list) > 0 {
			t.Errorf("the next leader tells %q", list)
		}
	})
}

// TestFairOrder: each source has its first read before any has its second, and the signal that was read longest ago comes first.
func TestFairOrder(t *testing.T) {
	var list []*v1alpha1.DemandSignal
	asked := map[*v1alpha1.DemandSignal]time.Time{}
	for _, s := range []struct {
		namespace, name string
		asked           int64
	}{{"a", "1", 7}, {"a", "2", 6}, {"a", "3", 6}, {"b", "1", 7}, {"c", "1", 5}, {"c", "2", 6}} {
		d := &v1alpha1.DemandSignal{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: s.name}}
		list, asked[d] = append(list, d), time.Unix(s.asked, 0)
	}
	var got []string
	for _, d := range fairOrder(list, asked) {
		got = append(got, d.Namespace+d.Name)
	}
	if d := cmp.Diff([]string{"c1", "a2", "b1", "a3", "c2", "a1"}, got); d != "" {
		t.Error(d)
	}
}

// TestASignalForUnmanagedPods: it says so, and asks for nothing.
func TestASignalForUnmanagedPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newCluster(t)
		h.unmanaged = reasons.OptedOut
		h.signals("shop", 1, v1alpha1.ExternalMetric)
		h.polls(h.c, 10*time.Minute)
		p, reason := h.of("shop", 0)
		m := h.shop().Status.Conditions[0].Message
		if p != 0 || reason != v1alpha1.ReasonTargetNotManaged || !strings.Contains(m, "pod web: ") || !strings.Contains(m, "(OptedOut)") {
			t.Errorf("%d %%, %s: %s", p, reason, m)
		}
	})
}
