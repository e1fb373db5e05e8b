package flowcontrol

import (
	"strings"
	"testing"
	"time"

	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// exactly is a jitter of nothing.
func exactly(d time.Duration) time.Duration { return d }

// TestBreaker: a namespace whose webhooks do not answer gets one probe at a time, ever more seldom,
// and is open to all again with the first answer.
func TestBreaker(t *testing.T) {
	b, now := NewBreakers(exactly), noon
	admits := func(namespace string) bool {
		_, _, ok := b.Admit(namespace, now, true)
		return ok
	}
	for i := range breakAfter + 5 { // all are in flight when the third fails
		if !admits("sick") && i < breakAfter {
			t.Fatalf("closed after %d failures", i)
		}
		b.Failed("sick", "", now)
	}
	wait := probeAfter
	for range 8 {
		if why, until, admitted := b.Admit("sick", now, false); admitted || until.Sub(now) != wait ||
			!strings.Contains(why.Detail(), "namespace sick") {
			t.Fatalf("open until %v, want for %v: %s", until, wait, why.Detail())
		}
		if !admits("healthy") {
			t.Fatal("another namespace has to wait")
		}
		now = now.Add(wait)
		if !admits("sick") || admits("sick") {
			t.Fatalf("no probe, or two at the same time, after %v", wait)
		}
		b.Failed("sick", "", now)
		wait = min(2*wait, probeAfterMost)
	}
	now = now.Add(wait)
	admits("sick")
	now = now.Add(probeLost)
	if !admits("sick") {
		t.Error("no probe after one that was lost")
	}
	b.Answered("sick")
	for range 2 {
		if !admits("sick") {
			t.Error("closed though the last probe was answered")
		}
	}
}

// TestBreakerOfAWebhook: where the API server names the webhook, the namespaces in which it failed
// share one probe, and the first answer opens all of them.
func TestBreakerOfAWebhook(t *testing.T) {
	b, now := NewBreakers(exactly), noon
	waits := func(namespace string) bool {
		_, _, admitted := b.Admit(namespace, now, false)
		return !admitted
	}
	for range breakAfter {
		b.Failed("a", "guard.example.com", now)
	}
	if !waits("a") || waits("b") {
		t.Fatal("the namespace in which it failed does not wait, or another does")
	}
	b.Failed("b", "guard.example.com", now) // one is enough: the webhook is known to fail
	if why, until, admitted := b.Admit("b", now, false); admitted || until.Sub(now) != probeAfter ||
		!strings.Contains(why.Detail(), "guard.example.com") {
		t.Fatalf("the second namespace waits until %v: %s", until, why.Detail())
	}
	now = now.Add(probeAfter)
	if _, _, admitted := b.Admit("a", now, true); !admitted || !waits("b") {
		t.Error("no probe, or one of each namespace")
	}
	b.Answered("a")
	if waits("a") || waits("b") || len(b.of)+len(b.breakers) != 0 {
		t.Errorf("still closed after an answer: %v", b.of)
	}
}

// TestRefusedInANamespace: where no resize is possible in a namespace, one refusal opens its breaker,
// and no other. A breaker of a namespace that is gone is forgotten.
func TestRefusedInANamespace(t *testing.T) {
	b, now := NewBreakers(exactly), noon
	b.Refused("fenced", reasons.PermissionMissing, now)
	if why, _, admitted := b.Admit("fenced", now, false); admitted || why.Reason != reasons.PermissionMissing {
		t.Errorf("admitted %v, cause %+v", admitted, why)
	}
	if _, _, admitted := b.Admit("open", now, false); !admitted {
		t.Error("another namespace waits")
	}
	b.Failed("open", "", now.Add(breakerKept))
	if len(b.breakers) != 1 || len(b.of) != 1 {
		t.Errorf("%d breakers are kept, want the new one", len(b.breakers))
	}
}
