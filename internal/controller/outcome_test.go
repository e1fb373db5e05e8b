package controller

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/controller/metrics"
	"github.com/mbcas/mbcas/internal/kube"
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
		podresize.NotRunning: failed(reasons.ContainerNotRunning), podresize.NodeRefused: failed(reasons.NodeRefused), podresize.PolicyRefused: failed(reasons.PolicyRefused),
		podresize.Invalid: failed(reasons.InvalidResize), podresize.NotYet: waits(reasons.ServerUnavailable),
		podresize.Unavailable: waits(reasons.ServerUnavailable), podresize.NoDryRun: failed(reasons.PolicyRefused),
	}
	for o := podresize.Outcome(0); !strings.HasPrefix(o.String(), "Outcome("); o++ {
		if _, ok := ends[o]; !ok {
			t.Errorf("outcome %v is not dealt with", o)
		}
	}
	for o, want := range ends {
		t.Run(o.String(), func(t *testing.T) {
			withController(t, func(t *testing.T, r *rig, l *life) {
				pod := l.newPod("web")
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
	eachInMemory(t, map[string]bool{"carried out": true, "not carried out": false}, func(t *testing.T, r *rig, carriedOut bool) {
		l, attempts := r.live(), 0
		pod := l.newPod("web")
		l.resizes.Resizer = fakeResizer{Resizer: l.counter, apply: func(_ *corev1.Pod, next func() podresize.Result) podresize.Result {
			if attempts++; attempts > 1 {
				return next()
			}
			if carriedOut {
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
}

// TestAChangedPodIsDecidedAnewAtOnce: a pod that changes between the decision and the resize is
// decided anew at once, and after that has been tried some times, a while later.
func TestAChangedPodIsDecidedAnewAtOnce(t *testing.T) {
	eachInMemory(t, map[string]int{"once": 1, "each time": conflictsAtOnce}, func(t *testing.T, r *rig, changes int) {
		l, attempts := r.live(), 0
		pod := l.newPod("web")
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
}

// TestOneForAll has the API server refuse everything about one pod.
func TestOneForAll(t *testing.T) {
	withController(t, func(t *testing.T, r *rig, l *life) {
		bad, good := l.raised("bad"), l.raised("good")
		broken := errors.New("no such luck")
		whole := l.Reconciler.Client
		l.Reconciler.Client = r.onStatus(func(o client.Object) error {
			if o.GetName() == string(bad.UID) {
				return broken
			}
			return nil
		})
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
		if n := testutil.ToFloat64(l.Metrics.Errors); n != 1 {
			t.Errorf("counted %v errors, want 1", n)
		}
		l.Reconciler.Client = whole
		l.settles(bad, v1alpha1.PhaseApplied, reasons.Settled)

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = l.Reconcile(ctx, request(r.kubelet.Node))
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
	type disturb func(r *rig, p *corev1.Pod, attempt int, next func() podresize.Result) podresize.Result
	once := func(o podresize.Outcome, carriedOut bool) disturb {
		return func(_ *rig, _ *corev1.Pod, attempt int, next func() podresize.Result) podresize.Result {
			if attempt > 1 {
				return next()
			}
			if carriedOut {
				next()
			}
			return podresize.Result{Outcome: o, Message: "no room"}
		}
	}
	conflicts := func(r *rig, p *corev1.Pod, attempt int, next func() podresize.Result) podresize.Result {
		if attempt <= conflictsAtOnce {
			r.label(p, strings.Repeat("x", attempt))
		}
		return next()
	}
	for name, c := range map[string]struct {
		disturb
		attempts int // at least
	}{"answer lost": {once(podresize.Unknown, true), 1}, "conflicts": {conflicts, conflictsAtOnce + 1}, "refused": {once(podresize.QuotaExceeded, false), 1}} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, func(t *testing.T, r *rig) {
				l, attempts := r.live(), -1 // without that of the increase
				pod := l.newPod("web")
				r.kubelet.Answer(pod, apiserver.Defer)
				r.publish(pod, "0.000", app(2000))
				l.resizes.Resizer = fakeResizer{Resizer: l.counter, apply: func(p *corev1.Pod, next func() podresize.Result) podresize.Result {
					if attempts++; attempts == 0 {
						return next()
					}
					return c.disturb(r, p, attempts, next)
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
					strings.Contains(s.Message, "not back") || attempts < c.attempts {
					t.Errorf("%d attempts, status %+v", attempts, s)
				}
			})
		})
	}
}

// TestRollsBackAHarmfulDecrease: a pod that is not Ready, or restarts, right after it was lowered gets its limits back, up to the
// declared ones. Other kinds of harm: TestRollsBackHarm (internal/lifecycle).
func TestRollsBackAHarmfulDecrease(t *testing.T) {
	eachInMemory(t, map[string]harm{"not Ready": {unready, "unready", 0}, "restarted": {restarted, "restart", 0}}, rollsBack)
}

// harm is what follows a decrease.
type harm struct {
	reported func(*corev1.PodStatus)
	by       string        // as the metric names it
	off      time.Duration // by which the clock of the node differs
}

// dated is the harm with the dates of the clock of the node.
func (h harm) dated(s *corev1.PodStatus) {
	h.reported(s)
	for i := range s.Conditions {
		if c := &s.Conditions[i]; h.by == "unready" && c.Type == corev1.PodReady {
			c.LastTransitionTime.Time = c.LastTransitionTime.Add(h.off)
		}
	}
	if end := s.ContainerStatuses[0].LastTerminationState.Terminated; end != nil {
		end.FinishedAt.Time = end.FinishedAt.Add(h.off)
	}
}

func rollsBack(_ *testing.T, r *rig, h harm) {
	l := r.live()
	pod := l.raised("web")
	d := capped(v1alpha1.BoundByPrice)
	d.Usage, d.Demand, d.ThrottledPercent = 900, 1800, 40
	r.decide(pod, d, app(300)) // in steps
	l.gets(pod, 300)
	l.settles(pod, v1alpha1.PhaseApplied, reasons.Settled)
	const evidence = `"price":"0.500","budget":100,"usage":"900m","demand":"1800m","throttledPercent":40`
	if !strings.Contains(r.audit.String(), evidence) {
		r.Errorf("the audit lines lack %s:\n%s", evidence, r.audit)
	}
	r.harm(pod, h.dated)
	l.gets(pod, 500) // which is declared
	s := l.settles(pod, v1alpha1.PhaseApplied, reasons.UnhealthyAfterDecrease).Status
	if s.Rollback.LastHarmfulDecreaseTime.IsZero() || s.Rollback.Limits != nil || !s.Rollback.WindowStart.IsZero() ||
		r.publishedConstraints(pod).NoDecrease != string(reasons.UnhealthyAfterDecrease) {
		r.Errorf("status %+v, constraints %+v", s, r.publishedConstraints(pod))
	}
	if n := l.eventsSent(reasons.UnhealthyAfterDecrease); n != 1 || !strings.Contains(r.audit.String(), `"purpose":"rollback"`) {
		r.Errorf("%d events that say so, want one; audit:\n%s", n, r.audit)
	}
	if n := testutil.ToFloat64(l.Metrics.Harmful.WithLabelValues(h.by)); n != 1 {
		r.Errorf("%v harmful decreases are counted by %s, want one", n, h.by)
	}
	for _, direction := range []string{metrics.Increase, metrics.Decrease} {
		if n := testutil.ToFloat64(l.Metrics.Changed.WithLabelValues(direction)); n < 1 {
			r.Errorf("%s by %v cores are counted, want at least 1: to 2000m, and to 300m", direction, n)
		}
	}
}

// TestRaisedRequestIsRestored: a request that was raised in place above the declared limit does not keep
// the pod from being restored: it ends at the request, and an opt-out ends, too. What it says then: TestRestoresToTheRequest.
func TestRaisedRequestIsRestored(t *testing.T) {
	withController(t, func(t *testing.T, r *rig, l *life) {
		pod := l.raised("web")
		r.must(r.Client.SubResource("resize").Patch(r.Context(), pod.DeepCopy(), client.RawPatch("application/strategic-merge-patch+json",
			[]byte(`{"spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":"700m"}}}]}}`)), client.FieldOwner("another-client")))
		r.mode(r.namespace, kube.ModeRestore)
		pa := l.settles(pod, v1alpha1.PhaseRestored, reasons.Restoring)
		r.limitIs(pod, 700, "at the request")
		r.declaredIs(pa, app(500))
		r.label(pod, "false")
		l.becomes(pod, "gone", func(pa *v1alpha1.PodAllocation) bool { return pa == nil })
		r.limitIs(pod, 700, "out, at the request")
	})
}
