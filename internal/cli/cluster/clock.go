package cluster

import (
	"net/http"
	"sync/atomic"
	"time"
)

// Clock tells how far the clock of the API server is ahead of this machine's, by the header Date of the last answer.
// The ages of Leases and decisions are those of clocks in the cluster: a machine whose clock is ten minutes late or
// early would see every agent as alive, or as silent. The zero value has seen no answer.
type Clock struct{ ahead atomic.Int64 }

// inaccuracy is the difference that may be none: the header counts whole seconds, and the answer takes its time.
const inaccuracy = 2 * time.Second

// Ahead is the difference; 0 while it may be none.
func (c *Clock) Ahead() time.Duration { return time.Duration(c.ahead.Load()) }

// Wrap notes the header of each answer.
func (c *Clock) Wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		answer, err := next.RoundTrip(r)
		if err == nil {
			c.note(answer.Header.Get("Date"), time.Now())
		}
		return answer, err
	})
}

// note takes the header of an answer in, which came then. A header that is missing or is no time says nothing.
func (c *Clock) note(header string, at time.Time) {
	date, err := http.ParseTime(header)
	if err != nil {
		return
	}
	ahead := date.Sub(at)
	if ahead.Abs() <= inaccuracy {
		ahead = 0
	}
	c.ahead.Store(int64(ahead))
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// ServerNow is the time by the clock of the API server, as the last answer told it.
func (a *Access) ServerNow() time.Time {
	if a.Ahead == nil {
		return a.Now()
	}
	return a.Now().Add(a.Ahead())
}
