package round

import (
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/market"
)

// world is a node in arithmetic: containers use what they want, held by their limits, and by their weights
// where the cores do not suffice. It obeys published decisions at once.
type world struct {
	cfg      Config
	every    time.Duration // from one tick to the next
	node     Node
	now      time.Time
	state    State
	pods     []*tenant
	all      time.Duration // CPU time of the whole machine
	kubepods time.Duration
	system   cpu.Milli // use outside of pods
	noStat   bool      // the machine's use can't be read
	noPods   bool      // the pods' total can't be read
	stalls   bool      // memory and IO pressure are read
}

func (w *world) total(t time.Duration, unread bool) kernel.Total {
	if unread {
		return kernel.Total{}
	}
	return kernel.KnownTotal(t)
}

// tenant is a pod of one container and its load.
type tenant struct {
	name              string
	request, declared cpu.Milli
	budget            market.Budget // 0: the request
	least, most       cpu.Milli     // terms for its limit; 0: none
	firm              bool          // it is not to be lowered
	onNeed            bool
	shadow            bool
	percent           int32 // what its demand is to be taken for
	want              cpu.Milli
	stops             float64 // share of the next second after which it rests; 0: it goes on
	waits             float64 // share of the time in which a thread of it waits for a CPU
	bursts            float64 // share of its periods in which a burst of it is throttled, whatever it uses on average
	stalled           float64 // share of the time in which all of it waits for memory
	limit             cpu.Milli
	absent            bool // its cgroup is not there
	quota             kernel.Quota
	id                string
	stat              kernel.Stat
	pressure, stall   time.Duration
	published         Published
	changes           int // of its limit
}

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func newWorld(pods ...*tenant) *world {
	w := &world{cfg: DefaultConfig(), every: time.Second, node: Node{Capacity: 4000, Allocatable: 4000}, now: epoch}
	w.join(pods...)
	return w
}

// join starts pods.
func (w *world) join(pods ...*tenant) {
	for _, p := range pods {
		p.limit = p.declared
		p.id = p.name + "-1"
		if p.budget == 0 {
			p.budget = max(2, market.Budget(p.request))
		}
	}
	w.pods = append(w.pods, pods...)
}

// run lets seconds pass and returns what the last round said.
func (w *world) run(seconds int) (out Output) {
	for range seconds {
		out = w.tick()
	}
	return out
}

// tick lets a second (or what every says) pass, plays a round, and obeys it.
func (w *world) tick() Output {
	w.now = w.now.Add(w.every)
	for i, use := range w.uses() {
		p, periods := w.pods[i], uint64(w.every/(100*time.Millisecond))
		throttled := p.limit > 0 && p.want > p.limit && use == p.limit
		if p.stops > 0 {
			use, periods = cpu.FromCores(use.Cores()*p.stops), uint64(float64(periods)*p.stops)
		}
		spent := time.Duration(use) * w.every / time.Duration(cpu.Core)
		p.stat.Usage += spent
		p.pressure += time.Duration(p.waits * float64(w.every))
		p.stall += time.Duration(p.stalled * float64(w.every))
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
			p.want, p.stops = 0, 0
		}
	}
	w.all += time.Duration(w.system) * w.every / time.Duration(cpu.Core)
	var out Output
	w.state, out = Run(w.cfg, w.state, w.input())
	for _, d := range out.Decisions {
		p := w.tenant(d.UID)
		if !d.Publish {
			continue
		}
		if d.Limit != p.limit {
			p.changes++
		}
		p.published = Published{At: w.now, Limits: map[string]cpu.Milli{"c": d.Limit}, Demand: d.Demand, Price: d.Price}
		p.limit = d.Limit
	}
	return out
}

func (w *world) input() Input {
	in := Input{Now: w.now, Node: w.node, Sample: kernel.Sample{
		Node: kernel.NodeSample{At: w.now, Usage: w.total(w.all, w.noStat), Kubepods: w.total(w.kubepods, w.noPods)},
	}}
	for _, p := range w.pods {
		least := p.least
		if p.firm {
			least = p.limit
		}
		in.Pods = append(in.Pods, PodInput{
			Pod: demand.Pod{
				UID: p.name, Budget: p.budget, Unmanaged: p.shadow, Ceiling: p.most, RaiseOnNeed: p.onNeed, DemandPercent: p.percent,
				Containers: []demand.Container{demand.Container{
					Name: "c", ID: p.id, Request: p.request, Declared: p.declared, Limit: p.limit,
				}.Within(least, w.node.Allocatable)},
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

func (w *world) tenant(name string) *tenant {
	for _, p := range w.pods {
		if p.name == name {
			return p
		}
	}
	return nil
}

// uses shares the cores as the kernel does: by weight (the request), up to what each wants and may use.
func (w *world) uses() []cpu.Milli {
	use, most := make([]cpu.Milli, len(w.pods)), make([]cpu.Milli, len(w.pods))
	left := w.node.Capacity - w.system
	for i, p := range w.pods {
		most[i] = p.want
		if p.limit > 0 {
			most[i] = min(p.want, p.limit)
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
