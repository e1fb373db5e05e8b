package liveness

import (
	"fmt"
	"time"
)

// Counts are the agents that could renew their Leases, those of Ready nodes, and those of them that do not.
type Counts struct{ Total, Unresponsive int }

// outageFrom is the least number of unresponsive agents that is an outage. With fewer, the loss of
// each is its own: in a cluster of two nodes one lost agent is half of them.
const outageFrom = 3

// outage says whether so many agents are unresponsive that the cause is likely not theirs: a fault
// of the API server or of a release, or one of the controller, which no longer sees renewals. It
// begins above a third of the agents. One that has begun ends at a quarter, or at one, so that a
// single node does not begin and end it.
func (c Counts) outage(begun bool) bool {
	if begun {
		return c.Unresponsive > 1 && 4*c.Unresponsive > c.Total
	}
	return c.Unresponsive >= outageFrom && 3*c.Unresponsive > c.Total
}

// Outage is how many agents are unresponsive, and whether so many that nothing is restored.
type Outage struct {
	Counts
	Begun bool
	// At are the agents when it began.
	At Counts
}

// String says what an outage is, in words that do not change while it lasts.
func (o Outage) String() string {
	return fmt.Sprintf("%d of %d agents are unresponsive, so the cause is likely not theirs: limits stay as they are, "+
		"and no node is restored because of its agent", o.At.Unresponsive, o.At.Total)
}

// countInterval is how often agents are counted at most.
const countInterval = time.Second

// observeOutage counts the agents that have been unresponsive for some time, and says whether an outage has
// begun or ended with that.
func (t *tracker) observeOutage(now time.Time, after time.Duration) (o Outage, changed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if since := now.Sub(t.counts); since >= 0 && since < countInterval {
		return t.outage, false
	}
	t.counts = now
	t.outage.Counts = t.count(now, after)
	if begun := t.outage.outage(t.outage.Begun); begun != t.outage.Begun {
		t.outage.Begun, t.outage.At, changed = begun, t.outage.Counts, true
	}
	return t.outage, changed
}
