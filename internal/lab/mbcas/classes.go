package mbcas

import (
	"time"

	"github.com/mbcas/mbcas/internal/idleclass"
	"github.com/mbcas/mbcas/internal/lab/sim"
	"github.com/mbcas/mbcas/internal/round"
)

// restoreAfter is how long the program that writes class and weight hears nothing of the agent until it restores what
// the kubelet wrote.
const restoreAfter = 10 * time.Second

// decideClasses is what the agent decides after a round about class and weight. All managed pods have opted in.
func (m *MBCAS) decideClasses(in round.Input, r *sim.Snapshot, byName map[string]*pod) {
	if !m.cfg.Weights {
		return
	}
	var settings []idleclass.Setting
	m.idle, settings = idleclass.Decide(m.cfg.IdleClass, m.idle, in, m.out, func(string) bool { return m.weighted })
	want := make(map[string]sim.Class, len(settings))
	m.decided = make(map[string]idleclass.Class, len(settings))
	for _, s := range settings {
		m.decided[s.UID] = s.Class
		class := sim.Class{Idle: s.Idle}
		if s.Weight != idleclass.WeightOf(byName[s.UID].spec.Request) { // else it is the kubelet's
			class.Shares = weightShares(s.Weight)
		}
		want[s.UID] = class
	}
	m.writeClasses(r, want)
}

// startClass gives a pod that starts a small weight. On a node that is written about a second before its containers run,
// when the kubelet makes its cgroup.
func (m *MBCAS) startClass(r *sim.Snapshot, p *sim.PodSnapshot, known *pod) {
	if !m.weighted || r.Outage || !p.Spec.Managed() {
		return
	}
	input := m.input(known, p, r.Allocatable)
	setting := idleclass.SettingOfStarting(input.Pod, m.out.Node.Price)
	known.class = sim.Class{Shares: weightShares(setting.Weight)}
	m.classes = append(m.classes, sim.Action{Pod: p.ID, Class: &known.class})
}

// weightShares are the cpu.shares of a cpu.weight on the kubelet's scale.
func weightShares(weight uint64) float64 { return float64((weight-1)*262142/9999 + 2) }

// restoreClasses restores what the kubelet wrote when the agent has not been heard of for restoreAfter.
func (m *MBCAS) restoreClasses(r *sim.Snapshot) {
	if r.Outage && r.Now-m.renewedAt >= restoreAfter {
		m.writeClasses(r, nil)
		m.idle, m.decided = idleclass.State{}, nil
	}
}

// writeClasses has the pods' classes written as far as they change. A pod that is not named gets the kubelet's.
func (m *MBCAS) writeClasses(r *sim.Snapshot, want map[string]sim.Class) {
	for i := range r.Pods {
		p := m.pods[r.Pods[i].ID]
		if class := want[p.name]; class != p.class {
			p.class = class
			m.classes = append(m.classes, sim.Action{Pod: r.Pods[i].ID, Class: &class, Delay: sim.ClassDelay})
		}
	}
}
