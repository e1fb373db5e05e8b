package disagreement

import (
	"time"

	"github.com/mbcas/mbcas/cpu"
)

// Raise is what is remembered of a pod's limit above its declared one. That part takes CPU that declared limits would
// leave to others. When they need it, the raise is revoked, and the pod waits for its next one. The zero value is that of
// a pod that was not raised.
type Raise struct {
	limit cpu.Milli     // in the last round
	rose  bool          // above the declared one while no price capped a pod
	ago   time.Duration // since then
	wait  time.Duration // after the last revocation
	left  time.Duration // of that
	calm  time.Duration // since that ended
}

const (
	// recent is for how long a raise is recent: the pod may have taken idle CPU a moment before others need it. Longer
	// takes more from bursts of services; shorter leaves more to a pod that begins to spin.
	recent = 5 * time.Second
	// leastWait and longestWait bound the wait for the next raise. It doubles with each revocation that follows within
	// one more wait, or a minute, of its end. Longer is steadier; shorter leaves less CPU idle.
	leastWait, longestWait, forgotten = 10 * time.Second, 5 * time.Minute, time.Minute
)

// Passed is what is remembered after a time. It counts times of rounds, which no clock that jumps makes longer.
func (r Raise) Passed(d time.Duration) Raise {
	r.ago += d
	if r.left > 0 {
		r.left = max(0, r.left-d)
	} else {
		r.calm += d
	}
	return r
}

// Next adds the limit of a round.
func (r Raise) Next(limit, declared cpu.Milli, priced bool) Raise {
	if r.limit > 0 && limit > max(r.limit, declared) && !priced {
		r.rose, r.ago = true, 0
	}
	r.limit = limit
	return r
}

// Recent says whether the limit has risen lately.
func (r Raise) Recent() bool { return r.rose && r.ago <= recent }

// RevokedFor is for how long the pod is not raised above its declared limit; 0: it may be.
func (r Raise) RevokedFor() time.Duration { return r.left }

// Revoke begins a wait.
func (r Raise) Revoke() Raise {
	if r.wait == 0 || r.calm > max(r.wait, forgotten) {
		r.wait = leastWait
	} else {
		r.wait = min(2*r.wait, longestWait)
	}
	r.left, r.calm = r.wait, 0
	return r
}
