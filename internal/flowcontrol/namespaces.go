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
	idle     int       // of these, of priority Idle
	slowAt   time.Time // a slow answer; later ones of resizes that were under way then do not count
	answered time.Time // the last of all
}

// pace says how soon the resizes of a namespace are answered. What is not answered holds a worker, so
// namespaces whose answers are slow, or not known, have one worker each, and few together.
type pace int

const (
	unknown pace = iota // no answer yet, or the last one was slow and no other one in the minute before
	prompt
	slow

	paces = 3
)

// slowAfter is from when on an answer is slow. Lower takes a busy API server for a webhook that hangs;
// higher lets webhooks hold more workers.
const slowAfter = 2 * time.Second

// slowKept is within which time of a slow answer another one makes a namespace slow, and for how long after
// that prompt ones do not count: a webhook may hang for some pods and not for others.
const slowKept = time.Minute

// namespaceKept is how long a namespace is remembered without a resize.
const namespaceKept = 10 * time.Minute

// may says whether namespaces of that pace may have one more resize of a priority under way. Half of the
// workers is for prompt ones alone. Slow ones may have half of the others, and three quarters of them for
// urgent resizes; the rest is for those that are not known, as a tenant may have urgent ones without end.
// Of the share of Idle ones, half is for prompt namespaces alone.
func (q *Queue[T]) may(is pace, p Priority) bool {
	workers := q.window.size
	switch {
	case is == prompt:
		return q.sentAt[prompt] < workers
	case p == Idle && q.idleAt[slow]+q.idleAt[unknown] >= max(1, workers/idleShare/2):
		return false
	case is == slow && p != Urgent && q.sentAt[slow] >= max(1, workers/4):
		return false
	case is == slow && q.sentAt[slow] >= max(1, workers*3/8):
		return false
	}
	return q.sentAt[slow]+q.sentAt[unknown] < max(1, workers/2)
}

// isFull says whether a namespace has all the workers that it may have. One that is not prompt may have one,
// and one more for an urgent resize. For a prompt one the number falls as others use workers: of those
// that no other namespace uses, it may have NamespaceWorkers/Workers. So when many namespaces begin to
// hang at the same time, some workers are left.
func (q *Queue[T]) isFull(n *namespace, p Priority) bool {
	switch {
	case n.pace == prompt:
		free := min(q.cfg.Workers-q.sent, q.window.size-q.sentAt[prompt]) + n.sent
		return n.sent >= max(1, q.cfg.NamespaceWorkers*free/q.cfg.Workers)
	case p == Urgent:
		return n.sent > 1
	}
	return n.sent > 0
}

// listFull gives namespaces a turn that may have more workers, as others have ended.
func (q *Queue[T]) listFull() {
	for _, name := range slices.Sorted(maps.Keys(q.full)) {
		if !q.isFull(q.namespace(name), Urgent) {
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

// begin counts a resize of a namespace that begins, and end one that ends. A namespace whose pace changes by
// that is not listed afterwards.
func (q *Queue[T]) begin(n *namespace, p Priority) {
	q.sent++
	n.sent++
	q.sentAt[n.pace]++
	if p == Idle {
		q.idle++
		n.idle++
		q.idleAt[n.pace]++
	}
}

func (q *Queue[T]) end(n *namespace, t *ticket[T], charge Charge, now time.Time) {
	q.sent--
	n.sent--
	q.sentAt[n.pace]--
	if t.Priority == Idle {
		q.idle--
		n.idle--
		q.idleAt[n.pace]--
	}
	if charge == Charged {
		q.window.answer(t.Namespace, now.Sub(t.sentAt), now)
	}
	is := n.answer(t.sentAt, charge != NotAttempted, now)
	if is == n.pace {
		return
	}
	for p := range q.classes { // its turns are among those of the other pace from now on
		c := &q.classes[p]
		if f := c.flows[t.Namespace]; f != nil && f.listed {
			c.unlist(f)
		}
	}
	q.sentAt[n.pace] -= n.sent
	q.sentAt[is] += n.sent
	q.idleAt[n.pace] -= n.idle
	q.idleAt[is] += n.idle
	n.pace = is
}

// answer takes in an answer to what was sent at a time, and returns the pace by it. One slow answer, or
// many at the same moment, may be of an API server that stood still for a moment.
func (n *namespace) answer(sent time.Time, tried bool, now time.Time) pace {
	n.answered = now
	recent := now.Sub(n.slowAt) < slowKept
	switch took := now.Sub(sent); {
	case took < slowAfter && (!tried || n.pace == slow && recent):
		return n.pace
	case took < slowAfter:
		return prompt
	case n.pace == slow:
		n.slowAt = now
		return slow
	case sent.Before(n.slowAt):
		return unknown
	}
	n.slowAt = now
	if recent {
		return slow
	}
	return unknown
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
