package controller

import (
	"testing"
	"time"
)

// TestLiveness: a renewal counts, whatever time it claims; seeing the same again does not.
func TestLiveness(t *testing.T) {
	const grace = time.Minute
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		first time.Time
		want  time.Duration
	}{
		"no lease":                    {time.Time{}, grace},
		"renewed 10 s ago":            {now.Add(-10 * time.Second), 10 * time.Second},
		"renewed an hour ago":         {now.Add(-time.Hour), grace},
		"a clock that is ahead":       {now.Add(30 * time.Second), 0},
		"a clock that is far ahead":   {now.Add(time.Hour), grace},
		"renewed just a minute ago":   {now.Add(-grace), grace},
		"renewed almost a minute ago": {now.Add(-59 * time.Second), 59 * time.Second},
	} {
		var l liveness
		check := func(when string, after, want time.Duration) {
			if got := l.age("n1", now.Add(after)); got != want {
				t.Errorf("%s: age %v %s, want %v", name, got, when, want)
			}
		}
		l.observe("n1", c.first, now, grace)
		check("at first sight", 0, c.want)
		l.observe("n1", now.Add(-48*time.Hour), now.Add(time.Second), grace)
		check("a second after a renewal", 2*time.Second, time.Second)
		l.observe("n1", now.Add(-48*time.Hour), now.Add(time.Minute), grace)
		check("a minute after the last renewal", 61*time.Second, time.Minute)
	}
}
