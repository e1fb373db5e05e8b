package controller

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/actuator/podresize"
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
	for wait, want := range map[time.Duration]reasons.Reason{unreportedWait: reasons.Settled, unreportedWait + time.Second: reasons.RateLimited} {
		waits := &task{Task: lifecycle.Task{Status: stored}, podState: &podState{facts: lifecycle.Pod{Status: stored}}}
		waits.awaitToken(flowcontrol.Turn{Since: noon, At: noon.Add(wait)})
		if waits.Status.Reason != want || !waits.RecheckAt.Equal(noon.Add(wait)) {
			t.Errorf("a wait of %v: %+v, another look at %v", wait, waits.Status, waits.RecheckAt)
		}
	}
	failed := &task{Task: lifecycle.Task{Purpose: lifecycle.Revert}, podState: &podState{}}
	failed.Report(lifecycle.PhaseFailed, reasons.ResizeDeferred, "")
	if failed.awaitToken(flowcontrol.Turn{Since: noon, At: noon.Add(time.Hour)}); failed.Status.Reason != reasons.ResizeDeferred {
		t.Errorf("the failure is not reported any more: %+v", failed.Status)
	}
}

// TestAwaitsDecreases: a pod that waits for decreases is not looked at before one of them has its turn.
func TestAwaitsDecreases(t *testing.T) {
	move := func(to cpu.Milli, turn time.Time) *task {
		m := &actuator.Move{Changes: []actuator.Change{{Container: "app", From: 500, To: to}}}
		return &task{Task: lifecycle.Task{Move: m}, turn: turn}
	}
	for name, c := range map[string]struct {
		other *task
		want  time.Duration
	}{
		"a decrease waits for a token": {move(400, noon.Add(time.Minute)), time.Minute},
		"a decrease was just made":     {move(400, time.Time{}), time.Second},
		"no decrease":                  {move(600, noon.Add(time.Minute)), time.Second},
	} {
		waits := &task{Task: lifecycle.Task{RecheckAt: noon.Add(time.Second)}}
		waits.Status.Reason = reasons.WaitingForDecreases
		settled := &task{Task: lifecycle.Task{RecheckAt: noon.Add(time.Second)}}
		awaitDecreases([]*task{c.other}, []*task{waits, settled})
		if got := waits.RecheckAt.Sub(noon); got != c.want || settled.RecheckAt.Sub(noon) != time.Second {
			t.Errorf("%s: looked at in %v, want %v; another pod in %v", name, got, c.want, settled.RecheckAt.Sub(noon))
		}
	}
}

// exactly is a jitter of nothing.
func exactly(d time.Duration) time.Duration { return d }

// TestTokensOfOutcomes: a resize that changes nothing gives its token back.
func TestTokensOfOutcomes(t *testing.T) {
	for o := podresize.Accepted; o <= podresize.NoDryRun; o++ {
		if (podresize.Result{Outcome: o}).MayHaveChanged() != (o == podresize.Accepted || o == podresize.Unknown) {
			t.Errorf("%v gives its token back, or not", o)
		}
	}
}

// TestHangingWebhooks: pods whose resizes hang hold the worker of their node for little more than
// one of them takes, and are tried seldom; a healthy pod of the node gets its resize all the same.
func TestHangingWebhooks(t *testing.T) {
	r := newRig(t)
	l := r.live()
	l.jitter, l.breakers = exactly, flowcontrol.NewBreakers(exactly)
	tries := 0
	l.Resize = fakeResizer{apply: func(pod *corev1.Pod, next func() podresize.Result) podresize.Result {
		if pod.Namespace != r.namespace {
			return next()
		}
		tries++
		l.ahead += podresize.Timeout
		return podresize.Result{Outcome: podresize.Unknown, Message: "no answer"}
	}, dry: answer(podresize.Unknown).(fakeResizer).dry, Resizer: l.counter}
	var pods []*corev1.Pod
	for i := range 3 {
		pods = append(pods, r.pod(fmt.Sprintf("sick-%d", i), "100m", "500m"))
	}
	other := *r
	other.namespace = r.Namespace(t)
	r.mode(other.namespace, kube.ModeEnforce)
	healthy := other.pod("healthy", "100m", "500m")
	pods = append(pods, healthy)
	l.look(healthy)
	for _, pod := range pods {
		r.publish(pod, "0.000", app(2000))
	}
	step := func(d time.Duration) {
		l.pass(d)
		before := l.ahead
		l.look(healthy)
		if took := l.ahead - before; took > resizesWithin+podresize.Timeout {
			t.Errorf("one look took %v", took)
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
	r.must(r.Client.Delete(t.Context(), healthy))
}

// TestShortWaitIsNotWritten: a pod that waits some seconds for a token is not written to, and is
// resized in its turn.
func TestShortWaitIsNotWritten(t *testing.T) {
	r := newRig(t)
	r.config.Burst, r.config.Rate = 1, 1
	l := r.live()
	pods := []*corev1.Pod{l.newPod("a"), l.newPod("b"), l.newPod("c")}
	for _, pod := range pods {
		r.publish(pod, "0.000", app(2000))
	}
	before := len(l.writes())
	result, err := l.once()
	if err != nil || result.RequeueAfter < 500*time.Millisecond || result.RequeueAfter > 2*time.Second {
		t.Errorf("another look after %v (%v), want one at the next turn", result.RequeueAfter, err)
	}
	// The dry run, the resize and what became of it.
	if n := len(l.writes()) - before; n != 3 || l.counter.resizes() != 1 {
		t.Errorf("%d writes and %d resizes, want 3 and 1", n, l.counter.resizes())
	}
	if l.look(pods[0]); l.counter.resizes() > 1 {
		t.Error("resized before its turn")
	}
	for _, pod := range pods[1:] {
		if pa := r.stored(pod); pa.Status.Reason != string(reasons.NoDecisionYet) {
			t.Errorf("%s: %+v", pod.Name, pa.Status)
		}
	}
	l.until("all have had their turn", func() (bool, any) {
		l.ahead += 500 * time.Millisecond
		l.look(pods[0])
		return l.counter.resizes() == 3, l.counter.resizes()
	})
}
