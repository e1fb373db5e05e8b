package controller

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/controller/metrics"
	"github.com/mbcas/mbcas/internal/events"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

// TestOutcomes gives every outcome of a resize, and looks at what becomes of the allocation and the pod.
func TestOutcomes(t *testing.T) {
	type end struct {
		phase    v1alpha1.Phase
		reason   reasons.Reason
		failures int32
	}
	failed := func(r reasons.Reason) end { return end{v1alpha1.PhaseFailed, r, 1} }
	waits := func(r reasons.Reason) end { return end{v1alpha1.PhaseNotApplied, r, 0} }
	settled, asBefore := end{v1alpha1.PhaseApplied, reasons.Settled, 0}, end{v1alpha1.PhasePending, reasons.NoDecisionYet, 0}
	ends := map[podresize.Outcome]end{
		podresize.Accepted: settled, podresize.NoChange: settled,
		podresize.Conflict: waits(reasons.WriteConflict), podresize.Unknown: waits(reasons.OutcomeUnknown),
		podresize.PodGone: asBefore, podresize.Replaced: asBefore, podresize.NotServed: asBefore, podresize.NotAllowed: asBefore,
		podresize.QuotaExceeded: failed(reasons.QuotaExceeded), podresize.QuotaNeedsLimits: failed(reasons.QuotaNeedsLimits),
		podresize.LimitRangeRefused: failed(reasons.LimitRangeRefused), podresize.WouldMutate: failed(reasons.AdmissionWouldMutate),
		podresize.NodeRefused: failed(reasons.NodeRefused), podresize.PolicyRefused: failed(reasons.PolicyRefused),
		podresize.Invalid: failed(reasons.InvalidResize), podresize.NotYet: waits(reasons.ServerUnavailable),
		podresize.Unavailable: waits(reasons.ServerUnavailable), podresize.NoDryRun: failed(reasons.PolicyRefused),
	}
	for o := podresize.Outcome(0); !strings.HasPrefix(o.String(), "Outcome("); o++ {
		want, ok := ends[o]
		if !ok {
			t.Errorf("outcome %v is not dealt with", o)
			continue
		}
		t.Run(o.String(), func(t *testing.T) {
			inMemory(t, func(t *testing.T, r *rig) {
				l := r.live()
				pod := l.newPod(strings.ToLower(o.String()))
				if want != settled {
					l.resizes.Resizer = answer(o)
				}
				r.publish(pod, "0.000", app(2000))
				l.look(pod)
				if want == settled {
					l.settles(pod, want.phase, want.reason)
				}
				pa := r.stored(pod)
				if got := (end{pa.Status.Phase, reasons.Reason(pa.Status.Reason), pa.Status.Retry.Failures}); got != want {
					t.Errorf("ends as %+v, want %+v", got, want)
				}
				if want.failures > 0 && (pa.Status.Retry.Time.IsZero() || !strings.Contains(pa.Status.Message, "because")) {
					t.Errorf("a refusal without retry time or explanation: %+v", pa.Status)
				}
				if !strings.Contains(r.audit.String(), `"msg":"resize"`) {
					t.Error("no audit line")
				}
				// What was refused is not tried again before its time, and then it works.
				l.resizes.Resizer = l.counter
				l.Gate.Set("", "")
				if want.failures > 0 {
					l.look(pod)
					if l.counter.resizes() != 0 {
						t.Error("tried again at once")
					}
					l.pass(r.config.Backoff*3/2 + time.Second) // with all the jitter that there may be
				} else if want != settled {
					l.pass(20 * time.Second)
				}
				pa = l.settles(pod, v1alpha1.PhaseApplied, reasons.Settled)
				if pa.Status.Retry.Failures != 0 || !pa.Status.Retry.Time.IsZero() || l.counter.resizes() != 1 {
					t.Errorf("%d resizes, status %+v", l.counter.resizes(), pa.Status)
				}
				r.limitIs(pod, 2000, "in the end")
			})
		})
	}
}

func TestALostAnswerIsLookedUp(t *testing.T) {
	for name, carryOut := range map[string]bool{"carried-out": true, "not-carried-out": false} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, func(t *testing.T, r *rig) {
				l, attempts := r.live(), 0
				pod := l.newPod(name)
				l.resizes.Resizer = fakeResizer{Resizer: l.counter, apply: func(_ *corev1.Pod, next func() podresize.Result) podresize.Result {
					if attempts++; attempts > 1 {
						return next()
					}
					if carryOut {
						next()
					}
					return podresize.Result{Outcome: podresize.Unknown, Message: "the answer was lost"}
				}}
				r.publish(pod, "0.000", app(2000))
				l.look(pod)
				l.ahead = 2 * r.config.ServerBackoff
				l.settles(pod, v1alpha1.PhaseApplied, reasons.Settled)
				r.limitIs(pod, 2000, "in the end")
				if got := r.read(pod); got.Generation != pod.Generation+1 {
					t.Errorf("generation %d from %d: want exactly one resize", got.Generation, pod.Generation)
				}
			})
		})
	}
}

// TestAChangedPodIsDecidedAnewAtOnce: a pod that changes between the decision and the resize is
// decided anew at once, and after that has been tried some times, a while later.
func TestAChangedPodIsDecidedAnewAtOnce(t *testing.T) {
	for name, changes := range map[string]int{"once": 1, "each-time": conflictsAtOnce} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, func(t *testing.T, r *rig) {
				l, attempts := r.live(), 0
				pod := l.newPod(name)
				r.publish(pod, "0.000", app(2000))
				l.resizes.Resizer = fakeResizer{Resizer: l.counter, apply: func(p *corev1.Pod, next func() podresize.Result) podresize.Result {
					if attempts++; attempts <= changes {
						r.label(p, strings.Repeat("x", attempts))
					}
					return next()
				}}
				pa := l.look(pod)
				if got := l.counter.resizes() == 1; got != (changes < conflictsAtOnce) {
					t.Errorf("resized at once: %v after %d attempts, status %+v", got, attempts, pa.Status)
				}
				l.pass(2 * r.config.ServerBackoff)
				l.settles(pod, v1alpha1.PhaseApplied, reasons.Settled)
				r.limitIs(pod, 2000, "in the end")
			})
		})
	}
}

// TestOneForAll has the API server refuse everything about one pod.
func TestOneForAll(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		l := r.live()
		bad, good := l.raised("bad"), l.raised("good")
		broken := errors.New("no such luck")
		whole := l.Reconciler.Client
		l.Reconciler.Client = interceptor.NewClient(r.Client, interceptor.Funcs{SubResourcePatch: func(
			ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption,
		) error {
			if o.GetName() == string(bad.UID) {
				return broken
			}
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		}})
		r.publish(bad, "0.000", app(3000))
		r.publish(good, "0.000", app(3000))
		result, err := l.once()
		most := failedRetry * 3 / 2 // with jitter
		if err != nil || result.RequeueAfter <= 0 || result.RequeueAfter > most {
			t.Errorf("looked at again after %v (error %v), want no error and at most %v", result.RequeueAfter, err, most)
		}
		r.limitIs(good, 3000, "of the other pod")
		log := r.log.String()
		if strings.Count(log, "pod not dealt with") != 1 || !strings.Contains(log, `"pod":"bad"`) || !strings.Contains(log, broken.Error()) {
			t.Errorf("log:\n%swant one line that names the pod and the error", log)
		}
		var m dto.Metric
		if err := l.Metrics.Errors.Write(&m); err != nil || m.GetCounter().GetValue() != 1 {
			t.Errorf("counted %v errors (%v), want 1", m.GetCounter().GetValue(), err)
		}
		l.Reconciler.Client = whole
		l.settles(bad, v1alpha1.PhaseApplied, reasons.Settled)

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = l.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKey{Name: r.kubelet.Node}})
		if strings.Count(r.log.String(), "pod not dealt with") != 1 || err == nil {
			t.Errorf("a reconcile whose time is up: error %v; want an error and no line about a pod", err)
		}
	})
}

// unready sets the pod to not Ready, as the kubelet does.
func unready(s *corev1.PodStatus) {
	for i := range s.Conditions {
		if c := &s.Conditions[i]; c.Type == corev1.PodReady {
			c.Status, c.Reason, c.LastTransitionTime.Time = corev1.ConditionFalse, "ContainersNotReady", time.Now()
		}
	}
}

// restarted is what the kubelet reports of a container that the kernel has killed.
func restarted(s *corev1.PodStatus) {
	s.ContainerStatuses[0].RestartCount++
	s.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{FinishedAt: metav1.Now(), ExitCode: 137}
}

// harm writes the harm (not Ready, or a restart) into the status of the pod.
func (r *rig) harm(pod *corev1.Pod, how func(*corev1.PodStatus)) {
	r.Helper()
	r.until("the harm is stored", func() (bool, any) { // the kubelet may write at the same time
		got := r.read(pod)
		how(&got.Status)
		err := r.Client.Status().Update(r.Context(), got)
		return err == nil, err
	})
}

// TestRevertsUntilItIsDone: an increase that the kubelet defers is taken back even where the answer
// is lost, the pod changes under every attempt of a reconcile, or the API server refuses that, with a back-off.
// That counts as no decrease.
func TestRevertsUntilItIsDone(t *testing.T) {
	for name, disturb := range map[string]func(r *rig, p *corev1.Pod, attempt int, next func() podresize.Result) podresize.Result{
		"answer-lost": func(_ *rig, _ *corev1.Pod, attempt int, next func() podresize.Result) podresize.Result {
			result := next()
			if attempt == 1 {
				return podresize.Result{Outcome: podresize.Unknown, Message: "the answer was lost"}
			}
			return result
		},
		"conflicts": func(r *rig, p *corev1.Pod, attempt int, next func() podresize.Result) podresize.Result {
			if attempt <= conflictsAtOnce {
				r.label(p, strings.Repeat("x", attempt))
			}
			return next()
		},
		"refused": func(_ *rig, _ *corev1.Pod, attempt int, next func() podresize.Result) podresize.Result {
			if attempt == 1 {
				return podresize.Result{Outcome: podresize.QuotaExceeded, Message: "no room"}
			}
			return next()
		},
	} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, func(t *testing.T, r *rig) {
				l, attempts := r.live(), 0
				pod := l.newPod(name)
				r.kubelet.Answer(pod, apiserver.Defer)
				r.publish(pod, "0.000", app(2000))
				increased := false
				l.resizes.Resizer = fakeResizer{Resizer: l.counter, apply: func(p *corev1.Pod, next func() podresize.Result) podresize.Result {
					if !increased {
						increased = true
						return next()
					}
					attempts++
					return disturb(r, p, attempts, next)
				}}
				l.look(pod)
				l.settles(pod, v1alpha1.PhaseFailed, reasons.ResizeDeferred)
				if s := l.look(pod).Status; name == "refused" && (attempts != 1 ||
					!strings.HasPrefix(s.Message, reasons.ResizeDeferred.Sentence()) ||
					!strings.HasSuffix(s.Message, "not back in the spec: "+reasons.QuotaExceeded.Sentence()+": no room")) {
					t.Errorf("%d attempts at once, want one and a back-off; the status says %q", attempts, s.Message)
				}
				l.ahead += 2 * r.config.ServerBackoff
				l.gets(pod, 500)
				r.harm(pod, unready)
				l.look(pod)
				s := l.look(pod).Status
				if !s.LastDecreaseTime.IsZero() || s.Rollback.Limits != nil || !s.Rollback.LastHarmfulDecreaseTime.IsZero() {
					t.Errorf("a decrease is noted that never happened: %+v", s)
				}
				if s.Phase != v1alpha1.PhaseFailed || s.Reason != string(reasons.ResizeDeferred) || s.Retry.Failures != 1 ||
					strings.Contains(s.Message, "not back") ||
					attempts == 0 || name == "conflicts" && attempts <= conflictsAtOnce {
					t.Errorf("%d attempts, status %+v", attempts, s)
				}
			})
		})
	}
}

// TestRollsBackAHarmfulDecrease: a pod that is not Ready, or restarts, right after it was lowered gets
// its limits back. Other kinds of harm: TestRollsBackHarm (internal/lifecycle).
func TestRollsBackAHarmfulDecrease(t *testing.T) {
	for name, how := range map[string]func(*corev1.PodStatus){"not-ready": unready, "restarted": restarted} {
		t.Run(name, func(t *testing.T) { inMemory(t, func(_ *testing.T, r *rig) { r.rollsBack(name, how) }) })
	}
}

func (r *rig) rollsBack(name string, how func(*corev1.PodStatus)) {
	l := r.live()
	pod := l.raised(name)
	d := capped(v1alpha1.BoundByPrice)
	d.Usage, d.Demand, d.ThrottledPercent = 900, 1800, 40
	r.decide(pod, d, app(1000)) // in two steps
	l.gets(pod, 1000)
	l.settles(pod, v1alpha1.PhaseApplied, reasons.Settled)
	const evidence = `"price":"0.500","budget":100,"usage":"900m","demand":"1800m","throttledPercent":40`
	if !strings.Contains(r.audit.String(), evidence) {
		r.Errorf("the audit lines lack %s:\n%s", evidence, r.audit)
	}
	r.harm(pod, how)
	l.gets(pod, 2000)
	s := l.settles(pod, v1alpha1.PhaseNotApplied, reasons.UnhealthyAfterDecrease).Status
	if s.Rollback.LastHarmfulDecreaseTime.IsZero() || s.Rollback.Limits != nil || !s.Rollback.WindowStart.IsZero() ||
		r.toldConstraints(pod).NoDecrease != string(reasons.UnhealthyAfterDecrease) {
		r.Errorf("status %+v, constraints %+v", s, r.toldConstraints(pod))
	}
	if n := l.told(reasons.UnhealthyAfterDecrease); n != 1 || !strings.Contains(r.audit.String(), `"purpose":"rollback"`) {
		r.Errorf("%d events that say so, want one; audit:\n%s", n, r.audit)
	}
	by := "unready"
	if strings.HasSuffix(name, "restarted") {
		by = "restart"
	}
	if n := testutil.ToFloat64(l.Metrics.Harmful.WithLabelValues(by)); n != 1 {
		r.Errorf("%v harmful decreases are counted by %s, want one", n, by)
	}
	for direction, least := range map[string]float64{metrics.Increase: 1, metrics.Decrease: 1} {
		if n := testutil.ToFloat64(l.Metrics.Changed.WithLabelValues(direction)); n < least {
			r.Errorf("%s by %v cores are counted, want at least %v: to 1000m and back to 2000m", direction, n, least)
		}
	}
}

// droppingEvents drops Events until it is told to send them.
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
	told, now := &droppingEvents{}, time.Unix(1000, 0)
	r := &Reconciler{Telemetry: Telemetry{Events: told}}
	r.jitter = func(d time.Duration) time.Duration { return d }
	s, one := &snapshot{now: now}, &task{podState: &podState{pod: &corev1.Pod{}, rec: &record{}}}
	r.event(s, one, events.Event{Type: corev1.EventTypeWarning, Reason: "PolicyRefused"})
	if !one.RecheckAt.Equal(now.Add(events.SendAgain)) {
		t.Errorf("looked at again at %v, want %v after %v", one.RecheckAt, events.SendAgain, now)
	}
	told.sends = true
	r.event(s, one, events.Event{Type: corev1.EventTypeNormal, Reason: "SkipResize"})
	r.observe(s, one)
	if want := []string{"SkipResize", "PolicyRefused"}; !slices.Equal(told.sent, want) {
		t.Errorf("sent %v, want %v", told.sent, want)
	}
}

// TestADroppedEventIsSentLater: an Event that was dropped is sent at a later look, once, if the pod is still in
// the state that it tells of.
func TestADroppedEventIsSentLater(t *testing.T) {
	for name, still := range map[string]bool{"still refused": true, "accepted since": false} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, func(t *testing.T, r *rig) {
				l := r.live()
				told := &droppingEvents{}
				pod := l.raised(map[bool]string{true: "still", false: "since"}[still])
				l.Events = told
				whole := l.resizes.Resizer
				l.resizes.Resizer = fakeResizer{Resizer: whole, apply: func(*corev1.Pod, func() podresize.Result) podresize.Result {
					return podresize.Result{Outcome: podresize.PolicyRefused, Message: "no"}
				}}
				r.publish(pod, "0.000", app(3000))
				l.settles(pod, v1alpha1.PhaseFailed, reasons.PolicyRefused)
				for range 3 {
					l.look(pod)
				}
				if told.dropped != 1 {
					t.Errorf("%d Events count as dropped, want one", told.dropped)
				}
				if !still {
					l.resizes.Resizer = whole
					l.pass(10 * time.Minute)
					l.gets(pod, 3000)
					l.settles(pod, v1alpha1.PhaseApplied, reasons.Settled)
				}
				told.sends = true
				for range 3 {
					l.look(pod)
				}
				got := 0
				for _, reason := range told.sent {
					if reason == string(reasons.PolicyRefused) {
						got++
					}
				}
				if want := map[bool]int{true: 1, false: 0}[still]; got != want {
					t.Errorf("sent %v, want the refusal %d times", told.sent, want)
				}
			})
		})
	}
}
