package controller

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/lifecycle"
)

// TestStaleMovesNothing lowers a pod in steps. Its agent lives all the time, and stops deciding on the pod half-way.
func TestStaleMovesNothing(t *testing.T) {
	r := newRig(t)
	r.config.Actuator.DecreaseCooldown = 15 * time.Second
	l := r.live(0, false)
	pod := l.raised("web") // to 2000m
	tick := func(d time.Duration) {
		l.ahead += d
		r.hearAt(time.Now().Add(l.ahead)) // the node is heard of
	}
	r.publish(pod, "2.000", app(150))
	l.settles(pod, v1alpha1.PhaseNotApplied, reasons.StepLimited)
	if got := r.limit(pod); got != 1340 {
		t.Fatalf("limit %v, want a first step to 1340m", got)
	}
	tick(16 * time.Second)
	l.settles(pod, v1alpha1.PhaseNotApplied, reasons.StepLimited)
	if got := r.limit(pod); got != 900 {
		t.Fatalf("limit %v, want a second step to 900m: the decision is 16 s old", got)
	}
	tick(50 * time.Second) // a step is due, and the decision is a minute old
	l.settles(pod, v1alpha1.PhaseNotApplied, reasons.DecisionTooOld)
	writes := l.writes.count()
	for range 3 {
		tick(time.Minute)
		if _, err := l.once(); err != nil {
			t.Fatal(err)
		}
	}
	if got := r.limit(pod); got != 900 {
		t.Errorf("limit %v: lowered on a decision that nobody stands by", got)
	}
	if got := l.writes.count() - writes; got != 0 {
		t.Errorf("%d writes while the agent does not answer: %v", got, l.writes.seen[writes:])
	}
	// A new leader knows no more than that.
	ahead := l.ahead
	l = r.live(0, false)
	l.ahead = ahead
	l.settles(pod, v1alpha1.PhaseNotApplied, reasons.DecisionTooOld)
	if got := r.limit(pod); got != 900 {
		t.Errorf("limit %v: a new controller believed the old decision", got)
	}
	r.confirm(pod)
	l.settles(pod, v1alpha1.PhaseNotApplied, reasons.StepLimited)
	if got := r.limit(pod); got != 600 {
		t.Errorf("limit %v once the agent has confirmed the decision, want the next step to 600m", got)
	}
	if !allocation.Published(r.stored(pod)).At.After(time.Time{}) {
		t.Error("the agent is still asked")
	}
	// A raise that waits is no better.
	r.publish(pod, "0.000", app(3000))
	l.Gate.Set(reasons.ServerUnavailable, "")
	l.look(pod)
	tick(2 * time.Minute)
	l.Gate.Set("", "")
	l.settles(pod, v1alpha1.PhaseNotApplied, reasons.DecisionTooOld)
	if got := r.limit(pod); got != 600 {
		t.Errorf("limit %v: raised on a decision that nobody stands by", got)
	}
	r.hear()
}

// TestOneForAll has the API server refuse everything about one pod.
func TestOneForAll(t *testing.T) {
	r := newRig(t)
	l := r.live(0, false)
	bad, good := l.raised("bad"), l.raised("good")
	broken := errors.New("no such luck")
	whole := l.Reconciler.Client
	l.Reconciler.Client = interceptor.NewClient(r.Client, interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			if o.GetName() == string(bad.UID) {
				return broken
			}
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	})
	var log bytes.Buffer
	l.Log = slog.New(slog.NewJSONHandler(&log, nil))
	r.publish(bad, "0.000", app(3000))
	r.publish(good, "0.000", app(3000))
	result, err := l.once()
	if err != nil || result.RequeueAfter <= 0 || result.RequeueAfter > failedRetry {
		t.Errorf("looked at again after %v (error %v), want no error and at most %v", result.RequeueAfter, err, failedRetry)
	}
	if got := r.limit(good); got != 3000 {
		t.Errorf("the other pod is at %v, want 3000m", got)
	}
	if line := log.String(); strings.Count(line, "\n") != 1 || !strings.Contains(line, `"pod":"bad"`) || !strings.Contains(line, broken.Error()) {
		t.Errorf("log:\n%swant one line that names the pod and the error", line)
	}
	var m dto.Metric
	if err := l.Metrics.errors.Write(&m); err != nil || m.GetCounter().GetValue() != 1 {
		t.Errorf("counted %v errors (%v), want 1", m.GetCounter().GetValue(), err)
	}
	l.Reconciler.Client = whole
	l.settles(bad, v1alpha1.PhaseApplied, reasons.Settled)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	log.Reset()
	if _, err := l.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKey{Name: r.kubelet.Node}}); err == nil || log.Len() > 0 {
		t.Errorf("a reconcile whose time is up: error %v, log %q; want an error and no line", err, log.String())
	}
}

func TestTheSoonestLookWins(t *testing.T) {
	never, soon := time.Time{}, noon.Add(time.Minute)
	at := func(d time.Duration) *task { return &task{Task: lifecycle.Task{RecheckAt: noon.Add(d)}} }
	tasks := []*task{at(time.Second), at(time.Hour), {}}
	for _, c := range []struct {
		tasks  []*task
		failed bool
		node   time.Time
		want   time.Duration
	}{
		{nil, false, never, 0}, {nil, true, never, failedRetry}, {nil, false, soon, time.Minute}, {nil, false, noon, time.Millisecond},
		{tasks, false, never, time.Second}, {tasks, true, soon, time.Second}, {tasks[1:], true, soon, failedRetry},
		{tasks[1:], false, never, time.Hour}, {tasks[1:], false, soon, time.Minute},
	} {
		if got := after(noon, c.node, c.tasks, c.failed); got != c.want {
			t.Errorf("%d tasks, failed %v: looked at again after %v, want %v", len(c.tasks), c.failed, got, c.want)
		}
	}
}
