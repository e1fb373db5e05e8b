package flowcontrol

import "time"

// window is how many resizes of prompt namespaces may be under way at the same time: all workers or, while the
// answers of most namespaces are late, fewer. A busy API server carries out no more per second if more are
// under way. They only wait inside of it, where an increase of a throttled pod is behind whatever was sent
// before it. (Additive increase, multiplicative decrease, as in TCP: RFC 5681)
//
// Namespaces are counted, not answers: the webhooks of a few must not take workers from the others.
type window struct {
	size, most int
	answers    int            // since the last change
	count      map[string]int // of each namespace since then: late answers less the others
	shrunkAt   time.Time
}

const (
	// lateAfter is from when on a resize is late: its dry run and its resize, 5 to 50 ms each where the API server has
	// CPU to spare. Lower leaves a slow API server unused; higher has urgent resizes wait behind more others.
	lateAfter = 500 * time.Millisecond
	// leastWindow is the smallest window. Lower makes prompt namespaces wait for each other.
	leastWindow = 8
	// enoughAnswers, of enoughNamespaces, judge the window at least. Fewer take a pause, or the webhook of a
	// tenant, for a busy API server.
	enoughAnswers    = 16
	enoughNamespaces = 4
	// windowStep is by how much the window grows. Higher has more resizes wait inside of a busy API server before it
	// shrinks again.
	windowStep = 2
	// smallFor is for how long the window stays small after it has shrunk. Longer keeps workers unused that an API
	// server has room for again; shorter fills a busy one each time.
	smallFor = time.Minute
)

func newWindow(workers int) window {
	return window{size: workers, most: workers, count: map[string]int{}}
}

// now is the size now.
func (w *window) now(now time.Time) int {
	if w.size < w.most && now.Sub(w.shrunkAt) >= smallFor {
		w.size = w.most
		w.begin()
	}
	return w.size
}

// begin forgets the answers so far.
func (w *window) begin() {
	w.answers = 0
	clear(w.count)
}

// answer takes in how long a resize of a namespace was under way.
func (w *window) answer(namespace string, took time.Duration, now time.Time) {
	if w.answers++; took >= lateAfter {
		w.count[namespace]++
	} else {
		w.count[namespace]--
	}
	if w.answers < max(enoughAnswers, w.now(now)) {
		return
	}
	late := 0
	for _, n := range w.count {
		if n > 0 {
			late++
		}
	}
	switch {
	case len(w.count) >= enoughNamespaces && 2*late > len(w.count):
		w.size, w.shrunkAt = max(min(leastWindow, w.most), w.size/2), now
	case w.size < w.most:
		w.size = min(w.most, w.size+windowStep)
	}
	w.begin()
}
