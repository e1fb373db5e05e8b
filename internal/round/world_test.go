package round

import (
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/disagreement"
	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/market"
)

// world is a simple model of a node: containers use their demand up to their limits and, where the
// cores do not suffice, by their weights. Published decisions take effect at once.
type world struct {
	cfg      Config
	interval time.Duration // from one tick to the next
	node     Node
	now      time.Time
	state    State
	pods     []*fakePod
	all      time.Duration // CPU time of the whole node
	kubepods time.Duration
	system   cpu.Milli           // usage outside of pods
	noStat   bool                // the node's usage cannot be read
	noPods   bool                // the usage of the pods cannot be read
	stalls   bool                // memory and IO pressure are read
	rarely   bool                // the pressure of pods is read as by a kernel.Host
	read     time.Duration       // all at the last round
	known    bool                // that price is known
	before   market.Price        // in force before a restart
	watch    []string            // pods that looks read
	loses    func(Decision) bool // whether a publication is lost; nil: none is
}

// fakePod is a pod of one container and its load.
type fakePod struct {
	name              string
	request, declared cpu.Milli
	budget            market.Budget // 0: the request
	floor, ceiling    cpu.Milli     // constraints on its limit; 0: none
	firm              bool          // it must not be decreased
	onNeed            bool
	unmanaged         bool
	percent           int32 // of a DemandSignal
	priority          int32 // in percent; 0: none
	demand            cpu.Milli
	stops             float64 // share of the next second after which it stops; 0: it does not
	waits             float64 // share of time in which a thread waits for a CPU
	bursts            float64 // share of its periods in which a burst is throttled, whatever its mean usage is
	stalled           float64 // share of time in which all threads wait for memory
	limit             cpu.Milli
	absent            bool // its cgroup is missing
	quota             kernel.Quota
	id                string
	stat              kernel.Stat
	pressure, stall   time.Duration
	lastRead          kernel.Group // with the pressure as last read
	published         Published
	changes           int // of its limit
}

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func newWorld(pods ...*fakePod) *world {
	w := &world{cfg: DefaultConfig(), interval: time.Second, node: Node{Capacity: 4000, Allocatable: 4000}, now: epoch}
	w.join(pods...)
	return w
}

// priceAlone is a world whose pods keep nothing at any price, but their floors.
func priceAlone(pods ...*fakePod) *world {
	w := newWorld(pods...)
	w.cfg.Disagreement = disagreement.Config{}
	return w
}

// join starts pods.
func (w *world) join(pods ...*fakePod) {
	for _, p := range pods {
		p.limit = p.declared
		p.id = p.name + "-1"
		if p.budget == 0 {
			p.budget = max(2, market.Budget(p.request))
		}
	}
	w.pods = append(w.pods, pods...)
}

// run advances by seconds and returns the last round.
func (w *world) run(seconds int) (out Output) {
	for range seconds {
		out = w.tick()
	}
	return out
}

// tick advances by the interval, runs a round, and applies it.
func (w *world) tick() Output {
	w.pass(w.interval)
	return w.round()
}

// pass advances by a time, in whole CFS periods.
func (w *world) pass(d time.Duration) {
	w.now = w.now.Add(d)
	for i, use := range w.uses() {
		p, periods := w.pods[i], uint64(d/(100*time.Millisecond))
		throttled := p.limit > 0 && p.demand > p.limit && use == p.limit
		if p.stops > 0 {
			use, periods = cpu.FromCores(use.Cores()*p.stops), uint64(float64(periods)*p.stops)
		}
		spent := time.Duration(use) * d / time.Duration(cpu.Core)
		p.stat.Usage += spent
		p.pressure += time.Duration(p.waits * float64(d))
		p.stall += time.Duration(p.stalled * float64(d))
		w.all += spent
		w.kubepods += spent
		if p.limit > 0 && use > 0 {
			p.stat.Periods += periods
			if throttled {
				p.stat.Throttled += periods
			} else {
				p.stat.Throttled += uint64(p.bursts * float64(periods))
			}
		}
	}
	for _, p := range w.pods {
		if p.stops > 0 {
			p.demand, p.stops = 0, 0
		}
	}
	w.all += time.Duration(w.system) * d / time.Duration(cpu.Core)
}

// round runs a round and applies it.
func (w *world) round() (out Output) {
	in := w.input()
	if w.rarely {
		w.keepPressure(in.Sample)
	}
	w.read = w.all
	w.state, out = Run(w.cfg, w.state, in)
	w.watch = w.watch[:0]
	for _, i := range out.Watch {
		w.watch = append(w.watch, in.Pods[i].UID)
	}
	w.apply(out)
	return out
}

// look is a look at the pods that the last round watches.
func (w *world) look() (out Output) {
	w.state, out = Look(w.cfg, w.state, w.lookSample())
	w.apply(out)
	return out
}

// lookSample is what a look reads.
func (w *world) lookSample() kernel.Sample {
	all := w.input().Sample
	s := kernel.Sample{Node: kernel.NodeSample{At: w.now, Idle: all.Node.Idle}}
	for _, name := range w.watch {
		for _, p := range all.Pods {
			if p.Pod == name {
				s.Pods = append(s.Pods, p)
			}
		}
	}
	return s
}

// takeIn starts pods after a round, lets a time pass, and takes them in before the next round.
func (w *world) takeIn(d time.Duration, pods ...*fakePod) (out Output) {
	first := len(w.pods)
	w.join(pods...)
	w.pass(d)
	in := w.input()
	s := kernel.Sample{Node: kernel.NodeSample{At: w.now}, Pods: in.Sample.Pods[first:]}
	w.state, out = Join(w.cfg, w.state, in.Pods[first:], s)
	w.watch = w.watch[:0]
	for _, i := range out.Watch {
		w.watch = append(w.watch, in.Pods[i].UID)
	}
	w.apply(out)
	return out
}

// lookAndRun advances by the interval with looks, and returns their outputs and that of the round.
func (w *world) lookAndRun() (looks []Output, out Output) {
	for passed := w.cfg.LookInterval; passed < w.interval; passed += w.cfg.LookInterval {
		w.pass(w.cfg.LookInterval)
		looks = append(looks, w.look())
	}
	w.pass(w.cfg.LookInterval)
	return looks, w.round()
}

// apply publishes the decisions, which take effect at once.
func (w *world) apply(out Output) {
	for _, d := range out.Decisions {
		p := w.pod(d.UID)
		if !d.Publish || w.loses != nil && w.loses(d) {
			continue
		}
		if d.Limit != p.limit {
			p.changes++
		}
		p.published = Published{
			At: w.now, Limits: map[string]cpu.Milli{"c": d.Limit}, Demand: d.Demand, Price: d.Price, Bound: d.Bound,
			ThrottleRatio: d.ThrottleRatio,
		}
		p.limit = d.Limit
	}
}

func (w *world) input() Input {
	in := Input{Now: w.now, Node: w.node, PriceBefore: w.before, PriceBeforeKnown: w.known || w.before > 0, Sample: kernel.Sample{
		Node: kernel.NodeSample{At: w.now, Usage: kernel.Total{Known: !w.noStat, Time: w.all},
			Kubepods: kernel.Total{Known: !w.noPods, Time: w.kubepods},
			Idle:     kernel.KnownTotal(time.Duration(w.node.Capacity)*w.now.Sub(epoch)/time.Duration(cpu.Core) - w.all)},
	}}
	for _, p := range w.pods {
		floor := p.floor
		if p.firm {
			floor = p.limit
		}
		in.Pods = append(in.Pods, PodInput{
			Pod: demand.Pod{
				UID: p.name, Budget: p.budget, Weights: demand.Weights{PriorityPercent: p.priority}, Unmanaged: p.unmanaged, Ceiling: p.ceiling,
				IncreaseOnNeed: p.onNeed, DemandPercent: p.percent,
				Containers: []demand.Container{demand.Container{
					Name: "c", ID: p.id, Request: p.request, Declared: p.declared, Limit: p.limit,
				}.Within(floor, w.node.Allocatable)},
			},
			Published: p.published,
		})
		g := kernel.Group{ID: p.id}
		if !p.absent {
			g.Found, g.At, g.Stat, g.Quota = true, w.now, p.stat, p.quota
			g.Pressure = kernel.Pressure{Known: true, Some: p.pressure}
			if w.stalls {
				g.Stalls = &kernel.Stalls{Memory: kernel.Pressure{Known: true, Some: p.stall, Full: p.stall}}
			}
		}
		in.Sample.Pods = append(in.Sample.Pods, kernel.PodSample{
			Pod: p.name, Own: kernel.Group{Found: true, At: w.now}, Containers: []kernel.Group{g},
		})
	}
	return in
}

// keepPressure has pressure read as a kernel.Host reads it.
func (w *world) keepPressure(s kernel.Sample) {
	share := (w.all - w.read).Seconds() / (w.interval.Seconds() * w.node.Capacity.Cores())
	for i, p := range w.pods {
		g := &s.Pods[i].Containers[0]
		last := &p.lastRead
		if !last.Found || share >= w.cfg.PressureFrom(w.interval) || w.now.Sub(last.At) >= kernel.FullReadInterval {
			*last = *g
		}
		g.Pressure, g.PressureAt = last.Pressure, last.At
	}
}

func (w *world) pod(name string) *fakePod {
	for _, p := range w.pods {
		if p.name == name {
			return p
		}
	}
	return nil
}

// uses divides the cores as the kernel does: by weight (the request), up to the demand and the
// limit of each pod.
func (w *world) uses() []cpu.Milli {
	use, most := make([]cpu.Milli, len(w.pods)), make([]cpu.Milli, len(w.pods))
	left := w.node.Capacity - w.system
	for i, p := range w.pods {
		most[i] = p.demand
		if p.limit > 0 {
			most[i] = min(p.demand, p.limit)
		}
	}
	for {
		var weights cpu.Milli
		for i, p := range w.pods {
			if use[i] < most[i] {
				weights += max(2, p.request)
			}
		}
		if weights == 0 || left <= 0 {
			return use
		}
		share, given := left, cpu.Milli(0)
		for i, p := range w.pods {
			if use[i] < most[i] {
				more := min(most[i]-use[i], share*max(2, p.request)/weights)
				use[i] += more
				given += more
			}
		}
		if given == 0 {
			return use
		}
		left -= given
	}
}

func decision(out Output, name string) (Decision, bool) {
	for _, d := range out.Decisions {
		if d.UID == name {
			return d, true
		}
	}
	return Decision{}, false
}
