package flowcontrol

import (
	"cmp"
	"slices"
	"time"
)

// class are the pods of one priority.
type class[T any] struct {
	flows map[string]*flow[T] // by namespace
	// turns are the flows that may have a turn, by the pace of their namespaces, the next one first.
	turns [paces][]*flow[T]
	given uint64 // turns so far
}

// flow are the pods of one namespace in a class.
type flow[T any] struct {
	name    string       // of the namespace
	tickets []*ticket[T] // by number
	listed  bool         // in turns, of
	pace    pace
	turn    uint64 // lower ones come first; 0: it has had its turn
}

// bypassed is how many resizes of other priorities have gone first since the last of each, while one was
// waiting for its turn alone.
type bypassed [Priorities]int

// choose picks the highest priority that can go now, or a lower one that was passed over often enough. One
// of them can. Those that wait and cannot leave their tokens to others, and are passed over all the same.
func (b *bypassed) choose(waits, can [Priorities]bool) Priority {
	chosen := Priority(-1)
	for p := range Priority(Priorities) {
		switch {
		case !waits[p]:
			b[p] = 0
		case !can[p]:
		case chosen < 0, b[p] >= maxBypassed && b[p] > b[chosen]:
			chosen = p
		}
	}
	for p := chosen + 1; p < Priorities; p++ {
		if waits[p] {
			b[p]++
		}
	}
	b[chosen] = 0
	return chosen
}

// head is the next of a priority that can be sent now; nil: none can. Those whose node has no token
// step aside.
func (q *Queue[T]) head(p Priority, now time.Time) *ticket[T] {
	c := &q.classes[p]
	for f := q.first(p); f != nil; f = q.first(p) {
		if len(f.tickets) == 0 {
			c.unlist(f)
			continue
		}
		if n := q.namespace(f.name); q.isFull(n, p) || f.pace != n.pace {
			c.unlist(f)
			q.list(p, f.name)
			continue
		}
		t := f.tickets[0]
		node := q.nodes[t.Node]
		wait := node.wait(now, 0)
		if t.token || wait == 0 && len(node.parked) == 0 {
			return t
		}
		f.tickets = tail(f.tickets)
		q.park(node, t, now.Add(wait))
	}
	return nil
}

// first is the flow whose turn is next, of those whose namespaces may have a worker; nil: there is none.
func (q *Queue[T]) first(p Priority) (first *flow[T]) {
	for is, turns := range q.classes[p].turns {
		if len(turns) > 0 && (first == nil || turns[0].turn < first.turn) && q.may(pace(is), p) {
			first = turns[0]
		}
	}
	return first
}

// unlist takes the turn of a flow.
func (c *class[T]) unlist(f *flow[T]) {
	if turns := c.turns[f.pace]; turns[0] == f {
		c.turns[f.pace] = tail(turns)
	} else {
		c.turns[f.pace] = without(turns, f, byTurn)
	}
	f.listed = false
	if len(f.tickets) == 0 {
		delete(c.flows, f.name)
	}
}

// list gives a namespace a turn if it has a pod that waits and may have more resizes under way. A turn
// that it could not take it keeps.
func (q *Queue[T]) list(p Priority, namespace string) {
	c, n := &q.classes[p], q.namespace(namespace)
	f := c.flows[namespace]
	if f == nil || f.listed || len(f.tickets) == 0 {
		return
	}
	if q.isFull(n, p) {
		q.full[namespace] = true
		return
	}
	if f.turn == 0 {
		c.given++
		f.turn = c.given
	}
	f.listed, f.pace = true, n.pace
	c.turns[f.pace] = insert(c.turns[f.pace], f, byTurn)
}

func (q *Queue[T]) flow(t *ticket[T]) *flow[T] {
	flows := q.classes[t.Priority].flows
	if flows[t.Namespace] == nil {
		flows[t.Namespace] = &flow[T]{name: t.Namespace}
	}
	return flows[t.Namespace]
}

func (f *flow[T]) add(t *ticket[T]) { f.tickets = insert(f.tickets, t, byNumber) }

func byNumber[T any](a, b *ticket[T]) int { return cmp.Compare(a.number, b.number) }

func byTurn[T any](a, b *flow[T]) int { return cmp.Compare(a.turn, b.turn) }

func byPriority[T any](a, b *ticket[T]) int {
	return cmp.Or(cmp.Compare(a.Priority, b.Priority), byNumber(a, b))
}

func insert[T any](list []*T, t *T, order func(a, b *T) int) []*T {
	i, _ := slices.BinarySearchFunc(list, t, order)
	return slices.Insert(list, i, t)
}

// tail is a list without its first element, which its array does not keep alive.
func tail[T any](list []T) []T {
	clear(list[:1])
	return list[1:]
}

func without[T any](list []*T, t *T, order func(a, b *T) int) []*T {
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

// turn is a namespace in a priority.
type turn struct {
	Priority
	namespace string
}

// unpark takes the pod whose turn it is out of those that wait for a token of the node: in its priority, of
// the namespace whose last turn on this node was earliest.
func (n *node[T]) unpark() (next *ticket[T]) {
	of := func(t *ticket[T]) turn { return turn{t.Priority, t.Namespace} }
	waits := [Priorities]bool{}
	for _, t := range n.parked {
		waits[t.Priority] = true
	}
	chosen := n.bypassed.choose(waits, waits)
	for _, t := range n.parked {
		if t.Priority == chosen && (next == nil || n.turns[of(t)] < n.turns[of(next)]) {
			next = t
		}
	}
	if n.turns == nil || len(n.turns) >= Priorities*len(n.tickets) { // of namespaces that are gone, too
		n.turns = map[turn]uint64{}
	}
	n.given++
	n.turns[of(next)] = n.given
	n.parked = without(n.parked, next, byPriority)
	return next
}

// wake gives tokens that have come to pods that wait for them.
func (q *Queue[T]) wake(now time.Time) {
	if q.wakeAt.IsZero() || now.Before(q.wakeAt) {
		return
	}
	q.wakeAt = time.Time{}
	for name, n := range q.parked {
		wait := n.wait(now, 0)
		for ; wait == 0 && len(n.parked) > 0; wait = n.wait(now, 0) {
			t := n.unpark()
			n.take()
			t.parked, t.token = false, true
			q.flow(t).add(t)
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

// remove takes a pod that waits out of its flow.
func (q *Queue[T]) remove(t *ticket[T], now time.Time) {
	n := q.nodes[t.Node]
	q.waiting[t.Priority]--
	if t.parked {
		n.parked, t.parked = without(n.parked, t, byPriority), false
		if len(n.parked) == 0 {
			delete(q.parked, t.Node)
		}
		return
	}
	f := q.flow(t)
	f.tickets = without(f.tickets, t, byNumber)
	if len(f.tickets) == 0 && !f.listed {
		delete(q.classes[t.Priority].flows, t.Namespace)
	}
	if t.token {
		t.token = false
		q.giveBack(n, now)
	}
}

// giveBack returns a token of a node, which one of the pods that wait for it may have at once.
func (q *Queue[T]) giveBack(n *node[T], now time.Time) {
	n.giveBack()
	if len(n.parked) > 0 {
		q.wakeAt = now
	}
}
