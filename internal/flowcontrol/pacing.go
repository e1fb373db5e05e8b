// Package flowcontrol decides when resizes may be made: a gate for the whole cluster, a rate for the
// installation, and a breaker for each namespace whose admission webhooks do not answer.
package flowcontrol

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mbcas/mbcas/internal/lifecycle"
)

// RateLimiter bounds the resizes per second of the installation. A pod without a token gets a turn,
// as far from the turn before as the rate says, and is not looked at before it: however many pods
// wait, looks are no more frequent than resizes. A turn reserves no token, so a turn that is not
// used costs nothing.
type RateLimiter struct {
	interval time.Duration // between two tokens
	burst    time.Duration // in which all tokens come

	mu       sync.Mutex
	full     time.Time // when all tokens are there
	lastTurn time.Time
	waits    map[types.UID]Turn
	pruned   time.Time
}

// Turn is when a pod that waits since then may ask again.
type Turn struct{ Since, At time.Time }

// leastTurn is the least time until a turn, so that a short burst beyond the budget is not followed
// by looks in no time.
const leastTurn = time.Second

// turnKept is how long after its turn a pod that does not ask is remembered. A node that takes so
// long to be looked at is overloaded.
const turnKept = time.Minute

func NewRateLimiter(perSecond float64, burst int) *RateLimiter {
	interval := time.Duration(float64(time.Second) / perSecond)
	return &RateLimiter{interval: interval, burst: time.Duration(burst) * interval, waits: map[types.UID]Turn{}}
}

// Waiting is the turn of a pod that is still to come; false where the pod may ask for a token.
func (l *RateLimiter) Waiting(pod types.UID, now time.Time) (Turn, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.waits[pod]
	return t, now.Before(t.At)
}

// Take takes the token for a resize of the pod; where there is none it gives the pod a turn, and
// returns false.
func (l *RateLimiter) Take(pod types.UID, now time.Time) (Turn, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.pruned) >= turnKept { // pods that did not ask again are forgotten
		maps.DeleteFunc(l.waits, func(_ types.UID, t Turn) bool { return now.Sub(t.At) >= turnKept })
		l.pruned = now
	}
	if now.After(l.full) {
		l.full = now
	}
	wait := l.full.Add(l.interval - l.burst).Sub(now)
	if wait <= 0 {
		l.full = l.full.Add(l.interval)
		delete(l.waits, pod)
		return Turn{}, true
	}
	t := l.waits[pod]
	if t.Since.IsZero() {
		t.Since = now
	}
	t.At = now.Add(max(leastTurn, wait))
	if next := l.lastTurn.Add(l.interval); next.After(now) {
		t.At = t.At.Add(next.Sub(now))
		l.lastTurn = next
	} else {
		l.lastTurn = now
	}
	l.waits[pod] = t
	return t, false
}

// GiveBack returns the token of a resize that changed nothing.
func (l *RateLimiter) GiveBack() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.full = l.full.Add(-l.interval)
}

// Breakers keep resizes away from namespaces whose admission webhooks do not answer. Each attempt
// there holds a worker for the whole timeout of the request, and the workers are those of all
// nodes.
type Breakers struct {
	jitter func(time.Duration) time.Duration

	mu         sync.Mutex
	namespaces map[string]*breaker
}

// breaker is that of one namespace. It opens after breakAfter failures in a row. From then on one
// pod at a time probes the namespace, each probe twice as long after the one before, until one is
// answered.
type breaker struct {
	failures int
	opened   int       // how often it opened since the last answer
	retryAt  time.Time // no resize before; zero: closed
	probing  bool
}

// breakAfter failures in a row open a breaker. Fewer take one lost packet for a dead webhook; more
// let it hold more workers.
const breakAfter = 3

// The first probe is made after probeAfter, then the wait doubles up to probeAfterMost. A probe
// that nothing is heard of counts as lost after probeLost.
const (
	probeAfter     = 10 * time.Second
	probeAfterMost = 5 * time.Minute
	probeLost      = time.Minute
)

func NewBreakers(jitter func(time.Duration) time.Duration) *Breakers {
	return &Breakers{jitter: jitter, namespaces: map[string]*breaker{}}
}

// Admit says whether a resize of the namespace may be made now, and if not, until when none is tried.
// A resize that is about to be made probes: of several one is admitted as the probe.
func (b *Breakers) Admit(namespace string, now time.Time, probes bool) (until time.Time, admitted bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.namespaces[namespace]
	switch {
	case n == nil || n.retryAt.IsZero():
	case now.Before(n.retryAt):
		return n.retryAt, false
	case probes:
		n.probing, n.retryAt = true, now.Add(probeLost)
	}
	return time.Time{}, true
}

// Answered closes the breaker of a namespace whose webhooks answered.
func (b *Breakers) Answered(namespace string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.namespaces, namespace)
}

// Failed counts a resize that no webhook, or no server, answered. Requests that were on their way
// when the breaker opened do not count.
func (b *Breakers) Failed(namespace string, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.namespaces[namespace]
	if n == nil {
		n = &breaker{}
		b.namespaces[namespace] = n
	}
	if n.failures++; n.failures < breakAfter || !n.retryAt.IsZero() && !n.probing {
		return
	}
	n.retryAt, n.probing = now.Add(b.jitter(lifecycle.Doubled(probeAfter, probeAfterMost, n.opened))), false
	n.opened++
}
