package controller

import (
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// silence remembers when each node's agent was last heard. Only changes of a Lease count, seen on our own
// clock: the clocks of nodes may be wrong.
type silence struct {
	mu    sync.Mutex
	heard map[string]heard
}

type heard struct {
	renewed time.Time // what the Lease says
	at      time.Time // on our clock
}

func newSilence() *silence { return &silence{heard: map[string]heard{}} }

// note takes in a Lease as seen at now, and says how long the agent had been silent before.
// grace is what a Lease counts as old that nobody was seen to renew.
func (s *silence) note(node string, lease *coordinationv1.Lease, now time.Time, grace time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	last, known := s.heard[node]
	before := now.Sub(last.at)
	if !known {
		// At first sight the Lease has to speak for itself. One that claims to be fresh is believed until
		// it is late; any other has to be renewed first.
		last.at = now.Add(-grace)
		before = grace
		if lease != nil && lease.Spec.RenewTime != nil {
			last.at = believed(lease.Spec.RenewTime.Time, now, grace)
		}
	}
	if lease != nil && lease.Spec.RenewTime != nil {
		renewed := lease.Spec.RenewTime.Time
		if known && !renewed.Equal(last.renewed) {
			last.at = now
		}
		last.renewed = renewed
	}
	s.heard[node] = last
	return before
}

// believed is when something happened, on our own clock, that another clock dates at claimed and that nobody
// saw happen. A date that is not fresh, or far ahead, is as old as it takes to be taken for stale.
func believed(claimed, now time.Time, grace time.Duration) time.Time {
	if age := now.Sub(claimed); age > -grace && age < grace {
		return now.Add(-max(age, 0))
	}
	return now.Add(-grace)
}

// since is how long the agent has been silent.
func (s *silence) since(node string, now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return now.Sub(s.heard[node].at)
}

// forget drops a node that does not exist any more.
func (s *silence) forget(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.heard, node)
}
