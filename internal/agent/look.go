package agent

import (
	"time"

	"github.com/mbcas/mbcas/internal/round"
)

// leastLookTime is the time before a round in which no look is worth its cost.
const leastLookTime = 50 * time.Millisecond

// untilNext is the time until the next look, the next join or, if that comes first, the next round.
func (l *roundLoop) untilNext(round time.Time) time.Duration {
	untilRound, untilLook := time.Until(round), l.cfg.LookInterval
	if len(l.watch) == 0 || untilLook == 0 {
		untilLook = untilRound
	}
	if untilLook = min(untilLook, l.untilJoin()); untilLook+leastLookTime > untilRound {
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

// look raises pods between two rounds.
func (l *roundLoop) look(now time.Time) {
	defer l.recoverLook()
	state, out := round.Look(l.cfg, l.state, l.host.Look(l.watch))
	l.state = state
	l.raiseBetweenRounds(now, out)
}
