package mbcas

import (
	"time"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/lab/sim"
	"github.com/mbcas/mbcas/internal/lifecycle"
	"github.com/mbcas/mbcas/internal/quota"
)

// runningBefore is how long pods that run at time 0 have run: a simulation starts on a node in
// operation.
const runningBefore = time.Hour

// planResizes is one reconciliation of the node by the controller.
func (m *MBCAS) planResizes(r *sim.Snapshot) []sim.Action {
	m.planAt, m.livenessAt = never, never
	m.receive(r.Now)
	now := epoch.Add(r.Now)
	var ids []int
	var pods []lifecycle.Pod
	for i := range r.Pods {
		p := &r.Pods[i]
		if !p.Spec.Managed() {
			continue
		}
		known := m.pods[p.ID]
		if r.Now < known.doneAt {
			m.planAt = min(m.planAt, known.doneAt)
		}
		ids = append(ids, i)
		facts := known.facts(p, r, now, r.Now-m.renewedAt)
		if m.cfg.Recommend {
			facts.Mode = lifecycle.ModeRecommend
		}
		pods = append(pods, facts)
	}
	node := lifecycle.Node{Ready: true, LeaseAge: r.Now - m.renewedAt}
	freeze := now.Add(m.cfg.Lifecycle.FreezeAfter - node.LeaseAge)
	var actions []sim.Action
	for _, t := range lifecycle.Decide(m.cfg.Lifecycle, node, pods, now) {
		switch at := t.RecheckAt; {
		case at.IsZero():
		case at.Equal(freeze):
			m.livenessAt = at.Sub(epoch)
		default:
			m.planAt = min(m.planAt, max(r.Now+time.Millisecond, at.Sub(epoch)))
		}
		p := &r.Pods[ids[t.Pod]]
		if a, ok := m.carryOut(&t, p, r, now); ok {
			actions = append(actions, a)
		}
	}
	return actions
}

// receive takes the decisions that have arrived.
func (m *MBCAS) receive(now time.Duration) {
	for len(m.arriving) > 0 && m.arriving[0].at <= now {
		m.arriving[0].pod.decision = &m.arriving[0].decision
		m.arriving = m.arriving[1:]
	}
	if len(m.arriving) > 0 {
		m.planAt = min(m.planAt, m.arriving[0].at)
	}
}

// facts are what the controller's caches say about a pod.
func (p *pod) facts(s *sim.PodSnapshot, r *sim.Snapshot, now time.Time, leaseAge time.Duration) lifecycle.Pod {
	c := p.bounds(s.Request, r.Allocatable)
	started := now.Add(-s.Age)
	if s.Spec.Start == 0 {
		started = started.Add(-runningBefore)
	}
	facts := lifecycle.Pod{
		UID: p.name, Mode: lifecycle.ModeEnforce, Ready: s.UnreadySince == 0, OwnWrites: true,
		Recorded: true, InLedger: true, Declared: lifecycle.Limits{{Container: container, CPU: p.declared}},
		Status: p.status, Memory: p.memory, HPA: s.Spec.Constraints.HPA, LatestWins: true, QuotaShort: p.share > 0,
		Containers: []lifecycle.Container{{
			Name: container, Limit: p.limit, InForce: s.Limit, PossiblyOwn: p.ours, Settable: c.Settable,
			Floor: c.Floor, NoDecreaseFloor: keptFloor(c), Ceiling: c.Ceiling, StartedAt: started,
		}},
	}
	if s.UnreadySince > 0 {
		facts.UnreadySince = epoch.Add(s.UnreadySince)
	}
	if s.Spec.Constraints.NoDecrease {
		facts.NoDecrease = reasons.NoDisruptionAllowed
		if s.Spec.Constraints.HPA {
			facts.NoDecrease = reasons.ScaledByHPA
		}
	}
	if r.Now < p.doneAt {
		facts.Progress = actuator.InProgress
	}
	if p.decision != nil {
		d := *p.decision
		made := now.Sub(p.published.At)
		d.Age = min(made, leaseAge) // a renewal of the Lease confirms every decision
		d.RevokedFor = max(0, d.RevokedFor-made)
		facts.Decision = &d
	}
	return facts
}

// carryOut records a task and returns its resize, as far as quotas leave room for it.
func (m *MBCAS) carryOut(t *lifecycle.Task, s *sim.PodSnapshot, r *sim.Snapshot, now time.Time) (sim.Action, bool) {
	p := m.pods[s.ID]
	if t.Record != nil {
		p.declared = t.Record.Of(container)
	}
	p.status, p.memory.WaitsSince = t.Status, t.WaitsSince
	if t.Move == nil {
		return sim.Action{}, false
	}
	from, to := p.limit, t.Move.Changes[0].To
	if to > from {
		if to = from + m.grant(p, s, r, to-from); to == from {
			t.Postpone(reasons.WaitingForQuota, "", now.Add(m.cfg.Interval))
			m.planAt = min(m.planAt, r.Now+m.cfg.Interval)
			p.status = t.Status
			return sim.Action{}, false
		}
	}
	t.Resized(m.cfg.Lifecycle, now, limits(from), limits(to), &p.memory)
	p.status, p.limit, p.ours, p.doneAt = t.Status, to, true, r.Now+m.cfg.ResizeDone.Draw(m.draws)
	m.planAt = min(m.planAt, p.doneAt)
	return sim.Action{Pod: s.ID, Limit: to, Delay: m.cfg.ResizeDelay}, true
}

func limits(m cpu.Milli) lifecycle.Limits { return lifecycle.Limits{{Container: container, CPU: m}} }

// divideQuotas gives each managed pod its share of the quotas of its namespace that do not suffice
// for all.
func (m *MBCAS) divideQuotas(r *sim.Snapshot) {
	for _, q := range r.Quotas {
		room := m.room(q, r)
		var pods []*pod
		var claims []quota.Claim
		for i := range r.Pods {
			s := &r.Pods[i]
			if s.Spec.Namespace != q.Namespace || !s.Spec.Managed() {
				continue
			}
			p := m.pods[s.ID]
			c := p.claim(s, r.Allocatable)
			if percent := m.cfg.DemandPercent[s.Spec.Name]; percent > 100 {
				c.Demand = c.Demand * cpu.Milli(percent) / 100
			}
			pods, claims = append(pods, p), append(claims, c)
		}
		shares, short := m.cfg.Quota.Share(room, claims)
		for i, p := range pods {
			share := cpu.Milli(0)
			if short {
				share = shares[i]
			}
			if share != p.share {
				p.share = share
				m.planAt = r.Now
			}
		}
	}
}

// claim is the pod's part in a quota.
func (p *pod) claim(s *sim.PodSnapshot, allocatable cpu.Milli) quota.Claim {
	last := p.share
	p.share = 0 // the share bounds neither the floor nor the highest limit of a claim
	c := p.bounds(s.Request, allocatable)
	p.share = last
	return quota.Claim{
		Own: max(c.Floor, p.declared), Most: c.Ceiling, Demand: p.published.Demand, Budget: p.budget(s.Request), Last: last,
	}
}

// room is what a quota leaves. It counts the limits in the specs of pods, as the API server does.
func (m *MBCAS) room(q sim.Quota, r *sim.Snapshot) quota.Room {
	room := quota.Room{Hard: q.Limits}
	for i := range r.Pods {
		s := &r.Pods[i]
		if s.Spec.Namespace != q.Namespace {
			continue
		}
		room.Used += m.pods[s.ID].limit
		if !s.Spec.Managed() {
			room.Others += m.pods[s.ID].limit
		}
	}
	return room
}

// grant is how much of an increase fits the quotas. An increase shows in them at once, so nothing
// has to be reserved.
func (m *MBCAS) grant(p *pod, s *sim.PodSnapshot, r *sim.Snapshot, increase cpu.Milli) cpu.Milli {
	own := p.claim(s, r.Allocatable).Own
	below := max(0, min(increase, own-p.limit))
	above := increase - below
	for _, q := range r.Quotas {
		if q.Namespace == s.Spec.Namespace {
			below, above = m.cfg.Quota.Grant(m.room(q, r), 0, below, above)
		}
	}
	return (below + above).RoundDown(cpu.Quantum)
}
