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
	Pods    []Spec
	Length  time.Duration
	// Warm is how much of the begin is not measured: estimates fill, queues form.
	Warm time.Duration
	Seed uint64
	// Every is the time between two points of the series; 0: 1 s.
	Every time.Duration
}

// Result is what became of one run.
type Result struct {
	Pods []PodResult // in the order of the setup; replicas that came later stand at the end
	// Price is the price of each interval, where the policy has one.
	Price []market.Price
	// Idle is the share of the cores that lay idle in each interval.
	Idle   []float64
	Idling time.Duration // core time that lay idle after the warm-up
}

// PodResult is what became of one pod.
type PodResult struct {
	Spec Spec
	// Counters are those after the warm-up. Latency counts the requests that were done then, and with their age those that
	// were not done at the end: a policy that lets them wait for ever does not look good.
	Counters
	Pressure time.Duration
	Backlog  time.Duration // CPU time of what was not done at the end
	Changes  []Change      // of its limit, all of them
	Points   []PodPoint    // one per interval, all of them
}

// Change is a new limit in force.
type Change struct {
	At       time.Duration
	From, To cpu.Milli
}

// PodPoint is one interval of a pod.
type PodPoint struct {
	Use, Useful, Offered cpu.Milli // means
	Limit                cpu.Milli // at the end
	Demand               cpu.Milli // as the policy thinks
	Throttle             float64   // share of its periods
	Backlog              time.Duration
	Gone                 bool // it does not run
}

// Run plays one node from the beginning to the end.
func Run(s Setup, policy Policy) Result {
	c := Begin(s, policy)
	c.Until(s.Length)
	return c.Result()
}

// Course is one node's run under way, for those who play several nodes side by side. Where it rests on the way changes nothing.
type Course struct{ run *runner }

// Begin is a run of which nothing has been played.
func Begin(s Setup, policy Policy) Course { return Course{newRunner(s, policy)} }

// Until plays on to a time, or to the end.
func (c Course) Until(at time.Duration) {
	for c.run.node.now < min(at, c.run.setup.Length) {
		c.run.step(at)
	}
}

// Result is what has become of the run; it ends it.
func (c Course) Result() Result { return c.run.result() }

// runner is a run under way.
type runner struct {
	setup   Setup
	policy  Policy
	node    *Node
	reading Reading

	events  []event // by time, then in the order in which they came
	turnAt  time.Duration
	pointAt time.Duration
	warm    bool

	replicas map[string]*replicas // by namespace and workload
	before   []Counters           // at the last point
	start    []Counters           // at the end of the warm-up
	idle     time.Duration        // at the last point
	pressure []time.Duration
	idling   time.Duration
	out      Result
}

// event is something that is on its way.
type event struct {
	at     time.Duration
	action *Action
	pod    *Spec // comes
	end    int   // ID of the pod whose time is over, where nothing else is set
	drop   bool  // the pod has been scaled in, and goes
}

func newRunner(s Setup, policy Policy) *runner {
	if s.Every == 0 {
		s.Every = time.Second
	}
	r := &runner{setup: s, policy: policy, node: NewNode(s.Machine, s.Seed), pointAt: s.Every, replicas: map[string]*replicas{}}
	for i := range s.Pods {
		spec := s.Pods[i]
		if spec.Workload != "" {
			w := workload(&spec)
			if r.replicas[w] == nil {
				r.replicas[w] = &replicas{}
			}
			of := r.replicas[w]
			of.named++
			if spec.Requests.Rate != nil {
				spec.Requests.Rate = shared{spec.Requests.Rate, of}
			}
		}
		r.schedule(event{at: spec.Start, pod: &spec})
	}
	return r
}

func (r *runner) schedule(e event) {
	i, _ := slices.BinarySearchFunc(r.events, e, func(a, b event) int {
		if a.at <= b.at {
			return -1
		}
		return 1
	})
	r.events = slices.Insert(r.events, i, e)
}

// step goes on to whatever comes next, and deals with it, or to a time before that.
func (r *runner) step(until time.Duration) {
	at := min(r.turnAt, r.pointAt, r.setup.Length, until)
	if len(r.events) > 0 {
		at = min(at, r.events[0].at)
	}
	if !r.warm {
		at = min(at, r.setup.Warm)
	}
	r.node.Advance(at)
	for len(r.events) > 0 && r.events[0].at <= at {
		e := r.events[0]
		r.events = r.events[1:]
		r.happen(e)
	}
	if at >= r.pointAt {
		r.point()
		r.pointAt += r.setup.Every
	}
	if !r.warm && at >= r.setup.Warm {
		r.begin()
	}
	if at >= r.turnAt && at < r.setup.Length {
		r.node.Read(&r.reading)
		actions, next := r.policy.Turn(&r.reading)
		for _, a := range actions {
			r.schedule(event{at: at + max(a.After, 0), action: &a})
		}
		r.turnAt = max(next, at+time.Millisecond)
	}
}

func (r *runner) happen(e event) {
	switch {
	case e.pod != nil:
		if w := r.replicas[workload(e.pod)]; w != nil {
			w.come(len(r.node.pods), e.pod)
		}
		id := r.node.Add(*e.pod)
		r.out.Pods = append(r.out.Pods, PodResult{Spec: *e.pod})
		r.before = append(r.before, Counters{})
		r.start = append(r.start, Counters{})
		r.pressure = append(r.pressure, 0)
		for len(r.out.Pods[id].Points) < len(r.out.Idle) {
			r.out.Pods[id].Points = append(r.out.Pods[id].Points, PodPoint{Gone: true})
		}
		if e.pod.End > 0 {
			r.schedule(event{at: e.pod.End, end: id})
		}
	case e.action != nil:
		r.act(*e.action)
	case e.drop:
		r.node.Remove(e.end)
	default:
		r.end(e.end)
	}
}

func (r *runner) act(a Action) {
	p := r.node.pods[a.Pod]
	if p.over {
		return
	}
	if a.Scale > 0 {
		r.scale(p.spec, a.Scale)
		return
	}
	if a.Request > 0 && a.Request != p.request {
		r.node.SetRequest(a.Pod, a.Request)
	}
	if a.Limit != p.limit {
		out := &r.out.Pods[a.Pod]
		out.Changes = append(out.Changes, Change{r.node.now, p.limit, a.Limit})
		r.node.SetLimit(a.Pod, a.Limit)
	}
}

// begin is the end of the warm-up.
func (r *runner) begin() {
	r.warm = true
	r.node.settle()
	for i, p := range r.node.pods {
		r.start[i] = p.Counters
		p.Latency = new(Latencies)
		r.pressure[i] = p.pressure.total
	}
	r.idling = r.node.idleTime
}

// point closes an interval.
func (r *runner) point() {
	r.node.settle()
	every := r.setup.Every
	priced, _ := r.policy.(Priced)
	for i, p := range r.node.pods {
		was := r.before[i]
		pt := PodPoint{
			Use: cpu.FromUsage(p.Usage-was.Usage, every), Useful: cpu.FromUsage(p.Useful-was.Useful, every),
			Offered: cpu.FromUsage(p.Offered-was.Offered, every), Limit: p.limit, Backlog: p.backlog(), Gone: p.over,
		}
		if periods := p.Periods - was.Periods; periods > 0 {
			pt.Throttle = float64(p.Counters.Throttled-was.Throttled) / float64(periods)
		}
		if priced != nil {
			pt.Demand = priced.Demand(p.id)
		}
		r.before[i] = p.Counters
		r.out.Pods[i].Points = append(r.out.Pods[i].Points, pt)
	}
	if priced != nil {
		r.out.Price = append(r.out.Price, priced.Price())
	}
	r.out.Idle = append(r.out.Idle, float64(r.node.idleTime-r.idle)/float64(every)/float64(len(r.node.cores)))
	r.idle = r.node.idleTime
}

func (r *runner) result() Result {
	r.node.settle()
	for i, p := range r.node.pods {
		out := &r.out.Pods[i]
		p.waiting(r.node.now, func(age time.Duration) { p.Latency.Add(age) })
		out.Counters = p.Counters.since(r.start[i])
		out.Pressure = p.pressure.total - r.pressure[i]
		out.Backlog = p.backlog()
	}
	r.out.Idling = r.node.idleTime - r.idling
	order := map[string]int{}
	for i, s := range r.setup.Pods {
		order[s.Namespace+"/"+s.Name] = i
	}
	slices.SortStableFunc(r.out.Pods, func(a, b PodResult) int {
		return cmp.Compare(place(order, a.Spec), place(order, b.Spec))
	})
	return r.out
}

func place(order map[string]int, s Spec) int {
	if i, ok := order[s.Namespace+"/"+s.Name]; ok {
		return i
	}
	return len(order)
}

// since is what was counted after before.
func (c Counters) since(before Counters) Counters {
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
