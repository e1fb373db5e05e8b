package mbcas

import (
	"slices"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/lab/sim"
	"github.com/mbcas/mbcas/internal/lifecycle"
	"github.com/mbcas/mbcas/internal/record"
	"github.com/mbcas/mbcas/internal/round"
	"github.com/mbcas/mbcas/market"
)

// runRound is one round of the agent.
func (m *MBCAS) runRound(r *sim.Snapshot) {
	now := epoch.Add(r.Now)
	in := round.Input{
		Now:  now,
		Node: round.Node{Capacity: cpu.Milli(r.Cores) * cpu.Core, Allocatable: r.Allocatable},
		Pods: make([]round.PodInput, len(r.Pods)),
		Sample: kernel.Sample{
			Node: kernel.NodeSample{
				At: now, Idle: idleTime(r), Usage: kernel.KnownTotal(r.Usage), Kubepods: kernel.KnownTotal(r.Kubepods),
				Pressure: kernel.Pressure{Known: true, Some: r.Pressure},
			},
			Pods: make([]kernel.PodSample, len(r.Pods)),
		},
	}
	byName := make(map[string]*pod, len(r.Pods))
	m.members = m.members[:0]
	for i := range r.Pods {
		p := &r.Pods[i]
		m.members = append(m.members, p.ID)
		known := m.pods[p.ID]
		byName[known.name] = known
		in.Pods[i] = m.input(known, p, r.Allocatable)
		in.Sample.Pods[i] = sample(known, p, r, now)
	}
	if m.cfg.Record != nil {
		m.cfg.Record.Begin(now, m.cfg.Round, &m.state)
	}
	m.state, m.out = round.Run(m.cfg.Round, m.state, in)
	if m.cfg.Record != nil {
		m.cfg.Record.Round(in, namesOf(r.Pods), &m.out)
	}
	m.watch(m.out.Watch)
	m.publish(r, m.out.Decisions, byName)
}

// watch has looks read these of the members.
func (m *MBCAS) watch(members []int) {
	m.watched = m.watched[:0]
	for _, i := range members {
		m.watched = append(m.watched, m.members[i])
	}
}

// join takes in the managed pods that have started since the last round.
func (m *MBCAS) join(r *sim.Snapshot) {
	now := epoch.Add(r.Now)
	var pods []round.PodInput
	var joining []sim.PodSnapshot
	in := kernel.Sample{Node: kernel.NodeSample{At: now}}
	byName := map[string]*pod{}
	for i := range r.Pods {
		p := &r.Pods[i]
		if !p.Spec.Managed() || slices.Contains(m.members, p.ID) {
			continue
		}
		known := m.pods[p.ID]
		byName[known.name] = known
		m.members = append(m.members, p.ID)
		joining = append(joining, *p)
		pods, in.Pods = append(pods, m.input(known, p, r.Allocatable)), append(in.Pods, sample(known, p, r, now))
	}
	if len(pods) == 0 {
		return
	}
	var out round.Output
	m.state, out = round.Join(m.cfg.Round, m.state, pods, in)
	if m.cfg.Record != nil {
		m.cfg.Record.Join(record.Join{At: now, Pods: pods, Sample: in}, namesOf(joining), &out)
	}
	m.joinedAt = r.Now
	m.watch(out.Watch)
	m.publish(r, out.Decisions, byName)
	if m.lookAt == never {
		m.lookAt = r.Now
		m.planLook()
	}
}

// namesOf are the names of pods for a recording.
func namesOf(pods []sim.PodSnapshot) []record.Name {
	names := make([]record.Name, len(pods))
	for i := range pods {
		names[i] = record.Name{Namespace: pods[i].Spec.Namespace, Name: pods[i].Spec.Name}
	}
	return names
}

// look is a look of the agent between two rounds.
func (m *MBCAS) look(r *sim.Snapshot) {
	now := epoch.Add(r.Now)
	in := kernel.Sample{Node: kernel.NodeSample{At: now, Idle: idleTime(r)}, Pods: make([]kernel.PodSample, len(m.watched))}
	byName := make(map[string]*pod, len(m.watched))
	for i := range r.Pods {
		p := &r.Pods[i]
		if at := slices.Index(m.watched, p.ID); at >= 0 {
			known := m.pods[p.ID]
			byName[known.name] = known
			in.Pods[at] = sample(known, p, r, now)
		}
	}
	for i := range in.Pods {
		if in.Pods[i].Containers == nil { // it has gone
			in.Pods[i].Containers = make([]kernel.Group, 1)
		}
	}
	var out round.Output
	m.state, out = round.Look(m.cfg.Round, m.state, in)
	if m.cfg.Record != nil {
		m.cfg.Record.Look(record.Look{At: now, Sample: in}, &out)
	}
	if len(out.Decisions) > 0 {
		m.publish(r, out.Decisions, byName)
	}
}

// idleTime is the idle time of the CPUs.
func idleTime(r *sim.Snapshot) kernel.Total {
	return kernel.KnownTotal(time.Duration(r.Cores)*r.Now - r.Usage)
}

// publish sends the decisions to publish to the controller.
func (m *MBCAS) publish(r *sim.Snapshot, decisions []round.Decision, byName map[string]*pod) {
	now, arrives := epoch.Add(r.Now), r.Now+m.cfg.Publish.Draw(m.draws)
	if n := len(m.arriving); n > 0 {
		arrives = max(arrives, m.arriving[n-1].at)
	}
	for i := range decisions {
		d := &decisions[i]
		p := byName[d.UID]
		if p.demand = d.Demand; d.Publish {
			m.arriving = append(m.arriving, publication{arrives, p, p.publish(d, now)})
			m.planAt = min(m.planAt, m.arriving[0].at)
		}
	}
}

// input is a pod as its agent knows it from the API server.
func (m *MBCAS) input(known *pod, p *sim.PodSnapshot, allocatable cpu.Milli) round.PodInput {
	c := known.bounds(p.Request, allocatable)
	if p.Spec.Constraints.NoDecrease {
		c.Floor = keptFloor(c)
	}
	return round.PodInput{
		Pod: demand.Pod{
			UID: known.name, Weights: known.weights(), Budget: known.budget(p.Request), Unmanaged: !p.Spec.Managed(), IncreaseOnNeed: known.share > 0,
			DemandPercent: m.cfg.DemandPercent[p.Spec.Name], Containers: []demand.Container{c},
		},
		Published: known.published,
	}
}

// sample is a pod's counters as its agent reads them.
func sample(known *pod, p *sim.PodSnapshot, r *sim.Snapshot, now time.Time) kernel.PodSample {
	return kernel.PodSample{
		Pod: known.name, Own: kernel.Group{Found: true, At: now},
		Containers: []kernel.Group{{
			ID: known.name, Found: true, At: now,
			Stat:     kernel.Stat{Usage: p.Usage, Periods: p.Periods, Throttled: p.Throttled, ThrottledTime: p.ThrottledTime},
			Quota:    kernel.Quota{Limit: time.Duration(float64(r.Period) * p.Limit.Cores()), Period: r.Period},
			Pressure: kernel.Pressure{Known: true, Some: p.Pressure},
		}},
	}
}

// publish writes a decision to the pod's PodAllocation, and returns what the controller will read.
func (p *pod) publish(d *round.Decision, now time.Time) lifecycle.Decision {
	limits := make(map[string]cpu.Milli, len(d.Containers))
	for _, c := range d.Containers {
		limits[c.Name] = c.Limit
	}
	p.published = round.Published{
		At: now, Limits: limits, Demand: d.Demand, Price: d.Price, Bound: d.Bound, ThrottleRatio: d.ThrottleRatio,
	}
	p.floor, p.ceiling = d.Floor, d.Ceiling
	return lifecycle.Decision{
		Limits: lifecycle.Limits{{Container: container, CPU: limits[container]}},
		Price:  d.Price, Demand: d.Demand, Budget: d.Budget, AtFloor: d.Bound == market.ByFloor, RevokedFor: d.RevokedFor,
	}
}
