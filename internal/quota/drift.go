package quota

import (
	"maps"
	"time"

	"github.com/mbcas/mbcas/cpu"
)

// Drift is what quotas count beyond the pods that the cache shows. A quota and its pods come from
// two caches, which never show the same moment: an increase is in the quota first, and a decrease in
// the pod. For that moment the difference looks like usage of other pods, and every share would come
// down, to come back at once. So only a difference that lasts for Lag counts.
type Drift struct {
	quotas map[string]*window
}

// window is what was seen of one quota: levels rise, each the least that was seen since its time.
type window struct {
	levels []level
	at     time.Time // of the last look
}

type level struct {
	least cpu.Milli
	since time.Time
}

// driftKept is how long a quota is remembered that is not looked at. A node with managed pods is
// looked at every minute.
const driftKept = 10 * time.Minute

// Lasting notes the difference that a quota shows now, and returns the least since Lag ago. again is
// when that may rise though nothing changes; zero: it will not.
func (d *Drift) Lasting(quota string, seen cpu.Milli, now time.Time) (least cpu.Milli, again time.Time) {
	if d.quotas == nil {
		d.quotas = map[string]*window{}
	}
	maps.DeleteFunc(d.quotas, func(_ string, w *window) bool { return now.Sub(w.at) >= driftKept })
	w := d.quotas[quota]
	if w == nil {
		w = &window{}
		d.quotas[quota] = w
	}
	w.at = now
	last := level{max(0, seen), now}
	for n := len(w.levels); n > 0 && w.levels[n-1].least >= last.least; n-- {
		last.since = w.levels[n-1].since
		w.levels = w.levels[:n-1]
	}
	w.levels = append(w.levels, last)
	for len(w.levels) > 1 && now.Sub(w.levels[1].since) >= Lag {
		w.levels = w.levels[1:]
	}
	if len(w.levels) > 1 {
		again = w.levels[1].since.Add(Lag)
	}
	return w.levels[0].least, again
}
