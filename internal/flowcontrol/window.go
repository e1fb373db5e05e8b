package flowcontrol

import "time"

// window is how many resizes may be under way at the same time: all workers or, while most answers are late,
// fewer. A busy API server carries out no more per second if more are under way. They only wait inside of it,
// where an increase of a throttled pod is behind whatever was sent before it. (Additive increase,
// multiplicative decrease, as in TCP: RFC 5681) Resizes of namespaces that are not prompt do not count against those
// of prompt ones: many may hang when the window shrinks.
type window struct {
	size, most    int
	answers, late int // since the last change
}

const (
	// lateAfter is from when on an answer is late. An API server with CPU to spare takes 5 to 50 ms; each urgent
	// resize waits for about that long behind those that are under way. Lower leaves a slow API server unused.
	lateAfter = 500 * time.Millisecond
	// leastWindow leaves half for namespaces that answer, beside those whose webhooks hang. Lower makes
	// one namespace wait for another.
	leastWindow = 8
	// enoughAnswers is by how many answers at least the window is judged. Lower takes a pause for a busy API server.
	enoughAnswers = 16
	// windowStep is by how much it grows. Higher has more wait inside of a busy API server before it shrinks again.
	windowStep = 2
)

func newWindow(workers int) window { return window{size: workers, most: workers} }

// answer takes in how long a resize was under way.
func (w *window) answer(took time.Duration) {
	if w.answers++; took >= lateAfter {
		w.late++
	}
	if w.answers < max(enoughAnswers, w.size) {
		return
	}
	switch {
	case 2*w.late > w.answers:
		w.size = max(min(leastWindow, w.most), w.size/2)
	case w.size < w.most:
		w.size = min(w.most, w.size+windowStep)
	}
	w.answers, w.late = 0, 0
}
