package controller

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
)

// exactly is a jitter of nothing.
func exactly(d time.Duration) time.Duration { return d }

// TestBreaker: a namespace whose webhooks do not answer gets one probe at a time, ever more seldom,
// and is open to all again with the first answer.
func TestBreaker(t *testing.T) {
	b, now := newBreakers(exactly), noon
	for i := range breakAfter + 5 { // all are on their way when the third fails
		if _, ok := b.admit("sick", now, true); !ok && i < breakAfter {
			t.Fatalf("closed after %d failures", i)
		}
		b.failed("sick", now)
	}
	wait := probeAfter
	for range 8 {
		if until, admitted := b.admit("sick", now, false); admitted || until.Sub(now) != wait {
			t.Fatalf("open until %v, want for %v", until, wait)
		}
		if _, ok := b.admit("healthy", now, true); !ok {
			t.Fatal("another namespace has to wait")
		}
		now = now.Add(wait)
		if _, ok := b.admit("sick", now, true); !ok {
			t.Fatalf("no probe after %v", wait)
		}
		if _, ok := b.admit("sick", now, true); ok {
			t.Fatal("two probes at the same time")
		}
		b.failed("sick", now)
		wait = min(2*wait, probeAfterMost)
	}
	now = now.Add(wait)
	b.admit("sick", now, true)
	now = now.Add(probeLost)
	if _, ok := b.admit("sick", now, true); !ok {
		t.Error("no probe after one that was lost")
	}
	b.answered("sick")
	for range 2 {
		if _, ok := b.admit("sick", now, true); !ok {
			t.Error("closed though the last probe was answered")
		}
	}
}

// hanging answers no resize of the pods in sick before the time of a request is over, and carries
// the others out.
type hanging struct {
	Resizer
	life  *life
	sick  string // their namespace
	tried map[string]int
}

func (h *hanging) Apply(ctx context.Context, pod *corev1.Pod, m actuator.Move) podresize.Result {
	h.tried[pod.Name]++
	if pod.Namespace != h.sick {
		return h.Resizer.Apply(ctx, pod, m)
	}
	h.life.ahead += podresize.Timeout
	return podresize.Result{Outcome: podresize.Unknown, Message: "no answer"}
}

func (h *hanging) DryRun(context.Context, *corev1.Pod, actuator.Move) podresize.Result {
	return podresize.Result{Outcome: podresize.Accepted}
}

// TestHangingWebhooks: pods whose resizes hang hold the worker of their node for little more than
// one of them takes, and are tried seldom; a healthy pod of the node gets its resize all the same.
func TestHangingWebhooks(t *testing.T) {
	r := newRig(t)
	l := r.live(0, false)
	l.jitter, l.breakers = exactly, newBreakers(exactly)
	h := &hanging{l.counter, l, r.namespace, map[string]int{}}
	l.Resize = h
	pods := make([]*corev1.Pod, 5)
	for i := range pods {
		pods[i] = r.pod(fmt.Sprintf("sick-%d", i), "100m", "500m")
	}
	other := *r
	other.namespace = r.Namespace(t)
	r.mode(other.namespace, "enforce")
	healthy := other.pod("healthy", "100m", "500m")
	l.look(healthy)
	for _, pod := range append(pods, healthy) {
		r.publish(pod, "0.000", app(2000))
	}
	step := func(d time.Duration) {
		l.ahead += d
		r.hearAt(time.Now().Add(l.ahead))
		for _, pod := range append(pods, healthy) {
			r.confirm(pod)
		}
		before := l.ahead
		l.look(healthy)
		if took := l.ahead - before; took > resizesWithin+podresize.Timeout {
			t.Errorf("one look took %v", took)
		}
	}
	for range 3 {
		step(time.Second)
	}
	if got := r.limit(healthy); got != 2000 {
		t.Errorf("the healthy pod has %v after three looks, want 2000m", got)
	}
	for start := l.ahead; l.ahead < start+10*time.Minute; {
		step(20 * time.Second)
	}
	tries := 0
	for _, pod := range pods {
		tries += h.tried[pod.Name]
	}
	if tries > 12 {
		t.Errorf("%d attempts in ten minutes, want some for the breaker and a probe now and then", tries)
	}
	r.clean()
	other.clean()
}

// TestServerTroubleBacksOff: a pod that the API server cannot answer is tried once in a look, then
// after a wait that doubles.
func TestServerTroubleBacksOff(t *testing.T) {
	r := newRig(t)
	for name, result := range map[string]podresize.Result{
		"unknown":     {Outcome: podresize.Unknown, Message: "no answer"},
		"unavailable": {Outcome: podresize.Unavailable, Message: "failed calling webhook", WebhookFailed: true},
		"not-yet":     {Outcome: podresize.NotYet},
		"throttled":   {Outcome: podresize.Unavailable, Message: "too many requests"},
	} {
		t.Run(name, func(t *testing.T) {
			r := r.in(t)
			l := r.live(0, false)
			l.jitter, l.breakers = exactly, newBreakers(exactly)
			pod := r.pod(name, "100m", "500m")
			l.settles(pod, v1alpha1.PhasePending, reasons.NoDecisionYet)
			tries := 0
			l.Resize = counting{answer{result}, &tries}
			r.publish(pod, "0.000", app(2000))
			wait := r.config.ServerBackoff
			for want := 1; want <= 3; want++ {
				l.look(pod)
				l.ahead += wait - time.Second
				l.look(pod)
				if tries != want {
					t.Fatalf("%d attempts within %v, want %d", tries, wait, want)
				}
				l.ahead += 2 * time.Second
				wait *= 2
			}
			r.hear()
			r.must(r.Client.Delete(r.Context(), pod))
		})
	}
}

// counting counts resizes that are tried.
type counting struct {
	answer
	n *int
}

func (c counting) Apply(ctx context.Context, pod *corev1.Pod, m actuator.Move) podresize.Result {
	*c.n++
	return c.answer.Apply(ctx, pod, m)
}

func (c counting) DryRun(ctx context.Context, pod *corev1.Pod, m actuator.Move) podresize.Result {
	return podresize.Result{Outcome: podresize.Accepted}
}

// TestATokenIsGivenBack: a resize that changes nothing takes nothing from the budget of the others.
func TestATokenIsGivenBack(t *testing.T) {
	l := newRateLimiter(0.1, 1)
	for range 5 {
		if _, ok := l.take("a", noon); !ok {
			t.Fatal("no token")
		}
		l.giveBack()
	}
	if _, ok := l.take("a", noon); !ok {
		t.Fatal("no token")
	}
	if _, ok := l.take("b", noon); ok {
		t.Error("two tokens where there is one")
	}
	for o, want := range map[podresize.Outcome]bool{podresize.Accepted: true, podresize.Unknown: true, podresize.WouldMutate: true} {
		if got := (podresize.Result{Outcome: o, Pod: &corev1.Pod{}}).MayHaveChanged(); got != want {
			t.Errorf("%v may have changed the pod: %v", o, got)
		}
	}
	for o := podresize.Conflict; o <= podresize.NoDryRun; o++ {
		if (podresize.Result{Outcome: o}).MayHaveChanged() != (o == podresize.Unknown) {
			t.Errorf("%v: what was done?", o)
		}
	}
}
