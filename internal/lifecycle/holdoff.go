package lifecycle

import (
	"time"

	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
)

// holdOffs are the states in which a pod is not resized, whatever is desired, in the order in which
// they count. Those that a restore ignores do not keep a pod from its declared limits.
var holdOffs = []struct {
	restoreIgnores bool
	applies        func(*state) Cause
}{
	{true, func(s *state) Cause { return s.pod.Excluded }},
	{true, func(s *state) Cause { return when(s.pod.NotPublished, reasons.NotPublished) }},
	{true, recommends},
	{false, func(s *state) Cause { return Cause{Reason: s.node.Suspended} }},
	{false, func(s *state) Cause { return when(s.node.Unknown, reasons.NodeUnknown) }},
	{false, func(s *state) Cause { return when(s.node.ShuttingDown, reasons.NodeShuttingDown) }},
	{false, func(s *state) Cause { return when(!s.node.Ready, reasons.NodeNotReady) }},
	{false, func(s *state) Cause { return when(s.node.Draining, reasons.NodeDraining) }},
	{false, func(s *state) Cause { return when(s.node.Pressure, reasons.NodeUnderPressure) }},
	{false, func(s *state) Cause { return when(s.pod.Evicted, reasons.NodeEvicting) }},
	{true, func(s *state) Cause { return when(s.node.LeaseAge >= s.cfg.FreezeAfter, reasons.AgentUnresponsive) }},
	{true, func(s *state) Cause {
		if s.pod.UnknownAutoscaler == "" {
			return Cause{}
		}
		return Cause{reasons.AutoscalerLookupFailed, s.pod.UnknownAutoscaler}
	}},
	{true, func(s *state) Cause { return s.pod.Refused }}, // a restore is tried all the same
}

// restoreWaits says whether a restore has to wait, too.
func (s *state) restoreWaits() bool {
	for _, h := range holdOffs {
		if !h.restoreIgnores && h.applies(s).Reason != "" {
			return true
		}
	}
	return s.pod.Excluded.Reason == reasons.NodeCannotResize
}

// recommends holds off in mode recommend, and says so where limits stay above the declared ones.
func recommends(s *state) Cause {
	if s.pod.Mode != ModeRecommend {
		return Cause{}
	}
	c := Cause{Reason: reasons.Recommending}
	if !s.pod.Current().Equal(s.pod.RestoreLimits()) {
		c.Detail = "the limits that MBCAS raised stay until the mode is restore or off"
	}
	if limits, until := s.startupLimits(); limits != nil {
		c.Detail = "in mode enforce the limits would be at least " + limits.String() + " while the pod starts"
		s.Recheck(until)
	}
	return c
}

func when(applies bool, r reasons.Reason) Cause {
	if !applies {
		return Cause{}
	}
	return Cause{Reason: r}
}

// holdOff leaves the pod as it is where it may not be resized now. What blocks the whole
// installation is reported there, and not in the status of each pod.
func holdOff(s *state) verdict {
	s.Recheck(s.livenessChanges())
	for _, h := range holdOffs {
		if (s.restoring || s.repair != nil) && h.restoreIgnores {
			continue
		}
		c := h.applies(s)
		if c.Reason != "" && s.Supersedes {
			return s.leaveInFlight()
		}
		if c.Reason != "" && c.Reason == s.node.Suspended {
			return done
		}
		if c.Reason != "" {
			s.Report(PhaseNotApplied, c.Reason, c.Detail)
			return done
		}
	}
	return next
}

// noDecrease is why the pod is not lowered at the moment, and when that may end by itself; zero: it
// does not.
func (s *state) noDecrease() (why reasons.Reason, until time.Time) {
	if end := s.Status.LastHarmfulDecrease.Add(s.cfg.RollbackWindow); s.afterRollback() && s.now.Before(end) {
		return reasons.UnhealthyAfterDecrease, end
	}
	if forfeited, from := s.boostForfeited(); !s.pod.Ready && !forfeited {
		return reasons.PodNotReady, from
	}
	for _, c := range s.pod.Containers {
		if c.StartedAt.IsZero() {
			continue
		}
		r, grace := reasons.PodStarting, s.cfg.StartGrace
		if c.Restarts > 0 {
			r, grace = reasons.RecentlyRestarted, s.cfg.RestartGrace
		}
		if end := c.StartedAt.Add(grace); s.now.Before(end) {
			why, until = r, Earlier(until, end)
		}
	}
	return why, until
}
