package flowcontrol

import "time"

// bucket holds tokens, of which one comes every so often, up to a burst.
type bucket struct {
	perSecond, burst float64
	used             float64 // tokens that are missing, at
	at               time.Time
}

// newBucket holds what so many seconds refill.
func newBucket(perSecond, burst, seconds float64) bucket {
	return bucket{perSecond: perSecond, burst: burst, used: max(0, burst-perSecond*seconds)}
}

// set changes the rate and the burst. A larger burst adds no token, and a smaller one takes its share of
// them.
func (b *bucket) set(perSecond, burst float64, now time.Time) {
	b.refill(now)
	held := (b.burst - b.used) * min(1, burst/b.burst)
	b.perSecond, b.burst, b.used = perSecond, burst, burst-held
}

// drain leaves no more than a second refills.
func (b *bucket) drain(now time.Time) {
	b.refill(now)
	b.used = max(b.used, b.burst-b.perSecond)
}

// refill brings the bucket up to now.
func (b *bucket) refill(now time.Time) {
	if now.After(b.at) {
		if !b.at.IsZero() {
			b.used = max(0, b.used-b.perSecond*now.Sub(b.at).Seconds())
		}
		b.at = now
	}
}

// wait is how long it takes until there is a token beside those that are kept for others; 0: there is one.
func (b *bucket) wait(now time.Time, kept float64) time.Duration {
	b.refill(now)
	if missing := b.used + 1 + kept - b.burst; missing > 1e-9 {
		return max(time.Duration(missing/b.perSecond*float64(time.Second)), time.Nanosecond)
	}
	return 0
}

// take takes a token, which there has to be.
func (b *bucket) take() { b.used++ }

// giveBack returns the token of a resize that changed nothing.
func (b *bucket) giveBack() { b.used = max(0, b.used-1) }

// full says whether no token is missing.
func (b *bucket) full(now time.Time) bool {
	b.refill(now)
	return b.used == 0
}
