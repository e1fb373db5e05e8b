package lifecycle

import (
	"time"

	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
)

// agentStart is how long an agent may take to renew its Lease once its node is Ready: its container
// has to be started first.
const agentStart = time.Minute

// chooseRestore decides whether the pod returns to its declared limits, and why.
func chooseRestore(s *state) verdict {
	switch {
	case s.leaving:
		s.Why = reasons.Unmanaging
	case s.pod.Mode == ModeRestore:
		s.Why = reasons.Restoring
	case s.pod.Mode == ModeEnforce && s.unresponsive() >= s.cfg.RestoreAfter:
		s.Why = reasons.AgentUnresponsive
	default:
		return next
	}
	s.restoring, s.Purpose = true, Restore
	return next
}

// endRestore ends the restore of a pod at its declared limits. One that leaves the market needs no
// record any more.
func endRestore(s *state) verdict {
	if !s.restoring || !s.pod.Current().Equal(s.pod.Declared) {
		return next
	}
	s.settle()
	s.Report(PhaseRestored, s.Why, "")
	s.Delete = s.leaving && s.pod.Recorded
	return done
}

// unresponsive is for how long the agent could have renewed its Lease and did not. While the node
// was not Ready, and for agentStart after that, it could not: a node that comes back is not
// restored before its agent can renew.
func (s *state) unresponsive() time.Duration {
	if !s.node.Ready || s.node.ReadySince.IsZero() {
		return s.node.LeaseAge
	}
	return min(s.node.LeaseAge, s.now.Sub(s.node.ReadySince)-agentStart)
}

// livenessChanges is when the age of the Lease has a consequence that it does not have yet.
func (s *state) livenessChanges() time.Time {
	if age := s.node.LeaseAge; age < s.cfg.FreezeAfter {
		return s.now.Add(s.cfg.FreezeAfter - age)
	}
	if age := s.unresponsive(); age < s.cfg.RestoreAfter {
		return s.now.Add(s.cfg.RestoreAfter - age)
	}
	return time.Time{}
}
