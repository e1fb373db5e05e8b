package agent

import (
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/round"
)

// publication is a decision to publish.
type publication struct {
	Ref      podRef
	At       time.Time // of the round
	Node     round.NodeDecision
	Decision round.Decision
	Weights  demand.Weights // of the pod's budget
}

// publicationsOf are the decisions of a round to publish. Increases, where the limit of some
// container is higher than the published one, come first.
func publicationsOf(r *roundResult) []publication {
	var increases, others []publication
	for _, d := range r.Output.Decisions {
		if !d.Publish {
			continue
		}
		pod := r.Snapshot.Pods[d.Pod]
		pub := publication{
			Ref: r.Snapshot.Refs[d.Pod], At: r.At, Node: r.Output.Node, Decision: d, Weights: pod.Weights,
		}
		if slices.ContainsFunc(d.Containers, func(c round.ContainerLimit) bool { return c.Limit > pod.Published.Limits[c.Name] }) {
			increases = append(increases, pub)
		} else {
			others = append(others, pub)
		}
	}
	return append(increases, others...)
}

// publishQueue has the decisions of the newest round until they are written. Each round replaces
// those of the round before, so that no older decision is ever written after a newer one, and a
// failed write needs no retry of its own: the next round publishes the pod again.
type publishQueue struct {
	maxAge time.Duration // an older decision is dropped

	mu       sync.Mutex
	pending  []publication
	inFlight map[types.UID]bool    // pods
	backoffs map[types.UID]backoff // of pods
	outage   backoff               // of all: the API server is unavailable
	wake     chan struct{}         // holds one value: pending has changed
}

// backoff is the wait after failures in a row.
type backoff struct {
	until    time.Time
	duration time.Duration
}

const (
	maxPodBackoff    = 5 * time.Minute
	maxOutageBackoff = 15 * time.Second // short, so that decisions are written soon after an outage
)

// doubled is the next wait, with a random part of up to a quarter less so that the agents of a
// cluster do not retry at once.
func (b backoff) doubled(first, longest time.Duration, now time.Time) backoff {
	b.duration = min(max(first, 2*b.duration), longest)
	b.until = now.Add(b.duration - rand.N(b.duration/4+1))
	return b
}

func newPublishQueue(maxAge time.Duration) *publishQueue {
	return &publishQueue{
		maxAge: maxAge, inFlight: make(map[types.UID]bool), backoffs: make(map[types.UID]backoff),
		wake: make(chan struct{}, 1),
	}
}

// replace queues the decisions of a round in place of all earlier ones. It never waits for a write.
func (q *publishQueue) replace(list []publication, now time.Time) {
	q.mu.Lock()
	q.pending = list
	maps.DeleteFunc(q.backoffs, func(_ types.UID, b backoff) bool { return now.Sub(b.until) > maxPodBackoff })
	q.mu.Unlock()
	if len(list) > 0 {
		q.signal()
	}
}

// add queues the decisions of a look before those of the round, in place of those about the same pods.
func (q *publishQueue) add(list []publication) {
	q.mu.Lock()
	q.pending = slices.DeleteFunc(q.pending, func(p publication) bool {
		return slices.ContainsFunc(list, func(newer publication) bool { return newer.Ref.UID == p.Ref.UID })
	})
	q.pending = append(slices.Clone(list), q.pending...)
	q.mu.Unlock()
	q.signal()
}

func (q *publishQueue) signal() { signal(q.wake) }

// next is the decision to write now; those that are too old are dropped and counted.
func (q *publishQueue) next(now time.Time) (pub publication, expired int, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if now.Before(q.outage.until) {
		return publication{}, 0, false
	}
	before := len(q.pending)
	q.pending = slices.DeleteFunc(q.pending, func(p publication) bool { return now.Sub(p.At) > q.maxAge })
	expired = before - len(q.pending)
	for i, p := range q.pending {
		if q.inFlight[p.Ref.UID] || now.Before(q.backoffs[p.Ref.UID].until) {
			continue
		}
		q.pending = slices.Delete(q.pending, i, i+1)
		q.inFlight[p.Ref.UID] = true
		return p, expired, true
	}
	return publication{}, expired, false
}

// done records the result of a write.
func (q *publishQueue) done(pub publication, result publishResult, now time.Time) {
	q.mu.Lock()
	uid := pub.Ref.UID
	delete(q.inFlight, uid)
	if result == written {
		// A decision made while this one was in flight mostly has the same limits.
		q.pending = slices.DeleteFunc(q.pending, func(p publication) bool {
			return p.Ref.UID == uid && sameLimits(p.Decision, pub.Decision)
		})
	}
	switch first := resultKinds[result].backoff; {
	case result == unavailable:
		q.backoffs[uid] = q.backoffs[uid].doubled(first, maxOutageBackoff, now) // so that another pod is tried first
		if !now.Before(q.outage.until) {                                        // several writes may fail at once
			q.outage = q.outage.doubled(first, maxOutageBackoff, now)
		}
	case first > 0:
		q.backoffs[uid], q.outage = q.backoffs[uid].doubled(first, maxPodBackoff, now), backoff{}
	default:
		delete(q.backoffs, uid)
		q.outage = backoff{}
	}
	more := len(q.pending) > 0
	q.mu.Unlock()
	if more {
		q.signal()
	}
}

func sameLimits(a, b round.Decision) bool {
	return slices.Equal(a.Containers, b.Containers) && a.Limit == b.Limit
}
