package idleclass

import (
	"time"

	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/round"
	"github.com/mbcas/mbcas/market"
)

// Setting is what the kernel shall do with one pod: class and weight of the pod's own cgroup.
type Setting struct {
	UID string
	// Idle puts the pod into the idle class (cpu.idle). The weight counts again when it leaves the class.
	Idle bool
	// Weight is a cpu.weight of cgroup v2, from 1 to 10000, on the scale of the kubelet: see WeightOf.
	Weight uint64
	// Class says whether class and weight hold the pod down, and why not.
	Class Class
}

// State is what a decision keeps for the next. The zero value is that of the first.
type State struct {
	at        time.Time         // of the last decision
	changedAt time.Time         // when the class last changed
	pods      map[string]memory // of pods that have opted in, now or lately, by UID
	// since is which pods the last decision knew and when it first did, by UID; zero: when it started.
	since map[string]time.Time
}

// isNew says whether a pod that has not opted in before has just started. Those that were there at the first decision,
// or came while there was none, have not.
func (s State) isNew(cfg Config, uid string, now time.Time) bool {
	if _, known := s.pods[uid]; known || s.at.IsZero() || now.Sub(s.at) >= cfg.NewFor {
		return false
	}
	since, known := s.since[uid]
	return !known || now.Sub(since) < cfg.NewFor
}

// Weighted says whether class and weight hold the pod down, so that the next round need not: round.PodInput.Weighted.
// It is false before the first decision about the pod, also after a time in which it had not opted in, and for one that
// saturates and stays outside of the class: because of its request, or because others take more that cannot enter it.
func (s State) Weighted(uid string) bool {
	m, decided := s.pods[uid]
	return decided && m.absentSince.IsZero() && !m.heldOff
}

// Decide is the decision after a round: one setting for each managed pod that has opted in, in the order of the
// input. optedIn says so by UID, and may say it of pods only while class and weight are written. It consumes the
// state: use the returned one.
func Decide(
	cfg Config, s State, in round.Input, out round.Output, optedIn func(uid string) bool,
) (State, []Setting) {
	n := observe(cfg, s, in, out, optedIn)
	for _, p := range n.pods {
		p.note(cfg, n)
	}
	changed := n.release(cfg)
	changed = n.leaveShort(cfg, s.changedAt) || changed
	changed = n.enter(cfg, s.changedAt) || changed
	n.leaveToLimits(cfg)

	after := State{
		at: in.Now, changedAt: s.changedAt, pods: make(map[string]memory, len(n.pods)), since: s.sinceAfter(in),
	}
	if changed {
		after.changedAt = in.Now
	}
	settings := make([]Setting, 0, len(n.pods))
	for _, p := range n.pods {
		if changed { // usage of before it shows no saturation after it
			p.saturatesFor = -cfg.Settle
		}
		after.pods[p.uid] = p.memory
		weight := ownWeight(p.budget, p.request, out.Node.Price)
		if p.probation > 0 {
			weight = smallWeight(p.budget, p.request, out.Node.Price)
		}
		settings = append(settings, Setting{p.uid, p.idle, weight, p.class(cfg)})
	}
	for i := range in.Pods {
		uid := in.Pods[i].UID
		m, known := s.pods[uid]
		if _, decided := after.pods[uid]; known && !decided {
			if m = m.absent(in.Now); in.Now.Sub(m.absentSince) < cfg.LongestHoldOff {
				after.pods[uid] = m
			}
		}
	}
	return after, settings
}

// SettingOfStarting is that of a pod that does not run yet, so that it has a small weight when it does.
func SettingOfStarting(p demand.Pod, price market.Price) Setting {
	return Setting{p.UID, false, smallWeight(p.Budget, requestOf(p), price), OnProbation}
}

// sinceAfter is which pods a decision knows, and when one first did.
func (s State) sinceAfter(in round.Input) map[string]time.Time {
	first := in.Now
	if s.at.IsZero() {
		first = time.Time{}
	}
	since := make(map[string]time.Time, len(in.Pods))
	for i := range in.Pods {
		uid := in.Pods[i].UID
		known, ok := s.since[uid]
		if since[uid] = known; !ok {
			since[uid] = first
		}
	}
	return since
}
