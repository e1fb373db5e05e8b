package sim

import (
	"cmp"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/lab/load"
)

// PodSpec is a pod of one container and its load.
type PodSpec struct {
	Name, Namespace string
	// Workload is the workload of which the pod is a replica; empty: none.
	Workload string
	Request  cpu.Milli // 0: none
	Limit    cpu.Milli // as declared; 0: none
	Priority int32     // value of its PriorityClass
	OptOut   bool      // annotated to be left unmanaged
	Spread   bool      // it has topology spread constraints
	Pinned   bool      // it can run on no other node
	// System marks load outside of pods.
	System bool
	// Threads is the number of requests in progress at a time; 0: one per core.
	Threads int
	// Requests is the stream that it serves; a nil Rate means none.
	Requests load.Requests
	// Spin is the number of threads that use CPU without requests; nil: none.
	Spin       load.Profile
	Start, End time.Duration // End 0: it runs to the end

	Constraints Constraints
	// ReadyTimeout is that of a readiness probe, which fails while a request has waited for longer;
	// 0: no probe.
	ReadyTimeout time.Duration
	// ExternalChanges are in order of time.
	ExternalChanges []ExternalChange
}

// Managed says whether a policy may change the pod's limit: it is Burstable, has a limit and did
// not opt out.
func (s PodSpec) Managed() bool {
	return !s.System && !s.OptOut && s.Limit > 0 && s.Request < s.Limit
}

// pod is a pod on the node.
type pod struct {
	id          int
	spec        PodSpec
	startedAt   time.Duration
	ended       bool
	terminating bool // it gets no more requests
	weight      float64
	quota       time.Duration // per period; 0: none
	limit       cpu.Milli
	request     cpu.Milli

	arrivals                          *load.Arrivals
	nextWork                          time.Duration // of the request that comes next
	arrivalSlot, periodSlot, busySlot int32         // slots of events
	queue                             []request     // that wait for a thread
	sleeping                          []*thread     // longest asleep first
	busyThreads                       []*thread
	entities                          []entity // by core

	runnable, running int
	load              loadAverage   // of runnable threads
	pool              time.Duration // quota left in this period
	timerActive       bool          // its period timer runs
	phase             time.Duration // of its periods
	quotaUnused       bool          // no slice was taken in this period
	throttledOn       int           // cores
	idleAtPeriodStart time.Duration // idle time of the node when the period started

	failedProbes    int           // in a row
	unreadySince    time.Duration // 0: it is Ready
	externalChanges int           // so far

	pressure pressure
	Counters
}

// Counters are a pod's, from its start.
type Counters struct {
	Usage  time.Duration // CPU time
	Useful time.Duration // the part that served requests

	Periods, Throttled uint64
	ThrottledTime      time.Duration // summed over cores
	// ThrottledIdle counts periods in which the pod was throttled while more than a tenth of the
	// node was idle.
	ThrottledIdle uint64

	Arrived, Served uint64
	Offered         time.Duration // CPU time of the requests that arrived
	Latency         *Latencies
}

// ThrottleRatio is the share of periods in which the pod was throttled; 0 without any.
func (c *Counters) ThrottleRatio() float64 { return float64(c.Throttled) / float64(max(1, c.Periods)) }

// Merge adds what another pod used, how it was throttled, and its latencies.
func (c *Counters) Merge(other Counters) {
	c.Usage += other.Usage
	c.Periods += other.Periods
	c.Throttled += other.Throttled
	c.Latency.Merge(other.Latency)
}

type request struct{ arrived, work time.Duration }

// Arrivals is the pod's stream of requests from a time on. It depends on the pod's name and on the
// seed, not on other pods or on the policy.
func (s PodSpec) Arrivals(seed uint64, from time.Duration) *load.Arrivals {
	return s.Requests.Arrivals(s.rng(seed, "requests"), from)
}

func (s PodSpec) rng(seed uint64, purpose string) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(s.Namespace + "/" + s.Name + "/" + purpose))
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// Add starts a pod with its load and returns its ID.
func (n *Node) Add(s PodSpec) int {
	p := &pod{id: len(n.pods), spec: s, startedAt: n.now, request: s.Request, limit: s.Limit}
	p.spec.Threads = cmp.Or(p.spec.Threads, n.machine.Cores)
	p.Latency = new(Latencies)
	p.pressure.at = n.now
	p.weight = cpuWeight(s)
	p.entities = make([]entity, len(n.cores))
	for i := range p.entities {
		p.entities[i] = entity{pod: p, core: &n.cores[i], weight: p.weight}
	}
	rng := s.rng(n.seed, "machine")
	p.phase = time.Duration(rng.Int64N(int64(n.machine.Period)))
	p.quota = n.quota(s.Limit)
	p.pool = p.quota
	for range p.spec.Threads {
		p.sleeping = append(p.sleeping, &thread{lastCore: int32(rng.IntN(len(n.cores)))})
	}
	p.arrivalSlot, p.periodSlot, p.busySlot = n.slot(p, arrivalSlot), n.slot(p, periodSlot), n.slot(p, busySlot)
	n.pods = append(n.pods, p)
	if s.Requests.Rate != nil {
		p.arrivals = s.Arrivals(n.seed, n.now)
		n.planArrival(p)
	}
	if s.Spin != nil {
		n.events.plan(p.busySlot, n.now)
	}
	return p.id
}

func (n *Node) slot(p *pod, kind slotKind) int32 {
	n.slots = append(n.slots, slot{p, kind})
	return n.events.add()
}

// Remove ends a pod. Its unfinished requests are lost; their ages count as latencies.
func (n *Node) Remove(id int) {
	p := n.pods[id]
	if p.ended {
		return
	}
	p.ended = true
	p.eachWaiting(n.now, func(age time.Duration) { p.Latency.Add(age) })
	p.queue = nil
	for _, s := range []int32{p.arrivalSlot, p.periodSlot, p.busySlot} {
		n.events.plan(s, never)
	}
	for i := range p.entities {
		n.removeThreads(&p.entities[i])
	}
	n.updatePressure(p)
}

// SetLimit changes the limit in force; 0 removes it. As in the kernel, the period's quota is
// refilled and throttled entities run again.
func (n *Node) SetLimit(id int, limit cpu.Milli) {
	p := n.pods[id]
	if p.ended {
		return
	}
	for i := range p.entities {
		n.accountRuntime(p.entities[i].core)
		p.entities[i].localQuota = 0
	}
	p.limit, p.quota = limit, n.quota(limit)
	p.pool = p.quota
	n.unthrottle(p)
	for i := range p.entities {
		if c := p.entities[i].core; c.current == &p.entities[i] {
			n.plan(c)
		}
	}
	n.balance()
}

// SetRequest changes the request and so the weight.
func (n *Node) SetRequest(id int, request cpu.Milli) {
	p := n.pods[id]
	for i := range p.entities {
		n.accountRuntime(p.entities[i].core)
	}
	p.request = request
	s := p.spec
	s.Request = request
	p.weight = cpuWeight(s)
}

func (n *Node) quota(limit cpu.Milli) time.Duration {
	return time.Duration(float64(n.machine.Period) * limit.Cores())
}

// cpuWeight is cpu.shares: 1024 for a requested core, 2 at least. Load outside of pods has the
// weight of a core.
func cpuWeight(s PodSpec) float64 {
	if s.System {
		return 1024
	}
	return max(2, s.Request.Cores()*1024)
}

// planArrival plans the next arrival.
func (n *Node) planArrival(p *pod) {
	at, work := p.arrivals.Next()
	p.nextWork = work
	n.events.plan(p.arrivalSlot, at)
}

// acceptRequest accepts the next request.
func (n *Node) acceptRequest(p *pod) {
	work := p.nextWork
	n.planArrival(p)
	n.accept(p, work)
}

// workOutside adds work outside of pods.
func (n *Node) workOutside(work time.Duration) {
	if i := slices.IndexFunc(n.pods, func(p *pod) bool { return p.spec.System }); i >= 0 {
		n.accept(n.pods[i], work)
	}
}

// accept gives a request to a thread, or queues it.
func (n *Node) accept(p *pod, work time.Duration) {
	r := request{n.now, work}
	p.Arrived++
	p.Offered += r.work
	if len(p.sleeping) == 0 {
		p.queue = append(p.queue, r)
		return
	}
	t := p.sleeping[0] // longest asleep first, as for readers of a pipe
	p.sleeping = append(p.sleeping[:0], p.sleeping[1:]...)
	t.request = r
	n.wake(p, t)
}

// updateBusyThreads starts or stops threads of Spin.
func (n *Node) updateBusyThreads(p *pod) {
	v, until := p.spec.Spin.At(n.now)
	n.events.plan(p.busySlot, until)
	want := max(0, int(math.Round(v)))
	for len(p.busyThreads) < want {
		t := &thread{busy: true, lastCore: int32((p.id + len(p.busyThreads)) % len(n.cores))}
		p.busyThreads = append(p.busyThreads, t)
		n.wake(p, t)
	}
	for len(p.busyThreads) > want {
		t := p.busyThreads[len(p.busyThreads)-1]
		p.busyThreads = p.busyThreads[:len(p.busyThreads)-1]
		n.accountRuntime(t.entity.core)
		n.sleep(t)
	}
}

// backlog is the CPU time of unfinished requests; 0 for a pod that has ended.
func (p *pod) backlog() time.Duration {
	if p.ended {
		return 0
	}
	return p.Offered - p.Useful
}

// eachWaiting calls each with the ages of unfinished requests.
func (p *pod) eachWaiting(now time.Duration, each func(age time.Duration)) {
	for i := range p.entities {
		for _, t := range p.entities[i].threads {
			if !t.busy {
				each(now - t.arrived)
			}
		}
	}
	for _, r := range p.queue {
		each(now - r.arrived)
	}
}
