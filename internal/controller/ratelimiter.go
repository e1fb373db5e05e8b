package controller

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
)

// rateLimiter bounds the resizes per second of the installation. A pod without a token gets a turn,
// as far from the turn before as the rate says, and is not looked at before it: however many pods
// wait, looks are no more frequent than resizes. A turn reserves no token, so a turn that is not
// used costs nothing.
type rateLimiter struct {
	rate, burst float64 // tokens per second, and at most

	mu     sync.Mutex
	tokens float64
	filled time.Time // when tokens was worked out
	turns  *rate.Limiter
	waits  map[types.UID]turn
	pruned time.Time
}

// turn is when a pod that waits since then may ask again.
type turn struct{ since, at time.Time }

// leastTurn is the least time until a turn, so that a short burst beyond the budget is not followed
// by looks in no time.
const leastTurn = time.Second

// turnKept is how long after its turn a pod that does not ask is remembered. A node that takes so
// long to be looked at is overloaded.
const turnKept = time.Minute

func newRateLimiter(perSecond float64, burst int) *rateLimiter {
	return &rateLimiter{
		rate: perSecond, burst: float64(burst), tokens: float64(burst),
		turns: rate.NewLimiter(rate.Limit(perSecond), 1), waits: map[types.UID]turn{},
	}
}

// waiting is the turn of a pod that is still to come; false where the pod may ask for a token.
func (l *rateLimiter) waiting(pod types.UID, now time.Time) (turn, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.waits[pod]
	return t, now.Before(t.at)
}

// take takes the token for a resize of the pod; where there is none it gives the pod a turn, and
// returns false.
func (l *rateLimiter) take(pod types.UID, now time.Time) (turn, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.prune(now)
	l.fill(now)
	if l.tokens >= 1 {
		l.tokens--
		delete(l.waits, pod)
		return turn{}, true
	}
	wait := time.Duration((1 - l.tokens) / l.rate * float64(time.Second))
	t := l.waits[pod]
	if t.since.IsZero() {
		t.since = now
	}
	t.at = now.Add(max(leastTurn, wait) + l.turns.ReserveN(now, 1).DelayFrom(now))
	l.waits[pod] = t
	return t, false
}

// giveBack returns the token of a resize that changed nothing.
func (l *rateLimiter) giveBack() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tokens = min(l.burst, l.tokens+1)
}

func (l *rateLimiter) fill(now time.Time) {
	if !l.filled.IsZero() && now.After(l.filled) {
		l.tokens = min(l.burst, l.tokens+l.rate*now.Sub(l.filled).Seconds())
	}
	if now.After(l.filled) {
		l.filled = now
	}
}

// prune drops, now and then, pods that did not ask again.
func (l *rateLimiter) prune(now time.Time) {
	if now.Sub(l.pruned) < turnKept {
		return
	}
	for uid, t := range l.waits {
		if now.Sub(t.at) >= turnKept {
			delete(l.waits, uid)
		}
	}
	l.pruned = now
}
