package liveness

import (
	"sync"
	"time"

	"github.com/mbcas/mbcas/internal/lifecycle"
)

// tracker remembers when each node's agent was last seen to renew its Lease. Only changes of a Lease
// count, seen on our own clock: the clocks of nodes may be wrong. The zero value has seen none.
type tracker struct {
	mu     sync.Mutex
	nodes  map[string]agent
	outage Outage
	counts time.Time // when the agents were last counted
}

type agent struct {
	renewed   time.Time // what the Lease says; zero: there was none
	seen      time.Time // on our clock
	confirmed bool      // by the API server itself, that it was not renewed since
	// proven: the watch once was as new as the API server itself, or showed a date that is near our own
	// clock. So a change that it shows later is a renewal, and not one from before our start.
	proven bool
	live   time.Time // when the API server itself showed a renewal that the watch does not show
	node   lifecycle.Node
	known  bool // node is
}

// observe takes in the renewal time of a node's Lease (zero: never renewed) as seen at now, and
// returns how old the renewal before it was. grace is the age of a Lease that was never seen to be
// renewed.
func (t *tracker) observe(node string, renewed, now time.Time, grace time.Duration) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	last, known := t.nodes[node]
	before := now.Sub(last.seen)
	switch {
	case !known:
		// At first sight the Lease has to speak for itself. One that claims to be fresh is believed
		// until it is late; any other has to be renewed first.
		last.seen, before = Believed(renewed, now, grace), grace
		last.proven = credible(renewed, now, grace)
	case !renewed.IsZero() && !renewed.Equal(last.renewed):
		last.confirmed, last.live = false, time.Time{}
		switch {
		case last.proven:
			last.seen = now
		case credible(renewed, now, grace):
			last.seen, last.proven = Believed(renewed, now, grace), true
		}
	}
	if !renewed.IsZero() {
		last.renewed = renewed
	}
	if t.nodes == nil {
		t.nodes = map[string]agent{}
	}
	t.nodes[node] = last
	return before
}

// Believed is the time, on our own clock, of an event that another clock dates at claimed and that
// was not observed. A date that is not fresh, or far ahead, is as old as it takes to be stale.
func Believed(claimed, now time.Time, grace time.Duration) time.Time {
	if credible(claimed, now, grace) {
		return now.Add(-max(now.Sub(claimed), 0))
	}
	return now.Add(-grace)
}

// credible says whether a date of another clock is fresh, and not far ahead.
func credible(claimed, now time.Time, grace time.Duration) bool {
	age := now.Sub(claimed)
	return age > -grace && age < grace
}

// age is the time since the agent was last seen to renew its Lease.
func (t *tracker) age(node string, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return now.Sub(t.nodes[node].seen)
}

// isConfirmed says whether the API server itself was asked since the last renewal.
func (t *tracker) isConfirmed(node string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.nodes[node].confirmed
}

// isProven says whether a change of the Lease counts as a renewal.
func (t *tracker) isProven(node string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.nodes[node].proven
}

// isLate says whether the API server itself showed a renewal not long ago that the watch does not show.
func (t *tracker) isLate(node string, now time.Time, long time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	live := t.nodes[node].live
	return !live.IsZero() && now.Sub(live) < long
}

// confirm takes in what the API server itself says of a Lease. It returns false for a renewal that
// the watch did not show. By that one the agent responds, and it confirms no decision: what the cache shows of
// the decisions may be as old.
func (t *tracker) confirm(node string, renewed, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.nodes[node]
	if !renewed.IsZero() && !renewed.Equal(a.renewed) {
		a.live = now
	} else {
		a.confirmed, a.proven = true, true
	}
	t.nodes[node] = a
	return a.confirmed
}

// see takes in the state of a node.
func (t *tracker) see(name string, n lifecycle.Node) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a, ok := t.nodes[name]; ok {
		a.node, a.known = n, true
		t.nodes[name] = a
	}
}

func (t *tracker) count(now time.Time, after time.Duration) (agents Counts) {
	for _, a := range t.nodes {
		if a.renewed.IsZero() || a.known && (!a.node.Ready || a.node.Unknown) {
			continue
		}
		agents.Total++
		a.node.LeaseAge = now.Sub(a.seen)
		if a.node.Unresponsive(now) >= after {
			agents.Unresponsive++
		}
	}
	return agents
}

// last is what the agents were when they were last counted.
func (t *tracker) last() Outage {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.outage
}

// nodeCount is how many nodes are known.
func (t *tracker) nodeCount() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.nodes)
}

// drop forgets a node that does not exist any more.
func (t *tracker) drop(node string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.nodes, node)
}
