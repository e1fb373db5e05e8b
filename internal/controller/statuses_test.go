package controller

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/events"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

func TestQuiet(t *testing.T) {
	withController(t, func(t *testing.T, r *rig, l *life) {
		pod := l.raised("web")
		r.pod("best-effort", "", "")
		for _, mode := range []kube.Mode{kube.ModeEnforce, kube.ModeRecommend} {
			r.mode(r.namespace, mode)
			l.look(pod)
			before := len(l.writes())
			for range 5 {
				l.pass(time.Minute)
				r.publish(pod, "0.000", app(2000)) // another decision, and the same limits
				l.look(pod)
			}
			if w := l.writes()[before:]; len(w) != 0 {
				t.Errorf("mode %s: writes while no limit changed: %v", mode, w)
			}
		}
	})
}

// TestStatusesLetResizesPass: when a mode changes, a status that only says so waits where many are
// written; a resize does not wait for it.
func TestStatusesLetResizesPass(t *testing.T) {
	withController(t, func(t *testing.T, r *rig, l *life) {
		settled, needed := l.raised("settled"), l.raised("needed")
		r.mode(r.namespace, kube.ModeRecommend)
		for _, pod := range []*corev1.Pod{settled, needed} {
			l.settles(pod, v1alpha1.PhaseNotApplied, reasons.Recommending)
		}
		r.publish(needed, "0.000", app(3000))
		l.statuses.SetBurst(0)
		r.mode(r.namespace, kube.ModeEnforce)
		l.gets(needed, 3000)
		if pa := l.look(settled); pa.Status.Reason != string(reasons.Recommending) {
			t.Errorf("a status is written without a token: %s", pa.Status.Reason)
		}
		if result, err := l.once(); err != nil || result.RequeueAfter <= 0 || result.RequeueAfter > 2*statusWait {
			t.Errorf("the node is looked at again in %v, %v; want at most %v", result.RequeueAfter, err, 2*statusWait)
		}
		l.statuses.SetBurst(1000)
		l.settles(settled, v1alpha1.PhaseApplied, reasons.Settled)
	})
}

// TestStatusesOfANodeAreWrittenAtOnce: where the API server is prompt, one reconcile writes the status of
// every pod of a node whose mode has changed.
func TestStatusesOfANodeAreWrittenAtOnce(t *testing.T) {
	withController(t, func(t *testing.T, r *rig, l *life) {
		var pods []*corev1.Pod
		for i := range 12 {
			pods = append(pods, l.raised(fmt.Sprint("pod-", i)))
		}
		r.mode(r.namespace, kube.ModeRecommend)
		for _, pod := range pods {
			l.settles(pod, v1alpha1.PhaseNotApplied, reasons.Recommending)
		}
		r.mode(r.namespace, kube.ModeEnforce)
		l.Config.Pods = len(pods)
		now := l.Reconciler.Now()
		l.Reconciler.Now = func() time.Time { return now } // as if no write took time
		l.look(pods[0])
		for _, pod := range pods {
			if s := r.stored(pod).Status; s.Reason != string(reasons.Settled) {
				t.Errorf("the status of %s is not written: %+v", pod.Name, s)
			}
		}
	})
}

// TestOneRecordOfAResize: while the API server is busy, a resize has one record, of what was resized. That it was
// carried out is written with the next one, or after a minute; no controller needs it, nor one that comes after. That a
// pod waits for its turn waits, too. Where the API server is prompt, both are written at once.
func TestOneRecordOfAResize(t *testing.T) {
	withController(t, func(t *testing.T, r *rig, l *life) {
		pod := l.raised("web")
		statuses := func() int { return l.requests(http.MethodPatch, "/podallocations/"+string(pod.UID)+"/status") }
		resize := func(limit cpu.Milli) (written int) {
			before := statuses()
			r.kubelet.Answer(pod, apiserver.Ignore)
			r.publish(pod, "0.000", app(limit))
			l.gets(pod, limit)
			l.settles(pod, v1alpha1.PhasePending, reasons.ResizeInFlight)
			r.kubelet.Answer(pod, apiserver.Obey)
			r.until("in force", func() (bool, any) {
				p := r.read(pod)
				progress, said := podresize.Check(p, kube.ByName(kube.Limits(p)), p.Generation)
				return progress == actuator.Done, said
			})
			l.look(pod)
			return statuses() - before
		}
		if n := resize(2200); n != 2 {
			t.Errorf("a resize has %d records, want 2", n)
		}
		l.statuses.SetBurst(0)
		for _, limit := range []cpu.Milli{2500, 3000, 3500} {
			if n := resize(limit); n != 1 {
				t.Errorf("a resize has %d records while the API server is busy, want 1", n)
			}
			applied := []v1alpha1.ContainerLimit{app(limit)}
			if s := r.stored(pod).Status; s.Phase != v1alpha1.PhasePending || !kube.SameLimits(s.AppliedLimits, applied) {
				t.Errorf("recorded is %s %s of %v, want the resize in flight to %v", s.Phase, s.Reason, s.AppliedLimits, limit)
			}
		}
		next := r.live() // after a restart
		next.settles(pod, v1alpha1.PhaseApplied, reasons.Settled)
		if n := next.counter.resizes(); n != 0 {
			t.Errorf("%d resizes after a restart", n)
		}
		resize(4000)
		l.pass(unreportedWait)
		if s := l.look(pod).Status; s.Phase != v1alpha1.PhaseApplied {
			t.Errorf("after a minute it is %s %s", s.Phase, s.Reason)
		}
	})
}

// TestAgentsWritesCostTwoRequests: the agent writes the spec at the same time, which is no reason to look again.
func TestAgentsWritesCostTwoRequests(t *testing.T) {
	withController(t, func(t *testing.T, r *rig, l *life) {
		pod := l.raised("web")
		writes := 0
		l.Reconciler.Client = r.onStatus(func(client.Object) error {
			if writes++; writes == 1 {
				r.publish(pod, "0.000", app(3000))
			}
			return nil
		})
		r.publish(pod, "0.000", app(2500))
		l.look(pod)
		if s := r.stored(pod).Status; writes != 2 || !kube.SameLimits(s.AppliedLimits, []v1alpha1.ContainerLimit{app(2500)}) {
			t.Errorf("%d writes, want 2; status %+v", writes, s)
		}
	})
}

// TestARefusedStatusBacksOff: what the API server will not store is not sent every five seconds.
func TestARefusedStatusBacksOff(t *testing.T) {
	withController(t, func(t *testing.T, r *rig, l *life) {
		l.jitter = exactly
		bad, good := l.raised("bad"), l.raised("good")
		whole, tries := l.Reconciler.Client, 0
		l.Reconciler.Client = r.onStatus(func(o client.Object) error {
			if o.GetName() != string(bad.UID) {
				return nil
			}
			tries++
			return apierrors.NewInvalid(schema.GroupKind{Kind: "PodAllocation"}, o.GetName(), nil)
		})
		r.publish(bad, "0.000", app(3000))
		looks, soon := 0, 0
		for start := l.ahead; l.ahead-start < 30*time.Minute; looks++ {
			result, err := l.once()
			r.must(err)
			if result.RequeueAfter <= 10*time.Second {
				soon++
			}
			l.pass(min(result.RequeueAfter, time.Minute))
		}
		if tries < 3 || tries > 15 || soon > 2 {
			t.Errorf("sent %d times in half an hour, %d of %d looks were followed by another within 10 s", tries, soon, looks)
		}
		if n := testutil.ToFloat64(l.Metrics.Errors); n != float64(tries) {
			t.Errorf("counted %v errors of %d", n, tries)
		}
		if n := strings.Count(r.log.String(), "pod not dealt with"); n != 1 {
			t.Errorf("%d lines in the log, want one", n)
		}
		r.publish(good, "0.000", app(3000))
		l.settles(good, v1alpha1.PhaseApplied, reasons.Settled)
		l.Reconciler.Client = whole
		l.pass(11 * time.Minute)
		l.settles(bad, v1alpha1.PhaseApplied, reasons.Settled)
	})
}

// TestStatusesAreNotStarved: statuses of a node are written although its agent decides all the time.
func TestStatusesAreNotStarved(t *testing.T) {
	withController(t, func(t *testing.T, _ *rig, l *life) {
		web := l.raised("web")
		fresh := l.rig.pod("new", "100m", "500m")
		decisions := 0
		l.Reconciler.Client = interceptor.NewClient(l.rig.Client, interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				if _, ok := list.(*v1alpha1.PodAllocationList); ok {
					decisions++
					l.publish(web, "0.000", app(cpu.Milli(2000+10*decisions)))
				}
				return c.List(ctx, list, opts...)
			},
		})
		_, err := l.Reconcile(l.Context(), request(l.kubelet.Node))
		l.must(err)
		if pa := l.stored(fresh); pa == nil || !recorded(pa) || decisions < 2*mostLooks-1 {
			t.Errorf("after %d decisions the other pod has %+v, want its status", decisions, pa)
		}
	})
}

// droppingEvents drops Events until it is to send them.
type droppingEvents struct {
	noEvents
	sends   bool
	dropped int // without those that were dropped before
	sent    []string
}

func (d *droppingEvents) Send(_ *corev1.Pod, _ runtime.Object, e events.Event) bool {
	switch {
	case d.sends:
		d.sent = append(d.sent, e.Reason)
	case !e.Again:
		d.dropped++
	}
	return d.sends
}

// TestADroppedEventIsNotForgotten: a Warning that was dropped stays to be sent though a later Event of the same look
// is sent, and has the pod looked at again soon without another cause.
func TestADroppedEventIsNotForgotten(t *testing.T) {
	sink, now := &droppingEvents{}, time.Unix(1000, 0)
	r := &Reconciler{Telemetry: Telemetry{Events: sink}}
	r.jitter = exactly
	s, one := &snapshot{now: now}, &task{podState: &podState{pod: &corev1.Pod{}, rec: &record{}}}
	r.event(s, one, events.Event{Type: corev1.EventTypeWarning, Reason: "PolicyRefused"})
	if !one.RecheckAt.Equal(now.Add(events.SendAgain)) {
		t.Errorf("looked at again at %v, want %v after %v", one.RecheckAt, events.SendAgain, now)
	}
	sink.sends = true
	r.event(s, one, events.Event{Type: corev1.EventTypeNormal, Reason: "SkipResize"})
	r.observe(s, one)
	if want := []string{"SkipResize", "PolicyRefused"}; !slices.Equal(sink.sent, want) {
		t.Errorf("sent %v, want %v", sink.sent, want)
	}
}

// TestADroppedEventIsSentLater: an Event that was dropped is sent at a later look, once, if the pod is still in
// the state that it tells of.
func TestADroppedEventIsSentLater(t *testing.T) {
	eachInMemory(t, map[string]bool{"still refused": true, "accepted since": false}, func(t *testing.T, r *rig, still bool) {
		l, sink := r.live(), &droppingEvents{}
		pod := l.raised("web")
		l.Events = sink
		l.refuse(podresize.PolicyRefused)
		r.publish(pod, "0.000", app(3000))
		l.settles(pod, v1alpha1.PhaseFailed, reasons.PolicyRefused)
		for range 3 {
			l.look(pod)
		}
		if sink.dropped != 1 {
			t.Errorf("%d Events count as dropped, want one", sink.dropped)
		}
		var want []string
		if still {
			want = []string{string(reasons.PolicyRefused)}
		} else {
			l.resizes.Resizer = l.counter
			l.pass(10 * time.Minute)
			l.gets(pod, 3000)
			l.settles(pod, v1alpha1.PhaseApplied, reasons.Settled)
		}
		sink.sends = true
		for range 3 {
			l.look(pod)
		}
		sent := slices.DeleteFunc(sink.sent, func(reason string) bool { return reason != string(reasons.PolicyRefused) })
		if !slices.Equal(sent, want) {
			t.Errorf("sent %v, want %v", sent, want)
		}
	})
}
