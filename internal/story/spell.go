package story

import (
	"errors"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/benefit"
	"github.com/mbcas/mbcas/internal/record"
	"github.com/mbcas/mbcas/internal/replay"
)

// spell is a time in which a pod's limit in force stayed.
type spell struct {
	from time.Time
	was  cpu.Milli // before; 0: not recorded
	// until is the first round with another limit, and to that limit; without one the last round with the pod, and 0.
	until time.Time
	to    cpu.Milli
}

// spellOf is that around a time. It reads what rounds were given, from the minute of the time in both directions, and runs
// none. It ends where the recording has a gap, as between an incident that is kept and the last half hour: what changed there is
// not known.
func spellOf(rec *record.Recording, uid string, at time.Time, limit cpu.Milli) (spell, error) {
	s := spell{from: at, until: at}
	i := minuteOf(rec, at)
	for j := i; j >= 0 && s.was == 0 && (j == i || follows(rec, j+1)); j-- {
		m := spell{}
		err := limits(rec.Minutes[j], uid, func(t time.Time, l cpu.Milli) bool {
			switch {
			case t.After(at):
				return false
			case l != limit:
				m = spell{was: l}
			case m.from.IsZero():
				m.from = t
			}
			return true
		})
		if err != nil {
			return s, err
		}
		if m.from.IsZero() && m.was == 0 { // the pod came later
			break
		}
		if s.was = m.was; !m.from.IsZero() {
			s.from = m.from
		}
	}
	for j := max(i, 0); j < len(rec.Minutes) && s.to == 0 && (j <= i || follows(rec, j)); j++ {
		err := limits(rec.Minutes[j], uid, func(t time.Time, l cpu.Milli) bool {
			if !t.After(at) {
				return true
			}
			if s.until = t; l != limit {
				s.to = l
			}
			return s.to == 0
		})
		if err != nil {
			return s, err
		}
	}
	return s, nil
}

// follows says whether a minute of a recording is the next after the one before it there.
func follows(rec *record.Recording, minute int) bool {
	return minute > 0 && rec.Minutes[minute-1].Seq+1 == rec.Minutes[minute].Seq
}

// limits calls visit for the limit of a pod in each round of a minute, until it returns false.
func limits(m *record.Minute, uid string, visit func(time.Time, cpu.Milli) bool) error {
	done := errors.New("done")
	err := replay.Read(m, func(*record.Keyframe) error { return nil }, func(e *record.Event) error {
		if e.Round == nil {
			return nil
		}
		for i := range e.Round.Pods {
			if p := &e.Round.Pods[i]; p.UID == uid && !visit(e.At(), benefit.LimitOf(*p)) {
				return done
			}
		}
		return nil
	})
	if errors.Is(err, done) {
		return nil
	}
	return err
}
