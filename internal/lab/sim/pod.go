package sim

import (
	"hash/fnv"
	"math"
	"math/rand/v2"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/lab/load"
)

// Spec is a pod of one container and what it has to do.
type Spec struct {
	Name, Namespace string
	// Workload is what the pod is a replica of; empty: of nothing.
	Workload string
	Request  cpu.Milli // 0: none
	Limit    cpu.Milli // as declared; 0: none
	Priority int32     // value of its PriorityClass
	OptOut   bool      // its owner wants its limit left alone
	Spread   bool      // topology spread constraints hold for it
	Pinned   bool      // it can run on no other node
	// System stands for what runs outside of pods.
	System bool
	// Threads is how many requests it works on at a time; 0: one per core.
	Threads int
	// Requests is the stream that it serves; a zero Rate means none.
	Requests load.Requests
	// Spin is how many threads do nothing but use CPU; nil: none.
	Spin       load.Profile
	Start, End time.Duration // when it comes and goes; End 0: it stays
}

// Managed says whether the market may move the pod's limit: Burstable, with a limit, and not opted out.
func (s Spec) Managed() bool {
	return !s.System && !s.OptOut && s.Limit > 0 && s.Request < s.Limit
}

// pod is a pod on the node.
type pod struct {
	id      int
	spec    Spec
	began   time.Duration
	over    bool
	leaving bool // gets no more requests
	weight  float64
	quota   time.Duration // per period; 0: none
	limit   cpu.Milli
	request cpu.Milli

	arrivals           *load.Arrivals
	work               time.Duration // of the request that comes next
	arrival, per, spun int32         // slots of events
	queue              line
	free               []*thread // that sleep, the first one to sleep at the beginning
	spinning           []*thread
	ent                []entity // by core

	runnable, running int
	load              decaying      // threads that are runnable, averaged
	pool              time.Duration // quota left in this period
	ticking           bool          // its period timer runs
	phase             time.Duration // of its periods
	unused            bool          // nothing has been taken from the pool in this period
	throttledOn       int           // cores
	idleAt            time.Duration // idle time of the node at the begin of the period

	pressure pressure
	Counters
}

// Counters is what is counted about a pod, from its start.
type Counters struct {
	Usage  time.Duration // CPU time
	Useful time.Duration // the part of it that served requests

	Periods, Throttled uint64
	ThrottledTime      time.Duration // summed over cores
	// ThrottledIdle counts periods in which it was throttled although more than a tenth of the node lay idle.
	ThrottledIdle uint64

	Arrived, Served uint64
	Offered         time.Duration // CPU time of the requests that arrived
	Latency         *Latencies
}

// line is the requests that wait for a thread, first come first served.
type line struct {
	items []request
	head  int
}

type request struct{ arrived, work time.Duration }

func (l *line) len() int { return len(l.items) - l.head }

func (l *line) push(r request) { l.items = append(l.items, r) }

func (l *line) pop() request {
	r := l.items[l.head]
	if l.head++; l.head > 1024 && l.head > len(l.items)/2 {
		l.items = append(l.items[:0], l.items[l.head:]...)
		l.head = 0
	}
	return r
}

// Arrivals is the pod's stream of requests from a time on. It depends on the pod's name and on the seed, not
// on its neighbours, nor on what becomes of it.
func (s Spec) Arrivals(seed uint64, from time.Duration) *load.Arrivals {
	return s.Requests.Arrivals(s.rng(seed, "requests"), from)
}

func (s Spec) rng(seed uint64, purpose string) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(s.Namespace + "/" + s.Name + "/" + purpose))
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// Add starts a pod and returns its ID. Its load begins at once.
func (n *Node) Add(s Spec) int {
	p := &pod{id: len(n.pods), spec: s, began: n.now, request: s.Request, limit: s.Limit}
	if p.spec.Threads == 0 {
		p.spec.Threads = n.machine.Cores
	}
	p.Latency = new(Latencies)
	p.pressure.at = n.now
	p.weight = weight(s)
	p.ent = make([]entity, len(n.cores))
	for i := range p.ent {
		p.ent[i] = entity{pod: p, core: &n.cores[i], weight: p.weight}
	}
	rng := s.rng(n.seed, "machine")
	p.phase = time.Duration(rng.Int64N(int64(n.machine.Period)))
	p.quota = n.quota(s.Limit)
	p.pool = p.quota
	for range p.spec.Threads {
		p.free = append(p.free, &thread{last: int32(rng.IntN(len(n.cores)))})
	}
	p.arrival, p.per, p.spun = n.slot(p, arrivalSlot), n.slot(p, periodSlot), n.slot(p, spinSlot)
	n.pods = append(n.pods, p)
	if s.Requests.Rate != nil {
		p.arrivals = s.Arrivals(n.seed, n.now)
		n.await(p)
	}
	if s.Spin != nil {
		n.events.plan(p.spun, n.now)
	}
	return p.id
}

func (n *Node) slot(p *pod, kind slotKind) int32 {
	n.slots = append(n.slots, slot{p, kind})
	return n.events.add()
}

// Remove ends a pod. What waits and what it has in hand is lost, and counts with the time that it has waited.
func (n *Node) Remove(id int) {
	p := n.pods[id]
	if p.over {
		return
	}
	p.over = true
	p.waiting(n.now, func(age time.Duration) { p.Latency.Add(age) })
	p.queue = line{}
	for _, s := range []int32{p.arrival, p.per, p.spun} {
		n.events.plan(s, never)
	}
	for i := range p.ent {
		n.clear(&p.ent[i])
	}
	n.waits(p)
}

// SetLimit changes the limit in force; 0 removes it. As in the kernel, the period's quota starts anew, and
// whoever is throttled runs again.
func (n *Node) SetLimit(id int, limit cpu.Milli) {
	p := n.pods[id]
	if p.over {
		return
	}
	for i := range p.ent {
		n.charge(p.ent[i].core)
		p.ent[i].local = 0
	}
	p.limit, p.quota = limit, n.quota(limit)
	p.pool = p.quota
	n.unthrottle(p)
	for i := range p.ent {
		if c := p.ent[i].core; c.cur == &p.ent[i] {
			n.plan(c)
		}
	}
	n.balance()
}

// SetRequest changes the request, and with it the weight.
func (n *Node) SetRequest(id int, request cpu.Milli) {
	p := n.pods[id]
	for i := range p.ent {
		n.charge(p.ent[i].core)
	}
	p.request = request
	s := p.spec
	s.Request = request
	p.weight = weight(s)
}

func (n *Node) quota(limit cpu.Milli) time.Duration {
	return time.Duration(float64(n.machine.Period) * limit.Cores())
}

// weight is the kernel's: 1024 for a core requested, 2 at least. What runs outside of pods weighs as much as a core.
func weight(s Spec) float64 {
	if s.System {
		return 1024
	}
	return max(2, s.Request.Cores()*1024)
}

// await plans the next arrival.
func (n *Node) await(p *pod) {
	at, work := p.arrivals.Next()
	p.work = work
	n.events.plan(p.arrival, at)
}

// arrive takes a request in.
func (n *Node) arrive(p *pod) {
	r := request{n.now, p.work}
	p.Arrived++
	p.Offered += r.work
	n.await(p)
	if len(p.free) == 0 {
		p.queue.push(r)
		return
	}
	t := p.free[0] // who has waited longest, as readers of a pipe or a queue
	p.free = append(p.free[:0], p.free[1:]...)
	t.request = r
	n.wake(p, t)
}

// spin starts or stops threads that spin.
func (n *Node) spin(p *pod) {
	v, until := p.spec.Spin.At(n.now)
	n.events.plan(p.spun, until)
	want := max(0, int(math.Round(v)))
	for len(p.spinning) < want {
		t := &thread{spins: true, last: int32((p.id + len(p.spinning)) % len(n.cores))}
		p.spinning = append(p.spinning, t)
		n.wake(p, t)
	}
	for len(p.spinning) > want {
		t := p.spinning[len(p.spinning)-1]
		p.spinning = p.spinning[:len(p.spinning)-1]
		n.charge(t.ent.core)
		n.sleep(t)
	}
}

// backlog is the CPU time of all requests that have arrived and are not done; of a pod that has ended, none is left to do.
func (p *pod) backlog() time.Duration {
	if p.over {
		return 0
	}
	return p.Offered - p.Useful
}

// waiting are the ages of the requests that are not done.
func (p *pod) waiting(now time.Duration, each func(age time.Duration)) {
	for i := range p.ent {
		for _, t := range p.ent[i].threads {
			if !t.spins {
				each(now - t.arrived)
			}
		}
	}
	for _, r := range p.queue.items[p.queue.head:] {
		each(now - r.arrived)
	}
}
