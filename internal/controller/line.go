package controller

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
)

// line is where resizes wait for which the installation's rate leaves no budget. Each has a turn, as far from the one before as the rate
// says, and is not looked at before it: so however many wait, looks are no more frequent than resizes. A turn is no
// promise: what remains in the budget is anybody's, so that a turn that is not used costs nothing.
type line struct {
	mu     sync.Mutex
	budget *rate.Limiter
	turns  *rate.Limiter
	places map[types.UID]place
	pruned time.Time
}

// place is that of one pod in the line.
type place struct{ since, turn time.Time }

// leastTurn is the least time until a turn, so that a short burst beyond the budget is not followed by looks in no time.
const leastTurn = time.Second

// lineKept is how long after its turn a pod that did not come keeps its place. A node that takes so long to be looked at is overloaded.
const lineKept = time.Minute

func newLine(r float64, burst int) *line {
	return &line{budget: rate.NewLimiter(rate.Limit(r), burst), turns: rate.NewLimiter(rate.Limit(r), 1), places: map[types.UID]place{}}
}

// wait is the place of a pod whose turn has not come; false where it may ask for budget.
func (l *line) wait(pod types.UID, now time.Time) (place, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.places[pod]
	return p, now.Before(p.turn)
}

// take takes the budget for a resize of the pod; where there is none it gives the pod a place in the line, and returns false.
func (l *line) take(pod types.UID, now time.Time) (place, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.prune(now)
	ask := l.budget.ReserveN(now, 1)
	wait := ask.DelayFrom(now)
	if wait <= 0 {
		delete(l.places, pod)
		return place{}, true
	}
	ask.CancelAt(now)
	p := l.places[pod]
	if p.since.IsZero() {
		p.since = now
	}
	p.turn = now.Add(max(leastTurn, wait) + l.turns.ReserveN(now, 1).DelayFrom(now))
	l.places[pod] = p
	return p, false
}

// prune forgets, now and then, pods that have not come.
func (l *line) prune(now time.Time) {
	if now.Sub(l.pruned) < lineKept {
		return
	}
	for uid, p := range l.places {
		if now.Sub(p.turn) >= lineKept {
			delete(l.places, uid)
		}
	}
	l.pruned = now
}
