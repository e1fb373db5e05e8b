package controller

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mbcas/mbcas/cpu"
)

// excess is what quotas count beyond the pods that our cache shows. A quota and its pods come from two caches, which never show the
// same moment: a raise is in the quota first, and a decrease in the pod. For that moment the difference looks like somebody else's use,
// and every share would come down, to come back at once. So only an excess that lasts for quotaLag counts.
type excess struct {
	mu     sync.Mutex
	quotas map[quotaID]*seenExcess
	pruned time.Time
}

// quotaID is one ResourceQuota; one that was made anew is another.
type quotaID struct {
	namespace, name string
	uid             types.UID
}

// seenExcess is what was seen of one quota: levels rise, each the least that was seen since its time.
type seenExcess struct {
	levels []level
	at     time.Time // of the last look
}

type level struct {
	least cpu.Milli
	since time.Time
}

func newExcess() *excess { return &excess{quotas: map[quotaID]*seenExcess{}} }

// excessKept is how long a quota is remembered that nobody looks at. A node with pods of ours is looked at every minute.
const excessKept = 10 * time.Minute

// lasting notes the excess that is seen now, and returns the least since quotaLag ago. again is when that may rise though
// nothing changes; zero: it will not.
func (e *excess) lasting(id quotaID, seen cpu.Milli, now time.Time) (least cpu.Milli, again time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if now.Sub(e.pruned) >= excessKept {
		for k, s := range e.quotas {
			if now.Sub(s.at) >= excessKept {
				delete(e.quotas, k)
			}
		}
		e.pruned = now
	}
	s := e.quotas[id]
	if s == nil {
		s = &seenExcess{}
		e.quotas[id] = s
	}
	s.at = now
	last := level{max(0, seen), now}
	for n := len(s.levels); n > 0 && s.levels[n-1].least >= last.least; n-- {
		last.since = s.levels[n-1].since
		s.levels = s.levels[:n-1]
	}
	s.levels = append(s.levels, last)
	for len(s.levels) > 1 && now.Sub(s.levels[1].since) >= quotaLag {
		s.levels = s.levels[1:]
	}
	if len(s.levels) > 1 {
		again = s.levels[1].since.Add(quotaLag)
	}
	return s.levels[0].least, again
}
