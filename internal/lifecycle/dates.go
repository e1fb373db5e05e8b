package lifecycle

import "time"

// Dates puts the dates of another machine on our own clock, which may disagree by minutes: what was
// not there at one look of ours and is at the next happened in between, whatever its date says. The
// zero value has not looked yet. What it finds at its first look keeps its date, unless that is yet
// to come.
type Dates struct {
	looked time.Time
	ours   map[int64]time.Time // by the other date
}

// reportDelay is how long after an event a look may miss it. A date up to so much before the last
// look is believed. Longer misses events after a small difference of the clocks; shorter dates some
// later than they were.
const reportDelay = 2 * time.Second

// Translate puts the dates that are seen now on our own clock; zero stays.
func (d *Dates) Translate(now time.Time, dates ...*time.Time) {
	seen := make(map[int64]time.Time, len(dates))
	for _, date := range dates {
		if date.IsZero() {
			continue
		}
		key := date.UnixNano()
		ours, known := d.ours[key]
		if !known {
			ours = *date
			if !d.looked.IsZero() && ours.Before(d.looked.Add(-reportDelay)) {
				ours = d.looked
			}
			if ours.After(now) {
				ours = now
			}
		}
		seen[key], *date = ours, ours
	}
	d.ours, d.looked = seen, now
}

// Looked notes a look in between, at an object that showed nothing new.
func (d *Dates) Looked(now time.Time) { d.looked = now }

// LastLook is when it looked last; zero: never.
func (d *Dates) LastLook() time.Time { return d.looked }

// Dates are those that the kubelet and the API server give.
func (p *Pod) Dates() []*time.Time {
	dates := []*time.Time{&p.ReadySince, &p.UnreadySince}
	for i := range p.Containers {
		c := &p.Containers[i]
		dates = append(dates, &c.StartedAt, &c.FailedAt, &c.ResizedByOther)
		for j := range c.EndedAt {
			dates = append(dates, &c.EndedAt[j])
		}
	}
	return dates
}

// clockTolerance is by how much the clocks of two controllers may differ without a consequence.
const clockTolerance = 5 * time.Second

// Bounded is the status without dates that no controller with a right clock can have written: one
// whose clock was an hour ahead must not hold decreases off for an hour.
func (s Status) Bounded(cfg Config, now time.Time) Status {
	for _, date := range []*time.Time{
		&s.LastApplied, &s.LastIncrease, &s.LastDecrease, &s.RollbackWindowStart, &s.LastHarmfulDecrease, &s.LastExternalChange,
	} {
		if date.After(now.Add(clockTolerance)) {
			*date = now
		}
	}
	most := cfg.BackoffMax
	if yielded(s.Reason) {
		most = max(cfg.ExternalChangeHoldOff, cfg.RollbackHoldOff)
	}
	if latest := now.Add(max(most, cfg.Backoff)); s.RetryAt.After(latest.Add(clockTolerance)) {
		s.RetryAt = latest
	}
	return s
}
