package lifecycle

import (
	"fmt"
	"slices"
	"time"

	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
)

// agentStart is how long an agent may take to renew its Lease once its node is Ready: its container
// has to be started first.
const agentStart = time.Minute

// chooseRestore decides whether the pod returns to its declared limits, and why. In mode recommend, where it is
// not published, and where its agent cannot decide about it, nothing is decided for it any more, so what MBCAS took
// is given back, and nothing is taken.
func chooseRestore(s *state) verdict {
	switch {
	case s.leaving:
		s.Why = reasons.Unmanaging
	case s.pod.Mode == ModeRestore:
		s.Why = reasons.Restoring
	case s.pod.Mode == ModeEnforce && s.node.lost(s.cfg, s.now):
		s.Why = reasons.AgentUnresponsive
	case s.pod.Mode == ModeRecommend && s.lowered():
		s.Why, s.raiseOnly = reasons.Recommending, true
	case s.pod.Mode == ModeEnforce && s.pod.NotPublished && s.lowered():
		s.Why, s.raiseOnly = reasons.NotPublished, true
	case s.pod.Mode == ModeEnforce && s.undecided() >= s.cfg.RestoreAfter && !s.node.Outage:
		s.Why, s.raiseOnly = reasons.DecisionTooOld, true
	default:
		return next
	}
	s.restoring, s.Purpose = true, Restore
	return next
}

// undecided is for how long an agent that lives could not decide about the pod, whose limit is lowered.
func (s *state) undecided() time.Duration {
	if s.pod.Decision == nil || s.node.LeaseAge >= s.cfg.FreezeAfter || !s.lowered() {
		return 0
	}
	return s.pod.Decision.Unconfirmed
}

// lowered says whether a limit is below the one that a restore returns to.
func (s *state) lowered() bool {
	to := s.pod.RestoreLimits()
	return slices.ContainsFunc(s.pod.Current(), func(l Limit) bool { return l.CPU < to.Of(l.Container) })
}

// endRestore ends the restore of a pod at its declared limits, and with the quota that these call for. One that leaves the
// market then needs no record any more.
func endRestore(s *state) verdict {
	if !s.restoring || s.repair != nil || s.Supersedes || !s.pod.Current().Equal(s.pod.RestoreLimits()) {
		return next
	}
	s.settle()
	if s.Report(PhaseRestored, s.Why, s.pod.raisedRequests()); s.pod.Quota.Wrong() {
		s.Report(PhaseNotApplied, reasons.PodQuotaDiffers, s.pod.Quota.String())
	}
	switch {
	case s.quotaWrong: // it is repaired later
	case !s.knowsQuota(): // without a record its agent would report no wrong quota
		s.Report(PhasePending, s.Why, "its agent has yet to report the CPU quota of the pod's cgroup")
		s.awaitReport(s.Status.LastApplied)
	default:
		s.Delete = s.leaving && s.pod.Recorded
	}
	return done
}

// raisedRequests says which declared limits cannot be set, and why; "" if all can.
func (p *Pod) raisedRequests() (text string) {
	for _, c := range p.Containers {
		if declared, ok := p.Declared.find(c.Name); ok && c.RestoreFloor > declared {
			text = fmt.Sprintf("the CPU request of container %s was raised above its declared limit of %v, so its limit is %v",
				c.Name, declared, c.RestoreFloor)
		}
	}
	return text
}

// Unresponsive is for how long the agent could have renewed its Lease and did not. While the node
// was not Ready, and for agentStart after that, it could not: a node that comes back is not
// restored before its agent can renew.
func (n *Node) Unresponsive(now time.Time) time.Duration {
	if !n.Ready || n.ReadySince.IsZero() {
		return n.LeaseAge
	}
	return min(n.LeaseAge, now.Sub(n.ReadySince)-agentStart)
}

// lost says whether the node's agent alone has failed, and for so long that the node is restored.
func (n *Node) lost(cfg *Config, now time.Time) bool {
	return n.Unresponsive(now) >= cfg.RestoreAfter && !n.Outage && !n.LeaseUnread
}

// livenessChanges is when the age of the Lease has a consequence that it does not have yet.
func (s *state) livenessChanges() time.Time {
	if age := s.node.LeaseAge; age < s.cfg.FreezeAfter {
		return s.now.Add(s.cfg.FreezeAfter - age)
	}
	if age := s.node.Unresponsive(s.now); age < s.cfg.RestoreAfter {
		return s.now.Add(s.cfg.RestoreAfter - age)
	}
	return time.Time{}
}
