package lifecycle

import (
	"testing"
	"time"

	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
)

// TestDates: a date of another clock counts from the look at which it was new.
func TestDates(t *testing.T) {
	const s = time.Second
	var d Dates
	at := func(look, date, want time.Duration) {
		t.Helper()
		got := noon.Add(date)
		if d.Translate(noon.Add(look), &got); !got.Equal(noon.Add(want)) {
			t.Errorf("at %v the date %v counts as %v, want %v", look, date, got.Sub(noon), want)
		}
	}
	at(0, -180*s, -180*s)      // before the first look
	at(10*s, -180*s, -180*s)   // the same event
	at(20*s, 15*s, 15*s)       // one in between
	at(30*s, 18*s, 18*s)       // reported late
	at(40*s, -140*s, 30*s)     // of a clock that is behind
	at(50*s, -140*s, 30*s)     // which stays
	at(60*s, 240*s, 60*s)      // of one that is ahead
	at(70*s, 240*s, 60*s)      // which stays, too
	d.Looked(noon.Add(80 * s)) // a look that showed nothing new
	at(90*s, -100*s, 80*s)
	var none time.Time
	if d.Translate(noon, &none); !none.IsZero() {
		t.Errorf("no date became %v", none)
	}
}

// TestBoundedStatus: dates that are yet to come end now, and no wait is longer than one that begins now.
func TestBoundedStatus(t *testing.T) {
	cfg := DefaultConfig()
	hour := noon.Add(time.Hour)
	s := Status{LastApplied: hour, LastDecrease: hour, RetryAt: hour.Add(30 * time.Hour), LastIncrease: noon.Add(time.Second)}
	got := s.Bounded(cfg, noon)
	if !got.LastApplied.Equal(noon) || !got.LastDecrease.Equal(noon) || !got.LastIncrease.Equal(s.LastIncrease) ||
		!got.RetryAt.Equal(noon.Add(cfg.BackoffMax)) || !got.LastHarmfulDecrease.IsZero() {
		t.Errorf("bounded to %+v", got)
	}
	s.Reason, s.RetryAt = reasons.ConflictingWriter, noon.Add(20*time.Hour)
	if got := s.Bounded(cfg, noon); !got.RetryAt.Equal(s.RetryAt) {
		t.Errorf("a hold-off of a day ends at %v", got.RetryAt)
	}
}
