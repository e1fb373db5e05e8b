package controller

import (
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// liveness remembers when each node's agent was last seen to renew its Lease. Only changes of a
// Lease count, seen on our own clock: the clocks of nodes may be wrong.
type liveness struct {
	mu    sync.Mutex
	nodes map[string]renewal
}

type renewal struct {
	renewed time.Time // what the Lease says
	seen    time.Time // on our clock
}

func newLiveness() *liveness { return &liveness{nodes: map[string]renewal{}} }

// observe takes in a Lease as seen at now, and returns how old its renewal was before. grace is the
// age of a Lease that was never seen to be renewed.
func (l *liveness) observe(node string, lease *coordinationv1.Lease, now time.Time, grace time.Duration) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	last, known := l.nodes[node]
	before := now.Sub(last.seen)
	if !known {
		// At first sight the Lease has to speak for itself. One that claims to be fresh is believed
		// until it is late; any other has to be renewed first.
		last.seen = now.Add(-grace)
		before = grace
		if lease != nil && lease.Spec.RenewTime != nil {
			last.seen = believed(lease.Spec.RenewTime.Time, now, grace)
		}
	}
	if lease != nil && lease.Spec.RenewTime != nil {
		renewed := lease.Spec.RenewTime.Time
		if known && !renewed.Equal(last.renewed) {
			last.seen = now
		}
		last.renewed = renewed
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
