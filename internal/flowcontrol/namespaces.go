package flowcontrol

import (
	"maps"
	"slices"
	"time"
)

// namespace is what the queue knows of the resizes of a namespace.
type namespace struct {
	pace     pace
	sent     int       // under way
	slowAt   time.Time // the last answer that was slow
	answered time.Time // the last of all
}

// pace says how soon the resizes of a namespace are answered. What is not answered holds a worker, so
// namespaces whose answers are slow, or not known, have one worker each, and few together.
type pace int

const (
	untried pace = iota
	prompt
	slow

	paces = 3
)

// slowAfter is from when on an answer is slow. Lower takes a busy API server for a webhook that hangs;
// higher lets webhooks hold more workers.
const slowAfter = 2 * time.Second

// slowKept is for how long after a slow answer the next prompt one does not count: a webhook may hang
// for some pods and not for others.
const slowKept = time.Minute

// namespaceKept is how long a namespace is remembered without a resize.
const namespaceKept = 10 * time.Minute

// may says whether namespaces of that pace may have one more resize under way. Half of the workers is
// for prompt ones alone, and of the rest half for untried ones.
func (q *Queue[T]) may(p pace) bool {
	switch late, workers := q.sentAt[slow], q.cfg.Workers; {
	case p == prompt:
		return true
	case p == slow && late >= max(1, workers/4):
		return false
	default:
		return late+q.sentAt[untried] < max(1, workers/2)
	}
}

// isFull says whether a namespace has all the workers that it may have: of those that no other one has,
// the same share as of all workers. So while many namespaces begin to hang at the same time, some
// are left for the others.
func (q *Queue[T]) isFull(n *namespace) bool {
	if n.pace != prompt {
		return n.sent > 0
	}
	free := q.cfg.Workers - q.sent + n.sent
	return n.sent >= max(1, q.cfg.NamespaceWorkers*free/q.cfg.Workers)
}

// listFull gives namespaces a turn that may have more workers, as others have ended.
func (q *Queue[T]) listFull() {
	for _, name := range slices.Sorted(maps.Keys(q.full)) {
		if !q.isFull(q.namespace(name)) {
			delete(q.full, name)
			for p := range q.classes {
				q.list(Priority(p), name)
			}
		}
	}
}

func (q *Queue[T]) namespace(name string) *namespace {
	n := q.namespaces[name]
	if n == nil {
		n = &namespace{}
		q.namespaces[name] = n
	}
	return n
}

// begin counts a resize of a namespace that begins, and end one that ends.
func (q *Queue[T]) begin(n *namespace) {
	q.sent++
	n.sent++
	q.sentAt[n.pace]++
}

func (q *Queue[T]) end(n *namespace, took time.Duration, tried bool, now time.Time) {
	q.sent--
	n.sent--
	q.sentAt[n.pace]--
	is := n.pace
	switch n.answered = now; {
	case took >= slowAfter:
		is, n.slowAt = slow, now
	case tried && now.Sub(n.slowAt) >= slowKept:
		is = prompt
	}
	q.sentAt[n.pace] -= n.sent
	q.sentAt[is] += n.sent
	n.pace = is
}

// forgetNamespaces forgets namespaces without a resize for long.
func (q *Queue[T]) forgetNamespaces(now time.Time) {
	for name, n := range q.namespaces {
		waits := false
		for p := range q.classes {
			f := q.classes[p].flows[name]
			waits = waits || f != nil && len(f.tickets) > 0
		}
		if !waits && n.sent == 0 && now.Sub(n.answered) >= namespaceKept {
			delete(q.namespaces, name)
		}
	}
}
