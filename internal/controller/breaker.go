package controller

import (
	"sync"
	"time"

	"github.com/mbcas/mbcas/internal/lifecycle"
)

// breakers keep resizes away from namespaces whose admission webhooks do not answer. Each attempt
// there holds a worker for the whole timeout of the request, and the workers are those of all
// nodes.
type breakers struct {
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

func newBreakers(jitter func(time.Duration) time.Duration) *breakers {
	return &breakers{jitter: jitter, namespaces: map[string]*breaker{}}
}

// open says until when no resize of the namespace is tried; false where one may be.
func (b *breakers) open(namespace string, now time.Time) (until time.Time, open bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := b.namespaces[namespace]; n != nil && now.Before(n.retryAt) {
		return n.retryAt, true
	}
	return time.Time{}, false
}

// admit is open for a resize that is about to be made: of several it admits one as the probe.
func (b *breakers) admit(namespace string, now time.Time) (until time.Time, admitted bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.namespaces[namespace]
	switch {
	case n == nil || n.retryAt.IsZero():
		return time.Time{}, true
	case now.Before(n.retryAt):
		return n.retryAt, false
	}
	n.probing, n.retryAt = true, now.Add(probeLost)
	return time.Time{}, true
}

// answered closes the breaker of a namespace whose webhooks answered.
func (b *breakers) answered(namespace string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.namespaces, namespace)
}

// failed counts a resize that no webhook, or no server, answered. Requests that were on their way
// when the breaker opened do not count.
func (b *breakers) failed(namespace string, now time.Time) {
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
