package lifecycle

import (
	"slices"
	"time"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
)

// rollBackHarmful restores the limits from before a decrease after which the pod got into trouble, up to the declared
// ones. The pod then keeps at least its declared limit for RollbackHoldOff: whatever the figures said, it needed more.
func rollBackHarmful(s *state) verdict {
	if s.restoring || s.pod.Mode != ModeEnforce {
		return next
	}
	if !s.afterRollback() {
		if s.Harm = s.harm(); s.Harm != "" {
			s.Status.LastHarmfulDecrease = s.now
			s.NoDecrease = reasons.UnhealthyAfterDecrease
		}
	}
	if !s.afterRollback() {
		return next
	}
	s.Recheck(s.Status.LastHarmfulDecrease.Add(s.cfg.RollbackHoldOff))
	if s.RolledBack(s.pod) {
		s.Status.RollbackLimits, s.Status.RollbackWindowStart = nil, time.Time{}
		return next
	}
	m := s.rollback()
	if m == nil || s.now.Before(s.Status.RetryAt) || s.now.Before(s.pod.Memory.RetryAt) {
		return next
	}
	s.Move, s.Purpose, s.Why = m, Rollback, reasons.UnhealthyAfterDecrease
	s.ReportWait(reasons.UnhealthyAfterDecrease, "")
	return done
}

// afterRollback says whether harm by a decrease was found less than RollbackHoldOff ago.
func (s *state) afterRollback() bool {
	at := s.Status.LastHarmfulDecrease
	return !at.IsZero() && s.now.Before(at.Add(s.cfg.RollbackHoldOff))
}

// Harm is what shows that a decrease was harmful.
type Harm string

// Kinds of harm.
const (
	HarmUnready Harm = "unready" // the pod ceased to be Ready
	HarmRestart Harm = "restart" // a container ended
)

// harm says whether the pod ceased to be Ready, or a container ended, in the run of decreases or
// soon after the last of them; "": neither. What was found once is not found again. The kubelet dates in whole
// seconds.
func (s *state) harm() Harm {
	st := &s.Status
	if st.LastDecrease.IsZero() || st.RollbackWindowStart.IsZero() || len(st.RollbackLimits) == 0 || !s.node.Ready {
		return ""
	}
	from, to := st.RollbackWindowStart.Truncate(time.Second), st.LastDecrease.Add(s.cfg.RollbackWindow)
	soon := func(at, nodeUp time.Time) bool {
		found := !st.LastHarmfulDecrease.IsZero() && !at.After(st.LastHarmfulDecrease)
		return !at.IsZero() && !at.Before(from) && !at.After(to) && at.After(nodeUp) && !found
	}
	ended := slices.ContainsFunc(s.pod.Containers, func(c Container) bool {
		_, ours := s.pod.Declared.find(c.Name)
		return ours && slices.ContainsFunc(c.EndedAt, func(at time.Time) bool { return soon(at, s.node.ReadySince) })
	})
	switch {
	case ended: // which makes the pod unready, too
		return HarmRestart
	case soon(s.pod.UnreadySince, s.node.ReadySince.Add(settling)):
		return HarmUnready
	}
	return ""
}

// settling is how long after a node became Ready its pods may be unready only because of that: up
// to Kubernetes 1.34, a kubelet that starts takes pods for not Ready until it has probed them
// (setReadyStateOnKubeletRestart in pkg/kubelet/prober is newer).
const settling = 10 * time.Second

// RolledBack says whether the limits from before the decrease are in force again: one part of them
// may have been restored before another, and the kubelet may have failed to carry one out.
func (t *Task) RolledBack(p *Pod) bool {
	now := p.Current()
	return p.Progress == actuator.Done && !slices.ContainsFunc(t.Status.RollbackLimits, func(l Limit) bool {
		limit, ok := now.find(l.Container)
		return ok && limit < l.CPU
	})
}

// rollback is the move to the limits from before the decrease, as far as the bounds allow; nil
// where there is nothing to restore.
func (s *state) rollback() *actuator.Move {
	if s.Status.LastDecrease.After(s.Status.LastHarmfulDecrease) {
		return nil // what was taken since was above a ceiling, or above the declared limit
	}
	m := actuator.Move{UID: s.pod.UID}
	for _, c := range s.planned(s.Status.RollbackLimits).Containers {
		if c.Desired > c.Limit && !c.NotRunning {
			m.Changes = append(m.Changes, actuator.Change{Container: c.Name, From: c.Limit, To: c.Desired})
		}
	}
	if len(m.Changes) == 0 {
		return nil
	}
	return &m
}

// recordDecrease records the limits before a decrease, up to the declared ones: what the market gave beyond these it
// may take back. In a run of decreases, those at its beginning count.
func (t *Task) recordDecrease(cfg *Config, at time.Time, from, to Limits) {
	st := &t.Status
	if !slices.ContainsFunc(from, func(l Limit) bool { return to.Of(l.Container) < l.CPU }) {
		return
	}
	var before Limits
	if !st.LastDecrease.IsZero() && at.Sub(st.LastDecrease) < cfg.RollbackWindow && !st.RollbackWindowStart.IsZero() {
		before = st.RollbackLimits
	} else {
		st.RollbackWindowStart = at
	}
	st.RollbackLimits = nil
	for _, l := range from {
		was := max(l.CPU, before.Of(l.Container))
		if declared, ok := st.Declared.find(l.Container); ok {
			was = min(was, declared)
		}
		st.RollbackLimits = append(st.RollbackLimits, Limit{l.Container, was})
	}
}
