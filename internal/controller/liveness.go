package controller

import (
	"sync"
	"time"
)

// liveness remembers when each node's agent was last seen to renew its Lease. Only changes of a
// Lease count, seen on our own clock: the clocks of nodes may be wrong. The zero value has seen none.
type liveness struct {
	mu    sync.Mutex
	nodes map[string]renewal
}

type renewal struct {
	renewed time.Time // what the Lease says
	seen    time.Time // on our clock
}

// observe takes in the renewal time of a node's Lease (zero: never renewed) as seen at now, and
// returns how old the renewal before it was. grace is the age of a Lease that was never seen to be
// renewed.
func (l *liveness) observe(node string, renewed, now time.Time, grace time.Duration) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	last, known := l.nodes[node]
	before := now.Sub(last.seen)
	switch {
	case !known:
		// At first sight the Lease has to speak for itself. One that claims to be fresh is believed
		// until it is late; any other has to be renewed first.
		last.seen, before = believed(renewed, now, grace), grace
	case !renewed.IsZero() && !renewed.Equal(last.renewed):
		last.seen = now
	}
	if !renewed.IsZero() {
		last.renewed = renewed
	}
	if l.nodes == nil {
		l.nodes = map[string]renewal{}
	}
	l.nodes[node] = last
	return before
}

// believed is the time, on our own clock, of an event that another clock dates at claimed and that
// was not observed. A date that is not fresh, or far ahead, is as old as it takes to be stale.
func believed(claimed, now time.Time, grace time.Duration) time.Time {
	if age := now.Sub(claimed); age > -grace && age < grace {
		return now.Add(-max(age, 0))
	}
	return now.Add(-grace)
}

// age is the time since the agent was last seen to renew its Lease.
func (l *liveness) age(node string, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return now.Sub(l.nodes[node].seen)
}

// drop forgets a node that does not exist any more.
func (l *liveness) drop(node string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.nodes, node)
}
