// Package mbcas runs the code that ships, the round and the actuator's plan, as a policy of a simulated node.
// Only what lies between them is modelled: how long a decision takes to the controller, and a resize to the kernel.
package mbcas

import (
	"time"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/coordinator"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/lab/sim"
	"github.com/mbcas/mbcas/internal/round"
	"github.com/mbcas/mbcas/market"
)

// Config is how the whole path is set.
type Config struct {
	Round    round.Config
	Actuator actuator.Config
	// Interval is the time from one round to the next.
	Interval time.Duration
	// PublishDelay is the time from a decision to its plan: the write of the PodAllocation, and its watch.
	PublishDelay time.Duration
	// ResizeDelay is the time from a plan's move to the quota in the kernel; the move is known to be done after as long again.
	ResizeDelay time.Duration
	// DemandPercent is what DemandSignals have the demand of pods taken for, by their names.
	DemandPercent map[string]int32
}

// DefaultConfig is what ships.
func DefaultConfig() Config {
	return Config{
		Round: round.DefaultConfig(), Actuator: actuator.DefaultConfig(),
		Interval: time.Second, PublishDelay: 40 * time.Millisecond, ResizeDelay: sim.ResizeDelay,
	}
}

// MBCAS is the agent and the controller of one node.
type MBCAS struct {
	cfg   Config
	state round.State
	out   round.Output

	pods            map[int]*pod
	roundAt, planAt time.Duration
}

// pod is what is known of one pod beside its counters.
type pod struct {
	name      string
	spec      sim.PodSpec
	limit     cpu.Milli // in its spec
	factor    coordinator.Factor
	published round.Published
	desired   cpu.Milli
	floor     cpu.Milli
	ceiling   cpu.Milli
	doneAt    time.Duration // the last resize
	increase  time.Time
	decrease  time.Time
	demand    cpu.Milli
}

// budget is what it bids with.
func (p *pod) budget(request cpu.Milli) market.Budget {
	return demand.Budget(request, p.spec.Priority) * market.Budget(p.factor) / market.Budget(coordinator.One)
}

// New is a node's MBCAS before its first round.
func New(cfg Config) *MBCAS {
	return &MBCAS{cfg: cfg, pods: map[int]*pod{}, planAt: never}
}

const never = time.Duration(1<<63 - 1)

// epoch is the begin of simulated time: the round and the plan know no time before it.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Decide implements sim.Policy.
func (m *MBCAS) Decide(r *sim.Snapshot) ([]sim.Action, time.Duration) {
	m.trackPods(r)
	if r.Now >= m.roundAt {
		m.runRound(r)
		m.roundAt = r.Now + m.cfg.Interval
	}
	var actions []sim.Action
	if r.Now >= m.planAt {
		actions = m.planResizes(r)
	}
	return actions, min(m.roundAt, m.planAt)
}

// trackPods keeps the pods that run.
func (m *MBCAS) trackPods(r *sim.Snapshot) {
	for _, p := range r.Pods {
		if m.pods[p.ID] == nil {
			m.pods[p.ID] = &pod{name: p.Spec.Namespace + "/" + p.Spec.Name, spec: *p.Spec, limit: p.Spec.Limit, factor: coordinator.One}
		}
	}
	if len(m.pods) == len(r.Pods) {
		return
	}
	here := make(map[int]bool, len(r.Pods))
	for _, p := range r.Pods {
		here[p.ID] = true
	}
	for id := range m.pods {
		if !here[id] {
			delete(m.pods, id)
		}
	}
}

// runRound is the agent's second.
func (m *MBCAS) runRound(r *sim.Snapshot) {
	now := epoch.Add(r.Now)
	in := round.Input{
		Now:  now,
		Node: round.Node{Capacity: cpu.Milli(r.Cores) * cpu.Core, Allocatable: r.Allocatable},
		Pods: make([]round.PodInput, len(r.Pods)),
		Sample: kernel.Sample{
			Node: kernel.NodeSample{At: now, Usage: kernel.KnownTotal(r.Usage), Kubepods: kernel.KnownTotal(r.Kubepods), Pressure: kernel.Pressure{Known: true, Some: r.Pressure}},
			Pods: make([]kernel.PodSample, len(r.Pods)),
		},
	}
	byName := make(map[string]*pod, len(r.Pods))
	for i, p := range r.Pods {
		known := m.pods[p.ID]
		byName[known.name] = known
		in.Pods[i] = round.PodInput{
			Pod: demand.Pod{
				UID: known.name, Budget: known.budget(p.Request), Unmanaged: !p.Spec.Managed(), DemandPercent: m.cfg.DemandPercent[p.Spec.Name],
				Containers: []demand.Container{demand.Container{
					Name: container, ID: known.name, Request: p.Request, Declared: p.Spec.Limit, Limit: known.limit,
				}.Within(0, r.Allocatable)},
			},
			Published: known.published,
		}
		in.Sample.Pods[i] = kernel.PodSample{
			Pod: known.name, Own: kernel.Group{Found: true, At: now},
			Containers: []kernel.Group{{
				ID: known.name, Found: true, At: now,
				Stat:     kernel.Stat{Usage: p.Usage, Periods: p.Periods, Throttled: p.Throttled, ThrottledTime: p.ThrottledTime},
				Quota:    kernel.Quota{Limit: time.Duration(float64(r.Period) * p.Limit.Cores()), Period: r.Period},
				Pressure: kernel.Pressure{Known: true, Some: p.Pressure},
			}},
		}
	}
	m.state, m.out = round.Run(m.cfg.Round, m.state, in)
	for _, d := range m.out.Decisions {
		p := byName[d.UID]
		p.demand = d.Demand
		if !d.Publish {
			continue
		}
		limits := make(map[string]cpu.Milli, len(d.Containers))
		for _, c := range d.Containers {
			limits[c.Name] = c.Limit
		}
		p.published = round.Published{At: now, Limits: limits, Demand: d.Demand, Price: d.Price}
		p.desired, p.floor, p.ceiling = limits[container], d.Floor, d.Ceiling
		m.planAt = min(m.planAt, r.Now+m.cfg.PublishDelay)
	}
}

// container is the name of the one container of a simulated pod.
const container = "main"

// planResizes is the controller's look at the node.
func (m *MBCAS) planResizes(r *sim.Snapshot) []sim.Action {
	m.planAt = never
	now := epoch.Add(r.Now)
	var pods []actuator.Pod
	var ids []int
	full := false
	for _, p := range r.Pods {
		known := m.pods[p.ID]
		if known.desired == 0 {
			continue
		}
		full = full || known.published.Price > 0
		if r.Now < known.doneAt {
			m.planAt = min(m.planAt, known.doneAt)
		}
		ids = append(ids, p.ID)
		pods = append(pods, actuator.Pod{
			UID: known.name, InFlight: r.Now < known.doneAt, LastDecrease: known.decrease, LastIncrease: known.increase,
			Containers: []actuator.Container{{
				Name: container, Limit: known.limit, Declared: p.Spec.Limit, Floor: known.floor, Ceiling: known.ceiling, Desired: known.desired,
			}},
		})
	}
	var actions []sim.Action
	for _, step := range actuator.Plan(m.cfg.Actuator, now, full, pods) {
		if !step.RecheckAt.IsZero() {
			m.planAt = min(m.planAt, step.RecheckAt.Sub(epoch))
		}
		if step.Move == nil {
			continue
		}
		known := m.pods[ids[step.Pod]]
		known.limit = step.Move.Changes[0].To
		known.doneAt = r.Now + 2*m.cfg.ResizeDelay
		if step.Move.Lowers() {
			known.decrease = now
		} else {
			known.increase = now
		}
		m.planAt = min(m.planAt, known.doneAt)
		actions = append(actions, sim.Action{Pod: ids[step.Pod], Limit: known.limit, Delay: m.cfg.ResizeDelay})
	}
	return actions
}

// Price implements sim.Priced.
func (m *MBCAS) Price() market.Price { return m.out.Node.Price }

// Demand implements sim.Priced.
func (m *MBCAS) Demand(id int) cpu.Milli {
	if p := m.pods[id]; p != nil {
		return p.demand
	}
	return 0
}
