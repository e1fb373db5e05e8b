package controller

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/flowcontrol"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/lifecycle"
)

// TestLongWaitIsReported: a short wait leaves the status of a pod as it is, and no wait hides a
// failure.
func TestLongWaitIsReported(t *testing.T) {
	stored := lifecycle.Status{Phase: lifecycle.PhaseApplied, Reason: reasons.Settled}
	for wait, want := range map[time.Duration]reasons.Reason{
		unreportedWait - time.Second: reasons.Settled, unreportedWait: reasons.RateLimited,
	} {
		waits := &task{Task: lifecycle.Task{Status: stored}}
		waits.awaitTurn(noon.Add(-wait), noon)
		if waits.Status.Reason != want || want == reasons.Settled && !waits.RecheckAt.Equal(noon.Add(time.Second)) {
			t.Errorf("a wait of %v: %+v, another look at %v", wait, waits.Status, waits.RecheckAt)
		}
	}
	failed := &task{Task: lifecycle.Task{Purpose: lifecycle.Revert}}
	failed.Report(lifecycle.PhaseFailed, reasons.ResizeDeferred, "")
	if failed.awaitTurn(noon.Add(-time.Hour), noon); failed.Status.Reason != reasons.ResizeDeferred {
		t.Errorf("the failure is not reported any more: %+v", failed.Status)
	}
}

// TestPriorities: what a resize is for, and whether the pod needs it, decides its place.
func TestPriorities(t *testing.T) {
	pod := func(demand cpu.Milli, excluded reasons.Reason) lifecycle.Pod {
		return lifecycle.Pod{
			Declared: lifecycle.Limits{{Container: "app", CPU: 500}}, Excluded: lifecycle.Cause{Reason: excluded},
			Containers: []lifecycle.Container{{Name: "app", Limit: 500}}, Decision: &lifecycle.Decision{Demand: demand},
		}
	}
	for name, c := range map[string]struct {
		purpose lifecycle.Purpose
		to      cpu.Milli
		pod     lifecycle.Pod
		want    flowcontrol.Priority
	}{
		"a rollback":                         {lifecycle.Rollback, 800, pod(100, ""), flowcontrol.Urgent},
		"a revert":                           {lifecycle.Revert, 400, pod(100, ""), flowcontrol.Urgent},
		"a pod that opts out":                {lifecycle.Restore, 400, pod(100, reasons.OptedOut), flowcontrol.Urgent},
		"up to the declared limit":           {lifecycle.Restore, 800, pod(100, ""), flowcontrol.Needed},
		"down to the declared limit":         {lifecycle.Restore, 400, pod(900, ""), flowcontrol.Decrease},
		"an increase of a throttled pod":     {lifecycle.Allocate, 800, pod(500, ""), flowcontrol.Needed},
		"a decrease":                         {lifecycle.Allocate, 400, pod(100, ""), flowcontrol.Decrease},
		"an increase that nothing waits for": {lifecycle.Allocate, 800, pod(499, ""), flowcontrol.Idle},
	} {
		m := &actuator.Move{Changes: []actuator.Change{{Container: "app", From: 500, To: c.to}}}
		got := (&task{Task: lifecycle.Task{Move: m, Purpose: c.purpose}, podState: &podState{facts: c.pod}}).priority()
		if got != c.want {
			t.Errorf("%s is %v, want %v", name, got, c.want)
		}
	}
}

// exactly is a jitter of nothing.
func exactly(d time.Duration) time.Duration { return d }

// healthyBeside runs a pod in another namespace of the node.
func (r *rig) healthyBeside() *corev1.Pod {
	r.Helper()
	other := *r
	other.namespace = r.Namespace(r.T)
	r.mode(other.namespace, kube.ModeEnforce)
	return other.pod("healthy", "100m", "500m")
}

// TestHangingWebhooks: pods whose resizes hang are tried seldom, and a look at their node takes no
// time; a healthy pod of the node gets its resize all the same.
func TestHangingWebhooks(t *testing.T) {
	withController(t, func(t *testing.T, r *rig, l *life) {
		l.jitter = exactly
		tries, looking := 0, false
		l.resizes.Resizer = fakeResizer{apply: func(pod *corev1.Pod, next func() podresize.Result) podresize.Result {
			if looking {
				t.Error("a look at the node resizes")
			}
			if pod.Namespace != r.namespace {
				return next()
			}
			tries++
			l.ahead += podresize.Timeout
			return podresize.Result{Outcome: podresize.Unknown, Message: "no answer"}
		}, dry: answer(podresize.Unknown).(fakeResizer).dry, Resizer: l.counter}
		healthy := r.healthyBeside()
		pods := []*corev1.Pod{healthy}
		for i := range 3 {
			pods = append(pods, r.pod(fmt.Sprintf("sick-%d", i), "100m", "500m"))
		}
		l.look(healthy)
		for _, pod := range pods {
			r.publish(pod, "0.000", app(2000))
		}
		step := func(d time.Duration) {
			l.pass(d)
			for range 10 {
				looking = true
				_, err := l.Reconcile(t.Context(), request(r.kubelet.Node))
				if looking = false; err != nil || !l.steps() {
					r.must(err)
					return
				}
			}
		}
		for range 3 {
			step(time.Second)
		}
		r.limitIs(healthy, 2000, "of the healthy pod after three looks")
		for start := l.ahead; l.ahead < start+10*time.Minute; {
			step(40 * time.Second)
		}
		if tries > 12 {
			t.Errorf("%d attempts in ten minutes, want some for the breaker and a probe now and then", tries)
		}
	})
}

// TestHangsAlone: while a resize of three pods hangs, the whole controller, which reconciles one
// node at a time, raises a healthy pod of their node again and again. How many may hang:
// TestHangsAlone, TestManyHangAlone (internal/dispatch).
func TestHangsAlone(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		r.config.Nodes = 1
		var hung atomic.Int64
		hangs := make(chan struct{})
		r.start(func(re *Reconciler) {
			apply := func(pod *corev1.Pod, next func() podresize.Result) podresize.Result {
				if pod.Namespace != r.namespace {
					return next()
				}
				hung.Add(1)
				<-hangs
				return podresize.Result{Outcome: podresize.Unknown, Message: "no answer"}
			}
			re.resizes.Resizer = fakeResizer{Resizer: re.resizes.Resizer, apply: apply}
		})
		t.Cleanup(func() { close(hangs) }) // before the controller stops
		healthy := r.healthyBeside()
		var sick []*corev1.Pod
		for i := range 3 {
			pod := r.pod(fmt.Sprintf("sick-%d", i), "50m", "500m")
			r.allocation(pod, "made", recorded)
			r.publish(pod, "0.000", app(2000))
			sick = append(sick, pod)
		}
		r.at(healthy, 1000)
		r.at(healthy, 1500)
		for _, pod := range sick {
			r.limitIs(pod, 500, "while its resize hangs")
		}
		if n := hung.Load(); n != 1 {
			t.Errorf("%d resizes hang, want one of a namespace that has not answered", n)
		}
	})
}

// TestTheTurnOutlastsTheDecision: a pod that has waited for its turn for longer than its decision
// was fresh is resized in its turn, as its agent stands by the decision. That it is not without:
// TestLeavesUntried (internal/dispatch).
func TestTheTurnOutlastsTheDecision(t *testing.T) {
	inMemory(t, func(_ *testing.T, r *rig) {
		r.config.Resizes.Burst, r.config.Resizes.PerSecond, r.config.Resizes.PerNode = 1, 0.01, 0
		l := r.live()
		first, second := l.newPod("first"), l.newPod("second")
		l.pass(105 * time.Second) // the burst is there
		for _, pod := range []*corev1.Pod{first, second} {
			r.publish(pod, "0.000", app(2000))
			l.look(pod)
		}
		r.limitIs(second, 500, "before its turn")
		l.pass(105 * time.Second)
		l.look(second)
		r.limitIs(second, 2000, "in its turn")
	})
}

// TestRefusedInOneNamespace: an authorizer that refuses in one namespace costs only that one. The gate
// stays open as long as a review by the API server says that resizes are allowed.
func TestRefusedInOneNamespace(t *testing.T) {
	eachInMemory(t, map[string]podresize.Outcome{
		"not allowed": podresize.NotAllowed, "not served": podresize.NotServed,
	}, func(t *testing.T, r *rig, outcome podresize.Outcome) {
		l := r.live()
		l.jitter = exactly
		tries := 0
		l.resizes.Resizer = fakeResizer{Resizer: l.counter, apply: func(pod *corev1.Pod, next func() podresize.Result) podresize.Result {
			if pod.Namespace != r.namespace {
				return next()
			}
			tries++
			return podresize.Result{Outcome: outcome, Message: "because"}
		}}
		fenced, second, healthy := r.pod("fenced", "100m", "500m"), r.pod("second", "100m", "500m"), r.healthyBeside()
		l.look(healthy)
		for _, pod := range []*corev1.Pod{fenced, second, healthy} {
			r.publish(pod, "0.000", app(2000))
		}
		l.look(healthy)
		if tries == 0 || tries > 2 {
			t.Errorf("%d tries, want no more than what was under way", tries)
		}
		r.limitIs(healthy, 2000, "of a pod of another namespace")
		before, _ := l.Gate.Closed()
		r.must(l.Gate.Check(t.Context()))
		if reason, why := l.Gate.Closed(); before != "" || reason != "" {
			t.Errorf("the gate is closed for %q, after a check for %q: %s", before, reason, why)
		}
		tried := tries
		l.pass(7 * time.Second) // the back-off of the pods is over, the breaker is open
		if s := l.look(fenced).Status; tries != tried || !strings.Contains(s.Message, r.namespace) {
			t.Errorf("%d more tries; status %+v, want its namespace named", tries-tried, s)
		}
		l.resizes.Resizer = l.counter
		l.pass(time.Minute)
		l.settles(fenced, v1alpha1.PhaseApplied, reasons.Settled)
		l.settles(second, v1alpha1.PhaseApplied, reasons.Settled)
	})
}

// TestAPanicCostsItsPod: where the decision about a pod panics, or its resize does, the others go on, and the
// panic is counted and logged with its stack.
func TestAPanicCostsItsPod(t *testing.T) {
	withController(t, func(t *testing.T, r *rig, l *life) {
		l.jitter = exactly
		bad, good := l.newPod("bad"), l.newPod("good")
		tries := 0
		l.resizes.Resizer = fakeResizer{Resizer: l.counter, apply: func(pod *corev1.Pod, next func() podresize.Result) podresize.Result {
			if pod.Name == bad.Name {
				tries++
				panic("poison")
			}
			return next()
		}}
		for _, pod := range []*corev1.Pod{bad, good} {
			r.publish(pod, "0.000", app(2000))
		}
		for range 5 {
			l.look(good)
		}
		r.limitIs(good, 2000, "of the other pod")
		if log := r.log.String(); tries != 1 || !strings.Contains(log, "poison") || !strings.Contains(log, "pacing_test.go") {
			t.Errorf("%d tries, want one and then a wait; log:\n%s", tries, log)
		}
		if !strings.Contains(r.audit.String(), `"pod":"bad"`) {
			t.Error("no audit line about the attempt")
		}
		panics := func() float64 { return testutil.ToFloat64(l.Metrics.Panics) }
		if panics() != 1 {
			t.Errorf("%v panics are counted, want 1", panics())
		}
		l.resizes.Resizer = l.counter
		l.pass(time.Minute)
		l.settles(bad, v1alpha1.PhaseApplied, reasons.Settled)

		look := &snapshot{pods: []*podState{{pod: bad}, {pod: good}}}
		look.pods[0].facts.UID = "bad"
		tasks := l.Reconciler.decide(t.Context(), look, func(_ lifecycle.Config, _ lifecycle.Node, pods []lifecycle.Pod, _ time.Time) (tasks []lifecycle.Task) {
			for i, p := range pods {
				if p.UID == "bad" {
					panic("poison")
				}
				tasks = append(tasks, lifecycle.Task{Pod: i})
			}
			return tasks
		})
		if len(tasks) != 1 || tasks[0].pod != good || look.recheckAt.IsZero() || !slices.Equal(look.leftOut, []types.UID{bad.UID}) || panics() != 2 {
			t.Errorf("%d tasks and %v panics, want the task of the other pod", len(tasks), panics())
		}
	})
}
