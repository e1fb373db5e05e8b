package lifecycle

import (
	"slices"
	"time"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
)

// rollBackHarmful restores the limits from before a decrease after which the pod got into trouble.
// The pod then keeps at least its declared limit for RollbackHoldOff: whatever the figures said, it
// needed more.
func rollBackHarmful(s *state) verdict {
	if s.restoring || s.pod.Mode != ModeEnforce {
		return next
	}
	if !s.afterRollback() {
		var at time.Time
		if s.Harm, at = s.harm(); s.Harm != "" {
			if !s.now.Before(at.Add(s.cfg.RollbackHoldOff)) {
				at = s.now // the news is older than the hold-off, and the pod still has to be rolled back
			}
			s.Status.LastHarmfulDecrease = at
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

// afterRollback says whether a decrease did harm less than RollbackHoldOff ago.
func (s *state) afterRollback() bool {
	at := s.Status.LastHarmfulDecrease
	return !at.IsZero() && s.now.Before(at.Add(s.cfg.RollbackHoldOff))
}

// Harm is what shows that a decrease was harmful.
type Harm string

// Kinds of harm.
const (
	HarmUnready Harm = "unready" // the pod ceased to be Ready
	HarmRestart Harm = "restart" // a container failed
)

// harm says whether the pod ceased to be Ready, or a container failed, in the run of decreases or
// soon after the last of them, and when; "": neither. What was found once is not found again. The
// kubelet dates in whole seconds. News may be older than this look; harm is no older than the last
// decrease, as the whole run is rolled back.
func (s *state) harm() (shown Harm, at time.Time) {
	st := &s.Status
	if st.LastDecrease.IsZero() || st.RollbackWindowStart.IsZero() || len(st.RollbackLimits) == 0 || !s.node.Ready {
		return "", at
	}
	from, to := st.RollbackWindowStart.Truncate(time.Second), st.LastDecrease.Add(s.cfg.RollbackWindow)
	note := func(kind Harm, t, nodeUp time.Time) {
		found := !st.LastHarmfulDecrease.IsZero() && !t.After(st.LastHarmfulDecrease)
		if t.IsZero() || t.Before(from) || t.After(to) || !t.After(nodeUp) || found {
			return
		}
		if shown != HarmRestart { // which makes the pod unready, too
			shown = kind
		}
		at = slices.MaxFunc([]time.Time{at, t, st.LastDecrease}, time.Time.Compare)
	}
	for _, c := range s.pod.Containers {
		if _, ours := s.pod.Declared.find(c.Name); !ours {
			continue
		}
		for _, end := range c.FailedAt {
			note(HarmRestart, end, s.node.ReadySince)
		}
	}
	note(HarmUnready, s.pod.UnreadySince, s.node.ReadySince.Add(settling))
	return shown, at
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
		if c.Desired > c.Limit {
			m.Changes = append(m.Changes, actuator.Change{Container: c.Name, From: c.Limit, To: c.Desired})
		}
	}
	if len(m.Changes) == 0 {
		return nil
	}
	return &m
}

// recordDecrease records the limits before a decrease. In a run of decreases, those at its
// beginning count.
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
		st.RollbackLimits = append(st.RollbackLimits, Limit{l.Container, max(l.CPU, before.Of(l.Container))})
	}
}
