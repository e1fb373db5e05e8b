package sim

import (
	"cmp"
	"slices"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/market"
)

// Setup is one run of one node.
type Setup struct {
	Machine Machine
	Pods    []PodSpec
	Length  time.Duration
	// WarmUp is the time at the start that is not measured: estimates fill, queues form.
	WarmUp time.Duration
	Seed   uint64
	// Interval is the time between two points of the series; 0: 1 s.
	Interval time.Duration
	Quotas   []Quota
	Outages  []Outage
	// ResizeCost is the CPU time that each resize by a policy takes in the first pod that has System. Cgroups that a policy
	// writes itself cost nothing.
	ResizeCost time.Duration
}

// Result is the result of one run.
type Result struct {
	Pods []PodResult // in the order of the set-up, then replicas that a policy added
	// Price is the price of each interval, where the policy has one.
	Price []market.Price
	// Idle is the idle share of the cores in each interval.
	Idle     []float64
	IdleTime time.Duration // core time after the warm-up
}

// PodResult is the result of one pod.
type PodResult struct {
	Spec PodSpec
	// Counters are those after the warm-up. Latency counts completed requests, and unfinished ones
	// with their age at the end: a policy that starves requests must not look fast.
	Counters
	Backlog time.Duration   // CPU time of unfinished requests at the end
	Changes []Change        // of its limit, all of them
	Points  []PodPoint      // one per interval, all of them
	Unready []time.Duration // when it became not Ready
}

// Change is a new limit in force.
type Change struct {
	At       time.Duration
	From, To cpu.Milli
}

// ChangesBetween are the changes after from, up to to.
func (p *PodResult) ChangesBetween(from, to time.Duration) (in []Change) {
	for _, c := range p.Changes {
		if c.At > from && c.At <= to {
			in = append(in, c)
		}
	}
	return in
}

// LimitAt is the limit in force at a time.
func (p *PodResult) LimitAt(at time.Duration) cpu.Milli {
	limit := p.Spec.Limit
	for _, c := range p.ChangesBetween(-1, at) {
		limit = c.To
	}
	return limit
}

// PodPoint is one interval of a pod.
type PodPoint struct {
	Usage, Useful, Offered cpu.Milli // means
	Limit                  cpu.Milli // at the end
	Demand                 cpu.Milli // as the policy estimates it
	Throttle               float64   // share of its periods
	Backlog                time.Duration
	Absent                 bool // it is not running
}

// Run simulates one node from start to end.
func Run(s Setup, policy Policy) Result {
	r := Start(s, policy)
	r.RunUntil(s.Length)
	return r.Result()
}

// RunUntil runs to a time, or to the end.
func (r *Simulation) RunUntil(at time.Duration) {
	for r.node.now < min(at, r.setup.Length) {
		r.step(at)
	}
}

// Partial is what is recorded so far. Counters count from the start of a pod, latencies from the
// end of the warm-up once that is over. It is valid until the simulation continues.
func (r *Simulation) Partial() *Result {
	for i, p := range r.node.pods {
		r.out.Pods[i].Counters = p.Counters
	}
	return &r.out
}

// Simulation is a run in progress. Pauses change nothing, so several nodes can run in lockstep.
type Simulation struct {
	setup    Setup
	policy   Policy
	node     *Node
	snapshot Snapshot

	events   []event // by time, then in the order of scheduling
	decideAt time.Duration
	pointAt  time.Duration
	warmedUp bool

	replicas     map[string]*replicas // by namespace and workload
	lastPoint    []Counters           // at the last point
	warmUpEnd    []Counters           // at the end of the warm-up
	idleAtPoint  time.Duration        // at the last point
	idleAtWarmUp time.Duration
	out          Result
}

// event is a change at a future time.
type event struct {
	at         time.Duration
	action     *Action
	starts     *PodSpec // a pod that starts
	podID      int      // that ends, where no other field is set
	probe      bool     // of the pod's readiness
	external   *ExternalChange
	terminated bool // podID was scaled in
}

// Start is a simulation at time 0.
func Start(s Setup, policy Policy) *Simulation {
	s.Interval = cmp.Or(s.Interval, time.Second)
	r := &Simulation{setup: s, policy: policy, node: NewNode(s.Machine, s.Seed), pointAt: s.Interval, replicas: map[string]*replicas{}}
	for i := range s.Pods {
		spec := s.Pods[i]
		if spec.Workload != "" {
			w := workloadKey(&spec)
			if r.replicas[w] == nil {
				r.replicas[w] = &replicas{}
			}
			of := r.replicas[w]
			of.created++
			if spec.Requests.Rate != nil {
				spec.Requests.Rate = sharedProfile{spec.Requests.Rate, of}
			}
		}
		r.schedule(event{at: spec.Start, starts: &spec})
	}
	return r
}

func (r *Simulation) schedule(e event) {
	i, _ := slices.BinarySearchFunc(r.events, e, func(a, b event) int {
		if a.at <= b.at {
			return -1
		}
		return 1
	})
	r.events = slices.Insert(r.events, i, e)
}

// step advances to the next event and handles it, or to until, if that is earlier.
func (r *Simulation) step(until time.Duration) {
	at := min(r.decideAt, r.pointAt, r.setup.Length, until)
	if len(r.events) > 0 {
		at = min(at, r.events[0].at)
	}
	if !r.warmedUp {
		at = min(at, r.setup.WarmUp)
	}
	r.node.Advance(at)
	for len(r.events) > 0 && r.events[0].at <= at {
		e := r.events[0]
		r.events = r.events[1:]
		r.handle(e)
	}
	if at >= r.pointAt {
		r.recordPoint()
		r.pointAt += r.setup.Interval
	}
	if !r.warmedUp && at >= r.setup.WarmUp {
		r.endWarmUp()
	}
	if at >= r.decideAt && at < r.setup.Length {
		r.node.Read(&r.snapshot)
		r.snapshot.Seed, r.snapshot.Quotas, r.snapshot.Outage = r.setup.Seed, r.setup.Quotas, r.inOutage()
		actions, next := r.policy.Decide(&r.snapshot)
		for _, a := range actions {
			r.schedule(event{at: at + max(a.Delay, 0), action: &a})
		}
		r.decideAt = max(next, at+time.Millisecond)
	}
}

func (r *Simulation) handle(e event) {
	switch {
	case e.starts != nil:
		if w := r.replicas[workloadKey(e.starts)]; w != nil {
			w.addPod(len(r.node.pods), e.starts)
		}
		id := r.node.Add(*e.starts)
		if o, ok := r.policy.(StartObserver); ok && o.ObservesStarts() {
			r.decideAt = min(r.decideAt, e.at)
		}
		r.out.Pods = append(r.out.Pods, PodResult{Spec: *e.starts})
		r.lastPoint = append(r.lastPoint, Counters{})
		r.warmUpEnd = append(r.warmUpEnd, Counters{})
		for len(r.out.Pods[id].Points) < len(r.out.Idle) {
			r.out.Pods[id].Points = append(r.out.Pods[id].Points, PodPoint{Absent: true})
		}
		r.scheduleKubernetes(id, e.starts)
		if e.starts.End > 0 {
			r.schedule(event{at: e.starts.End, podID: id})
		}
	case e.action != nil:
		r.apply(*e.action)
	case e.probe:
		r.probe(e.podID)
	case e.external != nil:
		r.changeExternally(e.podID, e.external.Limit)
	case e.terminated:
		r.node.Remove(e.podID)
	default:
		r.endPod(e.podID)
	}
}

func (r *Simulation) apply(a Action) {
	p := r.node.pods[a.Pod]
	if p.ended {
		return
	}
	if a.Replicas > 0 {
		r.scale(p.spec, a.Replicas)
		return
	}
	resizes := a.Limit != p.limit || a.Request > 0 && a.Request != p.request
	if resizes && a.Delay != DirectDelay && r.setup.ResizeCost > 0 {
		r.node.workOutside(r.setup.ResizeCost)
	}
	if a.Request > 0 && a.Request != p.request {
		r.node.SetRequest(a.Pod, a.Request)
	}
	r.setLimit(a.Pod, a.Limit)
}

// setLimit changes the limit in force and records it.
func (r *Simulation) setLimit(id int, limit cpu.Milli) {
	p := r.node.pods[id]
	if limit == p.limit {
		return
	}
	out := &r.out.Pods[id]
	out.Changes = append(out.Changes, Change{r.node.now, p.limit, limit})
	r.node.SetLimit(id, limit)
}

// endWarmUp starts the measured part.
func (r *Simulation) endWarmUp() {
	r.warmedUp = true
	r.node.updateCounters()
	for i, p := range r.node.pods {
		r.warmUpEnd[i] = p.Counters
		p.Latency = new(Latencies)
	}
	r.idleAtWarmUp = r.node.idleTime
}

// recordPoint records the interval that ends.
func (r *Simulation) recordPoint() {
	r.node.updateCounters()
	every := r.setup.Interval
	priced, _ := r.policy.(MarketPolicy)
	for i, p := range r.node.pods {
		in := p.Counters.Since(r.lastPoint[i])
		pt := PodPoint{
			Usage: cpu.FromUsage(in.Usage, every), Useful: cpu.FromUsage(in.Useful, every),
			Offered: cpu.FromUsage(in.Offered, every), Throttle: in.ThrottleRatio(),
			Limit: p.limit, Backlog: p.backlog(), Absent: p.ended,
		}
		if priced != nil {
			pt.Demand = priced.Demand(p.id)
		}
		r.lastPoint[i] = p.Counters
		r.out.Pods[i].Points = append(r.out.Pods[i].Points, pt)
	}
	if priced != nil {
		r.out.Price = append(r.out.Price, priced.Price())
	}
	r.out.Idle = append(r.out.Idle, float64(r.node.idleTime-r.idleAtPoint)/float64(every)/float64(len(r.node.cores)))
	r.idleAtPoint = r.node.idleTime
}

// Result is the result so far. The simulation cannot continue after it.
func (r *Simulation) Result() Result {
	r.node.updateCounters()
	for i, p := range r.node.pods {
		out := &r.out.Pods[i]
		p.eachWaiting(r.node.now, func(age time.Duration) { p.Latency.Add(age) })
		out.Counters = p.Counters.Since(r.warmUpEnd[i])
		out.Backlog = p.backlog()
	}
	r.out.IdleTime = r.node.idleTime - r.idleAtWarmUp
	order := map[string]int{}
	for i, s := range r.setup.Pods {
		order[s.Namespace+"/"+s.Name] = i
	}
	slices.SortStableFunc(r.out.Pods, func(a, b PodResult) int {
		return cmp.Compare(setupIndex(order, a.Spec), setupIndex(order, b.Spec))
	})
	return r.out
}

func setupIndex(order map[string]int, s PodSpec) int {
	if i, ok := order[s.Namespace+"/"+s.Name]; ok {
		return i
	}
	return len(order)
}

// Since are the counts after before.
func (c Counters) Since(before Counters) Counters {
	c.Usage -= before.Usage
	c.Useful -= before.Useful
	c.Periods -= before.Periods
	c.Throttled -= before.Throttled
	c.ThrottledTime -= before.ThrottledTime
	c.ThrottledIdle -= before.ThrottledIdle
	c.Arrived -= before.Arrived
	c.Served -= before.Served
	c.Offered -= before.Offered
	return c
}

// Pod finds a pod by its name.
func (r *Result) Pod(name string) *PodResult {
	for i := range r.Pods {
		if r.Pods[i].Spec.Name == name {
			return &r.Pods[i]
		}
	}
	return nil
}
