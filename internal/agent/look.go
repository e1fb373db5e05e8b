package agent

import (
	"runtime/debug"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/record"
	"github.com/mbcas/mbcas/internal/round"
)

// leastLookTime is the time before a round in which there is no look. A look takes less than that even
// where a cgroup blocks its reader, so no round waits for one.
const leastLookTime = 110 * time.Millisecond

// untilNext is the time until the next look, the next join or, if that comes first, the next round.
func (l *roundLoop) untilNext(round time.Time) time.Duration {
	untilRound, untilLook := time.Until(round), max(0, time.Until(l.lookedAt.Add(l.cfg.LookInterval)))
	if len(l.watch) == 0 || l.cfg.LookInterval == 0 {
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

// look raises pods between two rounds, and revokes raises.
func (l *roundLoop) look(now time.Time) {
	if len(l.watch) == 0 {
		return
	}
	l.lookedAt = now
	defer l.recoverLook()
	sample := l.host.Look(l.watch)
	state, out := round.Look(l.cfg, l.state, sample)
	l.state = state
	l.record.Look(record.Look{At: now, Sample: sample}, &out)
	l.publishBetweenRounds(now, out)
}

// A round takes rates from two samples of all pods, and counts samples, so one before its time would learn from too
// little. A pod that starts between two rounds is taken in alone instead: it is read at once, and then by looks.

// joinInterval is the least time between two such reads.
const joinInterval = 250 * time.Millisecond

// untilJoin is the time until new pods may be taken in; longer than a round where there are none.
func (l *roundLoop) untilJoin() time.Duration {
	if !l.arrived {
		return 2 * l.interval
	}
	return max(0, time.Until(l.joinedAt.Add(joinInterval)))
}

// join takes in the pods of the newest snapshot that were not in the last round. A panic costs the looks
// until the next round.
func (l *roundLoop) join(now time.Time) {
	l.arrived = false
	s := l.snapshot()
	if l.watched == nil || l.host == nil || s == nil || s.NotReady != "" || !l.state.TakesIn() {
		return
	}
	defer l.recoverLook()
	extended, first := l.watched.withNewPods(s, l.faulty)
	if extended == nil {
		return
	}
	l.joinedAt = now
	sample := l.host.Find(extended.Targets[first:])
	state, out := round.Join(l.cfg, l.state, extended.Pods[first:], sample)
	l.state = state
	l.record.Join(record.Join{At: now, Pods: extended.Pods[first:], Sample: sample}, namesOf(extended.Refs[first:]), &out)
	l.watchPods(extended, out.Watch)
	l.publishBetweenRounds(now, out)
}

// publishBetweenRounds queues what a look or a join has decided.
func (l *roundLoop) publishBetweenRounds(now time.Time, out round.Output) {
	if len(out.Decisions) == 0 {
		l.metrics.looks.completed.Inc()
		return
	}
	l.metrics.looks.raised.Inc()
	l.raise(&roundResult{At: now, Snapshot: l.watched, Output: out})
}

// recoverLook is deferred: after a panic there are no looks until the next round. A look changes in place only
// what that round makes anew.
func (l *roundLoop) recoverLook() {
	if r := recover(); r != nil {
		l.watch, l.watched = nil, nil
		l.record.Panicked(time.Now())
		l.metrics.looks.panicked.Inc()
		l.log.Error("look panicked, so there is none until the next round", "panic", r, "stack", string(debug.Stack()))
	}
}

// withNewPods is the snapshot of a round with the managed pods of a newer one appended that run a container
// that this one does not have, or that were not managed; first is the first of them. Nil: there are none.
func (s *snapshot) withNewPods(newer *snapshot, without map[types.UID]time.Time) (extended *snapshot, first int) {
	at := make(map[types.UID]int, len(s.Refs))
	for i, ref := range s.Refs {
		at[ref.UID] = i
	}
	for i, ref := range newer.Refs {
		_, faulty := without[ref.UID]
		was, known := at[ref.UID]
		if newer.Pods[i].Unmanaged || faulty || known && !s.Pods[was].Unmanaged && !newContainer(s.Targets[was], newer.Targets[i]) {
			continue
		}
		if extended == nil {
			c := *s
			c.Refs, c.Pods, c.Targets = slices.Clip(s.Refs), slices.Clip(s.Pods), slices.Clip(s.Targets)
			extended = &c
		}
		extended.Refs = append(extended.Refs, ref)
		extended.Pods = append(extended.Pods, newer.Pods[i])
		extended.Targets = append(extended.Targets, newer.Targets[i])
	}
	return extended, len(s.Refs)
}

// newContainer says whether a container runs that did not before.
func newContainer(before, now kernel.Target) bool {
	return slices.ContainsFunc(now.Containers, func(id string) bool {
		return id != "" && !slices.Contains(before.Containers, id)
	})
}
