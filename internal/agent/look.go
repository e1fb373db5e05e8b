package agent

import (
	"runtime/debug"
	"time"

	"github.com/mbcas/mbcas/internal/round"
)

// leastLookTime is the time before a round in which there is no look. A look takes less than that even
// where a cgroup blocks its reader, so no round waits for one.
const leastLookTime = 110 * time.Millisecond

// untilNext is the time until the next look or, if that comes first, the next round.
func (l *roundLoop) untilNext(round time.Time) time.Duration {
	untilRound, untilLook := time.Until(round), l.cfg.LookInterval
	if len(l.watch) == 0 || untilLook == 0 || untilLook+leastLookTime > untilRound {
		return untilRound
	}
	return untilLook
}

// watchPods has the looks until the next round read these pods.
func (l *roundLoop) watchPods(s *snapshot, watch []int) {
	l.watched, l.watch = s, l.watch[:0]
	for _, i := range watch {
		l.watch = append(l.watch, s.Targets[i])
	}
}

// look raises pods between two rounds. A panic costs the looks until the next round: a look replaces what
// its state holds, so the state of the round is whole.
func (l *roundLoop) look(now time.Time) {
	if len(l.watch) == 0 {
		return
	}
	defer func() {
		if r := recover(); r != nil {
			l.watch = nil
			l.metrics.looks.panicked.Inc()
			l.log.Error("look panicked, so limits are raised by rounds alone until the next one", "panic", r,
				"stack", string(debug.Stack()))
		}
	}()
	state, out := round.Look(l.cfg, l.state, l.host.Look(l.watch))
	l.state = state
	if len(out.Decisions) == 0 {
		l.metrics.looks.completed.Inc()
		return
	}
	l.metrics.looks.raised.Inc()
	l.raise(&roundResult{At: now, Snapshot: l.watched, Output: out})
}
