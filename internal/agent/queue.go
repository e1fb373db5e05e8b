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

// offer is a decision that is worth publishing.
type offer struct {
	Ref      ref
	At       time.Time // of the round
	Node     round.NodeDecision
	Decision round.Decision
	Weights  demand.Weights // of the pod's budget
	Raise    bool           // some container gets more than was published before
}

// offersOf are the decisions of a round to publish, raises first.
func offersOf(r *played) []offer {
	var list []offer
	i := 0
	for _, d := range r.Out.Decisions { // in the order of the view, but not one for each of its pods
		for string(r.View.Refs[i].UID) != d.UID {
			i++
		}
		if !d.Publish {
			continue
		}
		list = append(list, offer{Ref: r.View.Refs[i], At: r.At, Node: r.Out.Node, Decision: d, Weights: r.View.Pods[i].Weights, Raise: raises(d, r.View.Pods[i].Published)})
	}
	slices.SortStableFunc(list, func(a, b offer) int {
		if a.Raise == b.Raise {
			return 0
		}
		if a.Raise {
			return -1
		}
		return 1
	})
	return list
}

func raises(d round.Decision, before round.Published) bool {
	return slices.ContainsFunc(d.Containers, func(c round.ContainerLimit) bool { return c.Limit > before.Limits[c.Name] })
}

// queue holds the decisions of the newest round until they are written. Each round replaces those of the
// one before, so that nothing old is ever written after something new, and a write that
// failed needs no retry of its own: the next round offers the pod again.
type queue struct {
	oldest time.Duration // a decision older than this is dropped

	mu       sync.Mutex
	pending  []offer
	inFlight map[types.UID]bool  // pods
	rests    map[types.UID]pause // pods that are to be left alone
	all      pause               // for all: the API server is in trouble
	wake     chan struct{}       // holds one: pending is new
}

// pause is the time to wait after failures in a row.
type pause struct {
	until time.Time
	long  time.Duration
}

func newQueue(oldest time.Duration) *queue {
	return &queue{oldest: oldest, inFlight: make(map[types.UID]bool), rests: make(map[types.UID]pause), wake: make(chan struct{}, 1)}
}

// replace takes the decisions of a round in place of all earlier ones. It never blocks on the network.
func (q *queue) replace(list []offer, now time.Time) {
	q.mu.Lock()
	q.pending = list
	maps.DeleteFunc(q.rests, func(_ types.UID, r pause) bool { return now.Sub(r.until) > longestRest })
	q.mu.Unlock()
	if len(list) > 0 {
		q.signal()
	}
}

func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// next is the decision to write now; those that are too old are dropped and counted.
func (q *queue) next(now time.Time) (o offer, stale int, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if now.Before(q.all.until) {
		return offer{}, 0, false
	}
	before := len(q.pending)
	q.pending = slices.DeleteFunc(q.pending, func(o offer) bool { return now.Sub(o.At) > q.oldest })
	stale = before - len(q.pending)
	for i, o := range q.pending {
		if q.inFlight[o.Ref.UID] || now.Before(q.rests[o.Ref.UID].until) {
			continue
		}
		q.pending = slices.Delete(q.pending, i, i+1)
		q.inFlight[o.Ref.UID] = true
		return o, stale, true
	}
	return offer{}, stale, false
}

// done says what came of a write.
func (q *queue) done(o offer, out outcome, now time.Time) {
	q.mu.Lock()
	uid := o.Ref.UID
	delete(q.inFlight, uid)
	if out == written {
		// What was decided while this was under way says the same most of the time.
		q.pending = slices.DeleteFunc(q.pending, func(p offer) bool {
			return p.Ref.UID == uid && sameLimits(p.Decision, o.Decision)
		})
	}
	first, scope := out.rest()
	switch scope {
	case restNobody:
		delete(q.rests, uid)
	case restPod:
		q.rests[uid] = q.rests[uid].longer(first, longestRest, now)
	case restAll:
		q.rests[uid] = q.rests[uid].longer(first, longestOutage, now) // so that another one is tried first
		if !now.Before(q.all.until) {                                 // several may have been under way
			q.all = q.all.longer(first, longestOutage, now)
		}
	}
	if scope != restAll {
		q.all = pause{}
	}
	more := len(q.pending) > 0
	q.mu.Unlock()
	if more {
		q.signal()
	}
}

const (
	longestRest   = 5 * time.Minute  // of one pod
	longestOutage = 15 * time.Second // of all: an API server that is back is used soon
)

// longer doubles the pause, with up to a quarter off so that nodes do not come back all at once.
func (p pause) longer(first, longest time.Duration, now time.Time) pause {
	p.long = min(max(first, 2*p.long), longest)
	p.until = now.Add(p.long - rand.N(p.long/4+1))
	return p
}

func sameLimits(a, b round.Decision) bool {
	return slices.Equal(a.Containers, b.Containers) && a.Limit == b.Limit
}
