package liveness

import (
	"sync"
	"time"
)

// seldom bounds log lines about one trouble: one at once, and then one each logInterval while it lasts.
type seldom struct {
	mu   sync.Mutex
	last time.Time // of a line
	more int       // lines that were left out since
}

// logInterval is the least time from one line to the next. Shorter says sooner that the trouble is still
// there; longer keeps logs smaller.
const logInterval = 5 * time.Minute

// due says whether a line is to be written, and how many were left out since the last one.
func (s *seldom) due(now time.Time) (more int, due bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if since := now.Sub(s.last); since >= 0 && since < logInterval {
		s.more++
		return 0, false
	}
	more, s.last, s.more = s.more, now, 0
	return more, true
}
