package controller

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

// TestOutcomes gives every outcome of a resize, and looks at what becomes of the allocation and the pod.
func TestOutcomes(t *testing.T) {
	r := newRig(t)
	type end struct {
		phase    v1alpha1.Phase
		reason   reasons.Reason
		failures int32
	}
	failed := func(r reasons.Reason) end { return end{v1alpha1.PhaseFailed, r, 1} }
	held := func(r reasons.Reason) end { return end{v1alpha1.PhaseNotApplied, r, 0} }
	ends := map[podresize.Outcome]end{
		podresize.Accepted: {v1alpha1.PhaseApplied, reasons.Settled, 0}, podresize.NoChange: {v1alpha1.PhaseApplied, reasons.Settled, 0},
		podresize.Conflict: held(reasons.WriteConflict), podresize.Unknown: held(reasons.OutcomeUnknown),
		podresize.PodGone: {v1alpha1.PhasePending, reasons.NoDecisionYet, 0}, podresize.Replaced: {v1alpha1.PhasePending, reasons.NoDecisionYet, 0},
		podresize.NotServed: {v1alpha1.PhasePending, reasons.NoDecisionYet, 0}, podresize.NotAllowed: {v1alpha1.PhasePending, reasons.NoDecisionYet, 0},
		podresize.QuotaExceeded: failed(reasons.QuotaExceeded), podresize.QuotaNeedsLimits: failed(reasons.QuotaNeedsLimits),
		podresize.LimitRangeRefused: failed(reasons.LimitRangeRefused), podresize.WouldMutate: failed(reasons.AdmissionWouldMutate),
		podresize.NodeRefused: failed(reasons.NodeRefused), podresize.PolicyRefused: failed(reasons.PolicyRefused),
		podresize.Invalid: failed(reasons.InvalidResize), podresize.NotYet: held(reasons.ServerUnavailable),
		podresize.Unavailable: held(reasons.ServerUnavailable), podresize.NoDryRun: failed(reasons.PolicyRefused),
	}
	for o := podresize.Outcome(0); !strings.HasPrefix(o.String(), "Outcome("); o++ {
		want, ok := ends[o]
		if !ok {
			t.Errorf("outcome %v is not dealt with", o)
			continue
		}
		t.Run(o.String(), func(t *testing.T) {
			r := r.in(t)
			l := r.live(0, false)
			pod := r.pod(strings.ToLower(o.String()), "100m", "500m")
			l.settles(pod, v1alpha1.PhasePending, reasons.NoDecisionYet)
			if o != podresize.Accepted && o != podresize.NoChange {
				l.Resize = answer{podresize.Result{Outcome: o, Message: "because"}}
			}
			r.publish(pod, "0.000", app(2000))
			if _, err := l.once(); err != nil {
				t.Fatal(err)
			}
			if o == podresize.Accepted || o == podresize.NoChange {
				l.settles(pod, want.phase, want.reason)
			}
			pa := r.stored(pod)
			if got := (end{pa.Status.Phase, reasons.Reason(pa.Status.Reason), pa.Status.Retry.Failures}); got != want {
				t.Errorf("ends as %+v, want %+v", got, want)
			}
			if want.failures > 0 && (pa.Status.Retry.Time == nil || !strings.Contains(pa.Status.Message, "because")) {
				t.Errorf("a refusal without retry time or explanation: %+v", pa.Status)
			}
			if strings.Count(r.log.String(), `"msg":"resize"`) == 0 {
				t.Error("no audit line")
			}
			// What was refused is not tried again before its time, and then it works.
			l.Resize = l.counter
			l.Gate.Set("", "")
			if want.failures > 0 {
				l.look(pod)
				if l.counter.resizes() != 0 {
					t.Error("tried again at once")
				}
				l.ahead = r.config.Backoff + time.Second
				r.hearAt(time.Now().Add(l.ahead))
			} else if want.phase == v1alpha1.PhaseNotApplied {
				l.ahead = 10 * time.Second
			}
			pa = l.settles(pod, v1alpha1.PhaseApplied, reasons.Settled)
			if pa.Status.Retry.Failures != 0 || pa.Status.Retry.Time != nil || r.limit(pod) != 2000 || l.counter.resizes() != 1 {
				t.Errorf("limit %v after %d resizes, status %+v", r.limit(pod), l.counter.resizes(), pa.Status)
			}
			r.hear()
		})
	}
}

// lostAnswer carries a resize out, or not, and then loses the answer.
type lostAnswer struct {
	Resizer
	carryOut bool
	left     *int
}

func (a lostAnswer) Apply(ctx context.Context, pod *corev1.Pod, move actuator.Move) podresize.Result {
	if *a.left == 0 {
		return a.Resizer.Apply(ctx, pod, move)
	}
	*a.left--
	if a.carryOut {
		a.Resizer.Apply(ctx, pod, move)
	}
	return podresize.Result{Outcome: podresize.Unknown, Message: "the answer was lost"}
}

func TestALostAnswerIsLookedUp(t *testing.T) {
	r := newRig(t)
	for name, carryOut := range map[string]bool{"carried-out": true, "not-carried-out": false} {
		t.Run(name, func(t *testing.T) {
			r := r.in(t)
			l := r.live(0, false)
			pod := r.pod(name, "100m", "500m")
			l.settles(pod, v1alpha1.PhasePending, reasons.NoDecisionYet)
			left := 1
			l.Resize = lostAnswer{l.counter, carryOut, &left}
			r.publish(pod, "0.000", app(2000))
			l.look(pod)
			l.ahead = 2 * r.config.ServerBackoff
			l.settles(pod, v1alpha1.PhaseApplied, reasons.Settled)
			got := &corev1.Pod{}
			r.must(r.Client.Get(r.Context(), client.ObjectKeyFromObject(pod), got))
			if got.Generation != pod.Generation+1 || r.limit(pod) != 2000 {
				t.Errorf("generation %d from %d, limit %v: want exactly one resize to 2000m", got.Generation, pod.Generation, r.limit(pod))
			}
		})
	}
}

func TestAChangedPodIsDecidedAnewAtOnce(t *testing.T) {
	r := newRig(t)
	l := r.live(0, false)
	pod := r.pod("web", "100m", "500m")
	l.settles(pod, v1alpha1.PhasePending, reasons.NoDecisionYet)
	r.publish(pod, "0.000", app(2000))
	touched := false
	l.Resize = witness{l.counter, func(p *corev1.Pod) {
		if !touched { // between the decision and the resize
			touched = true
			r.label(p, "true")
		}
	}}
	if _, err := l.once(); err != nil {
		t.Fatal(err)
	}
	if got := r.limit(pod); got != 2000 || !touched {
		t.Errorf("limit %v after one reconcile, want 2000m", got)
	}
}

// TestKubelet lets the kubelet answer in each of its ways.
func TestKubelet(t *testing.T) {
	r := newRig(t)
	for _, c := range []struct {
		name   string
		answer apiserver.Answer
		late   bool // only after the time that the kubelet has
		reason reasons.Reason
		limit  string // in the spec, while it waits to be tried again
	}{
		{"defers", apiserver.Defer, false, reasons.ResizeDeferred, "500m"},
		{"refuses", apiserver.Refuse, false, reasons.ResizeInfeasible, "500m"},
		{"stalls", apiserver.Stall, true, reasons.ResizeTimedOut, "2"},
		{"fails", apiserver.Fail, true, reasons.ResizeError, "500m"},
		{"does-not-look", apiserver.Ignore, true, reasons.ResizeTimedOut, "2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := r.in(t)
			l := r.live(0, false)
			pod := r.pod(c.name, "100m", "500m")
			l.settles(pod, v1alpha1.PhasePending, reasons.NoDecisionYet)
			r.kubelet.Answer(pod, c.answer)
			r.publish(pod, "0.000", app(2000))
			if c.late {
				l.settles(pod, v1alpha1.PhasePending, reasons.ResizeInFlight)
				if c.answer == apiserver.Fail {
					apiserver.WaitFor(t, r.Client, pod, "in error", func(p *corev1.Pod) bool {
						progress, _ := podresize.Check(p, nil, p.Generation)
						return progress == actuator.Errored
					})
				}
				l.ahead = r.config.ActuationTimeout + time.Second
				r.hearAt(time.Now().Add(l.ahead))
			}
			pa := l.settles(pod, v1alpha1.PhaseFailed, c.reason)
			l.look(pod)
			l.look(pod)
			if want := resource.MustParse(c.limit); int64(r.limit(pod)) != want.MilliValue() || pa.Status.Retry.Failures != 1 {
				t.Errorf("limit %v, want %s; status %+v", r.limit(pod), c.limit, pa.Status)
			}
			// Nothing changes until the back-off ends; then it is tried again, and works.
			r.kubelet.Answer(pod, apiserver.Obey)
			if c.reason != reasons.ResizeTimedOut {
				l.settles(pod, v1alpha1.PhaseFailed, c.reason)
				l.ahead += r.config.Backoff + time.Second
				r.hearAt(time.Now().Add(l.ahead))
			}
			pa = l.settles(pod, v1alpha1.PhaseApplied, reasons.Settled)
			if r.limit(pod) != 2000 || pa.Status.Retry.Failures != 0 {
				t.Errorf("limit %v, status %+v", r.limit(pod), pa.Status)
			}
			declaredIs(t, pa, app(500))
			r.hear()
		})
	}
}

func TestATakingBackIsRepeated(t *testing.T) {
	r := newRig(t)
	l := r.live(0, false)
	pod := r.pod("web", "100m", "500m")
	l.settles(pod, v1alpha1.PhasePending, reasons.NoDecisionYet)
	r.kubelet.Answer(pod, apiserver.Defer)
	r.publish(pod, "0.000", app(2000))
	l.look(pod)
	attempts := 0
	l.Resize = witness{l.counter, func(p *corev1.Pod) {
		if attempts++; attempts <= passes { // it changes under every attempt of the first reconcile
			r.label(p, strings.Repeat("x", attempts))
		}
	}}
	l.settles(pod, v1alpha1.PhaseFailed, reasons.ResizeDeferred)
	r.until("taken back", func() (bool, any) { l.look(pod); return r.limit(pod) == 500, r.limit(pod) })
	if pa := r.stored(pod); attempts <= passes || pa.Status.Retry.Failures != 1 || pa.Status.Reason != string(reasons.ResizeDeferred) {
		t.Errorf("%d attempts, status %+v", attempts, pa.Status)
	}
}

// without is a client that has no such node.
func without(c client.WithWatch, node string) client.Client {
	return interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if _, ok := o.(*corev1.Node); ok && key.Name == node {
				return apierrors.NewNotFound(corev1.Resource("nodes"), node)
			}
			return c.Get(ctx, key, o, opts...)
		},
	})
}

// TestNode puts the node into each state in which nothing on it is resized.
func TestNode(t *testing.T) {
	r := newRig(t)
	l := r.live(0, false)
	pod := l.raised("web")
	condition := func(kind corev1.NodeConditionType, status corev1.ConditionStatus) {
		n := &corev1.Node{}
		r.must(r.Client.Get(r.Context(), client.ObjectKey{Name: r.kubelet.Node}, n))
		kept := n.Status.Conditions[:0]
		for _, c := range n.Status.Conditions {
			if c.Type != kind {
				kept = append(kept, c)
			}
		}
		n.Status.Conditions = append(kept, corev1.NodeCondition{Type: kind, Status: status})
		r.must(r.Client.Status().Update(r.Context(), n))
	}
	taint := func(taints ...corev1.Taint) {
		n := &corev1.Node{}
		r.must(r.Client.Get(r.Context(), client.ObjectKey{Name: r.kubelet.Node}, n))
		n.Spec.Taints = taints
		r.must(r.Client.Update(r.Context(), n))
	}
	with := l.Reconciler.Client
	limit := 2000
	for _, c := range []struct {
		reason      reasons.Reason
		enter, exit func()
	}{
		{reasons.NodeNotReady, func() { condition(corev1.NodeReady, corev1.ConditionUnknown) }, func() { condition(corev1.NodeReady, corev1.ConditionTrue) }},
		{reasons.NodeUnknown, func() { l.Reconciler.Client = without(r.Client, r.kubelet.Node) }, func() { l.Reconciler.Client = with }},
		{reasons.NodeUnderPressure, func() { condition(corev1.NodeDiskPressure, corev1.ConditionTrue) }, func() { condition(corev1.NodeDiskPressure, corev1.ConditionFalse) }},
		{reasons.NodeUnderPressure, func() { condition(corev1.NodePIDPressure, corev1.ConditionTrue) }, func() { condition(corev1.NodePIDPressure, corev1.ConditionFalse) }},
		{reasons.NodeEvicting, func() { taint(corev1.Taint{Key: "drain", Effect: corev1.TaintEffectNoExecute}) }, func() { taint() }},
	} {
		before := l.counter.resizes()
		c.enter()
		limit += 1000
		if limit > 3000 {
			limit = 2000
		}
		r.publish(pod, "0.000", app(milli(limit)))
		l.settles(pod, v1alpha1.PhaseNotApplied, c.reason)
		if got := l.counter.resizes(); got != before {
			t.Errorf("%s: resized", c.reason)
		}
		c.exit()
		l.settles(pod, v1alpha1.PhaseApplied, reasons.Settled)
		if got := r.limit(pod); got != milli(limit) {
			t.Errorf("after %s: limit %v, want %dm", c.reason, got, limit)
		}
	}
}

// TestLimitRangeDefaultsAreNotTaken guards against defaults that a resize would add to another container for good.
func TestLimitRangeDefaultsAreNotTaken(t *testing.T) {
	r := newRig(t)
	l := r.live(0, false)
	pod := r.kubelet.Run(t, apiserver.Pod(r.namespace, "web", apiserver.Container("app", "100m", "500m"), apiserver.Container("side", "", "")))
	l.settles(pod, v1alpha1.PhasePending, reasons.NoDecisionYet)
	lr := &corev1.LimitRange{}
	lr.Namespace, lr.Name = r.namespace, "late"
	lr.Spec.Limits = []corev1.LimitRangeItem{{
		Type: corev1.LimitTypeContainer, Default: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")},
	}}
	r.must(r.Client.Create(r.Context(), lr))
	r.publish(pod, "0.000", app(2000))
	l.settles(pod, v1alpha1.PhaseNotApplied, reasons.AdmissionWouldMutate)
	got := &corev1.Pod{}
	r.must(r.Client.Get(r.Context(), client.ObjectKeyFromObject(pod), got))
	if got.Generation != pod.Generation || len(got.Spec.Containers[1].Resources.Limits) != 0 {
		t.Errorf("the pod was changed: %+v", got.Spec.Containers)
	}
}
