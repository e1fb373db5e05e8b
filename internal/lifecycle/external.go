package lifecycle

import (
	"time"

	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
)

// yieldToExternalChange makes limits that MBCAS did not write the declared ones, and leaves the pod
// alone for a while.
func yieldToExternalChange(s *state) verdict {
	if adopted, external := s.adopt(); external {
		s.yield(adopted)
		return done
	}
	if !yielded(s.Status.Reason) || s.Status.RetryAt.IsZero() {
		return next
	}
	if s.now.Before(s.Status.RetryAt) {
		s.Recheck(s.Status.RetryAt)
		if s.pod.Mode != ModeRestore { // the declared limits are in force already
			return done
		}
		return next
	}
	s.settle()
	return next
}

// yield records the external change, and how long the pod is left alone.
func (s *state) yield(adopted Limits) {
	reason, holdOff := reasons.ExternalChange, s.cfg.ExternalChangeHoldOff
	if s.conflicting() {
		reason, holdOff = reasons.ConflictingWriter, s.cfg.RollbackHoldOff
	}
	retry := s.now.Add(holdOff)
	st := &s.Status
	st.LastExternalChange, st.RollbackLimits, st.RollbackWindowStart = s.now, nil, time.Time{}
	st.Declared, st.RetryAt, st.Failures = adopted, retry, 0
	st.Applied = s.pod.Current()
	s.Record = adopted
	s.Report(PhaseNotApplied, reason, "")
	s.Recheck(retry)
	if s.pod.Mode == ModeRestore { // then they are the limits to restore, and may be in force
		s.Recheck(s.now.Add(time.Second))
	}
}

// yielded says whether the reason is an external change.
func yielded(r reasons.Reason) bool {
	return r == reasons.ExternalChange || r == reasons.ConflictingWriter
}

// conflicting says whether this is the second external change within the window, with a resize of
// ours in between. Two changes in a row by the same hand are no conflict.
func (s *state) conflicting() bool {
	last, applied := s.Status.LastExternalChange, s.Status.LastApplied
	return !last.IsZero() && s.now.Sub(last) < s.cfg.ConflictWindow && applied.After(last)
}

// adopt returns the declared limits after an external change; external is false where there was
// none. A limit that MBCAS did not write was changed externally when it is not what MBCAS last
// applied, or when another manager wrote it since the last external change: it may have set a limit
// of MBCAS back to the one before. Where the pod does not tell which manager wrote it, what this
// process saw and sent does.
func (s *state) adopt() (declared Limits, external bool) {
	declared = append(declared, s.pod.Declared...)
	for _, c := range s.pod.Containers {
		own := c.Own || c.PossiblyOwn && !(s.pod.Memory.Witnessed && c.Limit != s.pod.Memory.Sent.Of(c.Name))
		if !s.pod.managed(c) || own {
			continue
		}
		applied, ok := s.pod.Status.Applied.find(c.Name)
		if !ok {
			applied = s.pod.Declared.Of(c.Name)
		}
		setBack := c.ResizedByOther.After(s.Status.LastExternalChange.Add(clockTolerance))
		for i := range declared {
			if declared[i].Container == c.Name && (c.Limit != applied || setBack) {
				declared[i].CPU, external = c.Limit, true
			}
		}
	}
	return declared, external
}
