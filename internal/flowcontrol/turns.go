package flowcontrol

import (
	"cmp"
	"slices"
	"time"
)

// class are the pods of one priority.
type class[T any] struct {
	lines map[string]*line[T]
	turns []*line[T] // those that may have a turn, the next one first
	// passed is how many resizes of higher priorities have gone first since the last of this one.
	passed int
}

// line are the pods of one namespace in a class.
type line[T any] struct {
	namespace string
	tickets   []*ticket[T] // by number
	listed    bool         // in turns
}

// choose picks the highest priority, or a lower one that was passed over often enough.
func (q *Queue[T]) choose(heads [Priorities]*ticket[T]) *ticket[T] {
	chosen := Priority(-1)
	for p := range Priority(Priorities) {
		c := &q.classes[p]
		switch {
		case heads[p] == nil:
			c.passed = 0
		case chosen < 0, c.passed >= patience && c.passed > q.classes[chosen].passed:
			chosen = p
		}
	}
	for p := chosen + 1; p < Priorities; p++ {
		if heads[p] != nil {
			q.classes[p].passed++
		}
	}
	q.classes[chosen].passed = 0
	return heads[chosen]
}

// head is the next of a priority that can be sent now; nil: none can. Those whose node has no token
// step aside.
func (q *Queue[T]) head(p Priority, now time.Time) *ticket[T] {
	c := &q.classes[p]
	for len(c.turns) > 0 {
		l := c.turns[0]
		if len(l.tickets) == 0 || q.sentOf[l.namespace] >= q.cfg.NamespaceWorkers {
			c.turns, l.listed = c.turns[1:], false
			if len(l.tickets) == 0 {
				delete(c.lines, l.namespace)
			}
			continue
		}
		t := l.tickets[0]
		n := q.nodes[t.Node]
		wait := n.wait(now)
		if t.token || wait == 0 && len(n.parked) == 0 {
			return t
		}
		l.tickets = l.tickets[1:]
		q.park(n, t, now.Add(wait))
	}
	return nil
}

// list gives a namespace a turn if it has a pod that waits and may have more resizes under way.
func (q *Queue[T]) list(p Priority, namespace string) {
	c := &q.classes[p]
	l := c.lines[namespace]
	if l == nil || l.listed || len(l.tickets) == 0 || q.sentOf[namespace] >= q.cfg.NamespaceWorkers {
		return
	}
	c.turns, l.listed = append(c.turns, l), true
}

func (q *Queue[T]) line(t *ticket[T]) *line[T] {
	lines := q.classes[t.Priority].lines
	if lines[t.Namespace] == nil {
		lines[t.Namespace] = &line[T]{namespace: t.Namespace}
	}
	return lines[t.Namespace]
}

func (l *line[T]) add(t *ticket[T]) { l.tickets = insert(l.tickets, t, byNumber) }

func byNumber[T any](a, b *ticket[T]) int { return cmp.Compare(a.number, b.number) }

func byPriority[T any](a, b *ticket[T]) int {
	return cmp.Or(cmp.Compare(a.Priority, b.Priority), byNumber(a, b))
}

func insert[T any](list []*ticket[T], t *ticket[T], order func(a, b *ticket[T]) int) []*ticket[T] {
	i, _ := slices.BinarySearchFunc(list, t, order)
	return slices.Insert(list, i, t)
}

func without[T any](list []*ticket[T], t *ticket[T], order func(a, b *ticket[T]) int) []*ticket[T] {
	if i, ok := slices.BinarySearchFunc(list, t, order); ok {
		return slices.Delete(list, i, i+1)
	}
	return list
}

// park has a pod wait for a token of its node.
func (q *Queue[T]) park(n *node[T], t *ticket[T], at time.Time) {
	n.parked, t.parked = insert(n.parked, t, byPriority), true
	q.parked[t.Node] = n
	if q.wakeAt.IsZero() || at.Before(q.wakeAt) {
		q.wakeAt = at
	}
}

// wake gives tokens that have come to pods that wait for them.
func (q *Queue[T]) wake(now time.Time) {
	if q.wakeAt.IsZero() || now.Before(q.wakeAt) {
		return
	}
	q.wakeAt = time.Time{}
	for name, n := range q.parked {
		wait := n.wait(now)
		for ; wait == 0 && len(n.parked) > 0; wait = n.wait(now) {
			t := n.parked[0]
			n.parked = n.parked[1:]
			n.take()
			t.parked, t.token = false, true
			q.line(t).add(t)
			q.list(t.Priority, t.Namespace)
		}
		if len(n.parked) == 0 {
			delete(q.parked, name)
			continue
		}
		if at := now.Add(max(wait, wakeEvery)); q.wakeAt.IsZero() || at.Before(q.wakeAt) {
			q.wakeAt = at
		}
	}
}

// remove takes a pod that waits out of its line.
func (q *Queue[T]) remove(t *ticket[T]) {
	n := q.nodes[t.Node]
	q.waiting[t.Priority]--
	if t.parked {
		n.parked, t.parked = without(n.parked, t, byPriority), false
		if len(n.parked) == 0 {
			delete(q.parked, t.Node)
		}
		return
	}
	l := q.line(t)
	l.tickets = without(l.tickets, t, byNumber)
	if len(l.tickets) == 0 && !l.listed {
		delete(q.classes[t.Priority].lines, t.Namespace)
	}
	if t.token {
		t.token = false
		n.giveBack()
	}
}
