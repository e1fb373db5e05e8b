package flowcontrol

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Priority is how urgent a resize is. A lower one goes first.
type Priority int

const (
	Urgent   Priority = iota // a rollback, a revert, a restore that the pod's owner asked for
	Needed                   // an increase of a throttled pod, or up to a declared limit
	Decrease                 // frees CPU for others
	Idle                     // an increase that the pod does not need yet
)

// Priorities is how many there are.
const Priorities = 4

func (p Priority) String() string {
	return [Priorities]string{"urgent", "needed", "decrease", "idle"}[p]
}

// maxBypassed is how many resizes of higher priorities go first at most while one of a lower priority
// could be made. Lower takes more from urgent resizes; higher lets the others wait longer under load.
const maxBypassed = 8

// idleShare: increases that no pod needs yet have one worker in so many at most. More would fill the queues of
// a slow API server before those of throttled pods; fewer leave it unused.
const idleShare = 4

// idleKeeps is the part of the cluster's burst that increases which no pod needs yet leave to other resizes.
// With less, a change of mode lets them use up the tokens before the pods that are throttled have their turn;
// with more, they take longer.
const idleKeeps = 0.75

// placeKept is for how long a pod that is withdrawn keeps its place: its decision may just have to be
// confirmed.
const placeKept = 10 * time.Second

// wakeEvery is the least time between two checks whether nodes with pods that wait for a token have one. Lower
// costs more on a large cluster; higher makes these pods wait longer.
const wakeEvery = 100 * time.Millisecond

// Request is a resize of a pod, with what is needed to carry it out.
type Request[T any] struct {
	Pod             types.UID
	Namespace, Node string
	Priority        Priority
	Value           T
	// Since is when the pod first came, or when an increase of it took the place of a decrease, or the other way
	// round. The queue sets it.
	Since time.Time
}

// State is where the resize of a pod stands.
type State int

const (
	None      State = iota // there is none
	Waiting                // it waits for its turn
	Sent                   // it is under way
	Answered               // what came of it is to be looked at
	withdrawn              // it was withdrawn, and keeps its place for a while
)

// Charge says whether a resize costs its tokens.
type Charge int

const (
	Charged      Charge = iota // the pod was changed, or may have been
	Refunded                   // nothing was changed
	NotAttempted               // nothing was sent: the pod keeps its place
)

// Queue has the resizes of pods wait for their turn. Of the highest priority that waits, namespaces
// take turns, and within one the pod that has waited longest comes first; a lower priority gets a turn
// after some of higher ones. The place of a pod is reserved: no resize that comes later takes it. A
// pod without a token of its node's budget lets others pass, and the next token of the node is kept
// for it.
type Queue[T any] struct {
	cfg      Config
	cluster  bucket
	size     int     // nodes of the cluster
	share    float64 // of the cluster's budget
	tickets  map[types.UID]*ticket[T]
	nodes    map[string]*node[T]
	classes  [Priorities]class[T]
	bypassed bypassed
	waiting  [Priorities]int
	window   window
	sent     int
	sentAt   [paces]int // by the pace of their namespaces
	idle     int        // of priority Idle, under way
	idleAt   [paces]int
	counter  uint64
	parked   map[string]*node[T] // nodes with pods that wait for a token of the node
	wakeAt   time.Time           // when one of them may have one; zero: none waits
	leavings []leaving[T]        // in the order in which they are forgotten
	pruned   time.Time
	since    time.Time // when the last nodes were taken over

	namespaces map[string]*namespace
	// full are the namespaces with pods that wait which have all the workers that they may have now.
	full map[string]bool
}

// ticket is the place of a pod.
type ticket[T any] struct {
	Request[T]
	state  State
	number uint64    // smaller ones came earlier
	until  time.Time // withdrawn: when it is forgotten
	parked bool
	token  bool // of the node
	keeps  bool // answered: its place is kept
	sentAt time.Time
}

// leaving is a withdrawal. The pod may have come back since, and may have left again.
type leaving[T any] struct {
	ticket *ticket[T]
	until  time.Time
}

// node is the budget of a node with its pods.
type node[T any] struct {
	bucket
	tickets map[types.UID]*ticket[T]
	parked  []*ticket[T] // by priority, then number
	// turns are the last turns of namespaces that had to wait for a token, of as many as given.
	turns    map[turn]uint64
	given    uint64
	bypassed bypassed
}

// NewQueue is an empty queue of a cluster without nodes. Another process may just have used the budgets up,
// so it begins with what they allow in a second.
func NewQueue[T any](c Config) *Queue[T] {
	q := &Queue[T]{
		cfg: c, tickets: map[types.UID]*ticket[T]{}, nodes: map[string]*node[T]{}, namespaces: map[string]*namespace{},
		full:   map[string]bool{},
		parked: map[string]*node[T]{}, share: 1,
	}
	for i := range q.classes {
		q.classes[i].flows = map[string]*flow[T]{}
	}
	q.cluster, q.window = newBucket(c.PerSecond, float64(c.Burst), 1), newWindow(c.Workers)
	return q
}

// Nodes sets the number of nodes of the cluster, by which its budget grows.
func (q *Queue[T]) Nodes(n int, now time.Time) {
	q.size = n
	perSecond, burst := q.cfg.rate(n)
	q.cluster.set(perSecond*q.share, max(1, burst*q.share), now)
}

// TakeOver notes that nodes may have come from another replica, which may just have used their budgets up.
func (q *Queue[T]) TakeOver(now time.Time) {
	q.since = now
	q.cluster.drain(now)
	for _, n := range q.nodes {
		n.drain(now)
	}
}

// leastShare keeps the rate of a replica that has nothing to resize above 0.
const leastShare = 0.001

// SetShare leaves a share, 0 to 1, of the cluster's budget.
func (q *Queue[T]) SetShare(share float64, now time.Time) {
	q.share = max(share, leastShare)
	q.Nodes(q.size, now)
}

// Replace replaces the resizes of a node that wait. A pod that waits already keeps its place, with what
// is to be done for it now; one that is not among them any more is withdrawn. A pod whose resize is
// under way is left as it is. Answers about pods that do not exist are dropped.
func (q *Queue[T]) Replace(name string, requests []Request[T], exists func(types.UID) bool, now time.Time) {
	if q.forget(now); q.since.IsZero() {
		q.since = now
	}
	n := q.nodes[name]
	if n == nil {
		b := newBucket(q.cfg.NodePerSecond, float64(q.cfg.NodeBurst), 1+now.Sub(q.since).Seconds())
		n = &node[T]{bucket: b, tickets: map[types.UID]*ticket[T]{}}
		q.nodes[name] = n
	}
	requested := map[types.UID]bool{}
	for _, r := range requests {
		requested[r.Pod] = true
		q.replace(n, r, now)
	}
	for uid, t := range n.tickets {
		switch {
		case t.state == Waiting && !requested[uid]:
			q.remove(t, now)
			q.leave(t, now)
		case t.state == Answered && !exists(uid):
			q.drop(t)
		}
	}
	if len(n.tickets) == 0 && n.full(now) {
		delete(q.nodes, name)
	}
}

func (q *Queue[T]) replace(n *node[T], r Request[T], now time.Time) {
	t := q.tickets[r.Pod]
	if r.Since = now; t != nil && (t.Priority == Decrease) == (r.Priority == Decrease) {
		r.Since = t.Since
	}
	switch {
	case t == nil:
		q.counter++
		t = &ticket[T]{number: q.counter}
		q.tickets[r.Pod], n.tickets[r.Pod] = t, t
	case t.state == Sent || t.state == Answered:
		return
	case t.state == Waiting && t.Priority == r.Priority:
		t.Request = r
		return
	case t.state == Waiting:
		q.remove(t, now)
	}
	if t.Request.Pod != "" && t.Priority != r.Priority { // to the end of the other priority
		q.counter++
		t.number = q.counter
	}
	t.Request, t.state = r, Waiting
	q.waiting[t.Priority]++
	q.flow(t).add(t)
	q.list(t.Priority, t.Namespace)
}

// Standing is where the resize of a pod stands, since when it waits, and what is to be done.
func (q *Queue[T]) Standing(pod types.UID) (s State, since time.Time, v T) {
	if t := q.tickets[pod]; t != nil && t.state != withdrawn {
		return t.state, t.Since, t.Value
	}
	return None, time.Time{}, v
}

// Waiting is how many resizes of each priority wait.
func (q *Queue[T]) Waiting() [Priorities]int { return q.waiting }

// Next begins the resize whose turn it is. Without one it says when to ask again if nothing else
// happens; zero: there is no need.
func (q *Queue[T]) Next(now time.Time) (r Request[T], ok bool, again time.Time) {
	q.forget(now)
	q.wake(now)
	q.window.now(now)
	if q.sent >= q.cfg.Workers {
		return r, false, time.Time{}
	}
	heads, waits, can := [Priorities]*ticket[T]{}, [Priorities]bool{}, [Priorities]bool{}
	for p := range q.classes {
		if Priority(p) == Idle && q.idle >= max(1, q.window.size/idleShare) {
			continue
		}
		if heads[p] = q.head(Priority(p), now); heads[p] == nil {
			continue
		}
		waits[p] = true
		if wait := q.cluster.wait(now, q.kept(Priority(p))); wait == 0 {
			can[p] = true
		} else if at := now.Add(wait); again.IsZero() || at.Before(again) {
			again = at
		}
	}
	if can == [Priorities]bool{} {
		// Read after head, which may have had one more pod wait for its node.
		if at := q.wakeAt; !at.IsZero() && (again.IsZero() || at.Before(again)) {
			again = at
		}
		return r, false, again
	}
	t := heads[q.bypassed.choose(waits, can)]
	q.send(t, now)
	return t.Request, true, time.Time{}
}

// kept are the tokens of the cluster that a priority leaves to others, until it was passed over often enough.
func (q *Queue[T]) kept(p Priority) float64 {
	if p == Idle && q.bypassed[p] < maxBypassed {
		return idleKeeps * (q.cluster.burst - 1)
	}
	return 0
}

// send takes the tokens of a resize, and gives its namespace the last turn.
func (q *Queue[T]) send(t *ticket[T], now time.Time) {
	q.cluster.take()
	if !t.token {
		q.nodes[t.Node].take()
	}
	t.token, t.state, t.sentAt = false, Sent, now
	q.waiting[t.Priority]--
	q.begin(q.namespace(t.Namespace), t.Priority)
	c, f := &q.classes[t.Priority], q.flow(t)
	f.tickets = tail(f.tickets)
	c.unlist(f)
	f.turn = 0
	q.list(t.Priority, t.Namespace)
}

// Finish notes that a resize has ended, with its value from then on and what becomes of its tokens.
func (q *Queue[T]) Finish(pod types.UID, v T, charge Charge, now time.Time) {
	t := q.tickets[pod]
	if t == nil || t.state != Sent {
		return
	}
	t.state, t.keeps, t.Value = Answered, charge == NotAttempted, v
	if charge != Charged {
		q.cluster.giveBack()
		q.giveBack(q.nodes[t.Node], now)
	}
	q.end(q.namespace(t.Namespace), t, charge, now)
	for p := range q.classes {
		q.list(Priority(p), t.Namespace)
	}
	q.listFull()
}

// Take takes the answer about a pod, which is not in flight from then on; false: there is none.
func (q *Queue[T]) Take(pod types.UID, now time.Time) (v T, ok bool) {
	t := q.tickets[pod]
	if t == nil || t.state != Answered {
		return v, false
	}
	v = t.Value
	if t.keeps {
		q.leave(t, now)
	} else {
		q.drop(t)
	}
	return v, true
}

// leave keeps the place of a pod for a while.
func (q *Queue[T]) leave(t *ticket[T], now time.Time) {
	var none T
	t.state, t.keeps, t.until, t.Value = withdrawn, false, now.Add(placeKept), none
	q.leavings = append(q.leavings, leaving[T]{t, t.until})
}

// drop forgets a pod.
func (q *Queue[T]) drop(t *ticket[T]) {
	delete(q.tickets, t.Pod)
	if n := q.nodes[t.Node]; n != nil {
		delete(n.tickets, t.Pod)
	}
}

// forget forgets the places of pods that have not come back, and nodes without pods.
func (q *Queue[T]) forget(now time.Time) {
	for len(q.leavings) > 0 && !now.Before(q.leavings[0].until) {
		l := q.leavings[0]
		if t := l.ticket; t.state == withdrawn && t.until.Equal(l.until) && q.tickets[t.Pod] == t {
			q.drop(t)
		}
		q.leavings = tail(q.leavings)
	}
	if now.Sub(q.pruned) < time.Minute {
		return
	}
	q.pruned = now
	q.forgetNamespaces(now)
	for name, n := range q.nodes {
		if len(n.tickets) == 0 && n.full(now) {
			delete(q.nodes, name)
		}
	}
}
