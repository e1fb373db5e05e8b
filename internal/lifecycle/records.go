package lifecycle

import (
	"time"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
)

// retryResolved ends the back-off of a refusal whose cause has changed, such as a LimitRange.
func retryResolved(s *state) verdict {
	if s.pod.Resolved {
		s.Status.RetryAt = time.Time{}
	}
	return next
}

// forgetEnded deletes the record of a pod that has ended. A pod that is being deleted takes its
// PodAllocation along.
func forgetEnded(s *state) verdict {
	if !s.pod.Ended {
		return next
	}
	s.Delete = s.pod.Recorded && !s.pod.Deleted
	if s.Delete {
		return done
	}
	return skip
}

// enroll gives a pod that takes part its record. A pod that does not, and that MBCAS never resized,
// is skipped.
func enroll(s *state) verdict {
	eligible := s.pod.Excluded.Reason == ""
	s.leaving = leavesMarket(s.pod.Excluded.Reason)
	if s.pod.Recorded {
		if s.Status.Phase == "" { // the write after its creation did not take place
			s.Report(PhasePending, reasons.NoDecisionYet, "")
		}
		return next
	}
	if s.Create = eligible && s.node.Suspended != reasons.CRDNotInstalled; s.Create {
		s.Report(PhasePending, reasons.NoDecisionYet, "")
	} else if !s.leaving || !s.pod.OwnWrites {
		return skip
	}
	return next
}

// leavesMarket says whether a pod that is excluded for this reason leaves the market for good, so
// that its declared limits are restored. Other reasons may pass, and the pod is left as it is.
func leavesMarket(r reasons.Reason) bool {
	switch r {
	case reasons.SystemNamespace, reasons.NamespaceOff, reasons.OptedOut, reasons.ManagedByVPA:
		return true
	}
	return false
}

// requireDeclared ends the decision where the declared limits are unknown: there is nothing to
// return to.
func requireDeclared(s *state) verdict {
	if s.pod.Declared != nil {
		return next
	}
	s.Delete = s.pod.Recorded && s.leaving
	s.Report(PhaseNotApplied, reasons.DeclaredLimitUnknown, "")
	return done
}

// leaveTooLarge leaves a pod alone that another client gave limits which no object of MBCAS can hold. What is
// recorded stays. Of the limits that MBCAS wrote it gives back what it took, and a restore all.
func leaveTooLarge(s *state) verdict {
	if !s.pod.TooLarge {
		return next
	}
	s.Report(PhaseNotApplied, reasons.PodTooLarge, "")
	if s.pod.Sent != nil || s.pod.Progress == actuator.InProgress || s.restoreWaits() {
		return done
	}
	all, move := s.leaving || s.pod.Mode == ModeRestore, actuator.Move{UID: s.pod.UID}
	for _, c := range s.pod.Containers {
		declared, recorded := s.Status.Declared.find(c.Name)
		to := max(declared, c.RestoreFloor)
		if recorded && c.Own && to >= c.Settable && (to > c.Limit && !c.NotRunning || all && to < c.Limit) {
			move.Changes = append(move.Changes, actuator.Change{Container: c.Name, From: c.Limit, To: to})
		}
	}
	for _, again := range []time.Time{s.Status.RetryAt, s.pod.Memory.RetryAt} {
		if s.now.Before(again) {
			s.Recheck(again)
			return done
		}
	}
	if len(move.Changes) > 0 {
		s.Move, s.Purpose, s.Why = &move, Restore, reasons.PodTooLarge
	}
	return done
}

// recordDeclared records the declared limits where the ledger or the PodAllocation lacks them.
func recordDeclared(s *state) verdict {
	p := s.pod
	if !p.InLedger || (p.Recorded || s.Create) && !s.Status.Declared.Equal(p.Declared) {
		s.Record, s.Status.Declared = p.Declared, p.Declared
	}
	return next
}

// applyConstraints takes the constraints over, with the hold-off after a rollback.
func applyConstraints(s *state) verdict {
	s.NoDecrease = s.pod.NoDecrease
	if s.afterRollback() {
		s.NoDecrease = reasons.UnhealthyAfterDecrease
	}
	return next
}

// requireReportedLimits ends the decision on a kubelet that was rolled back: its status does not
// say which limits are in force.
func requireReportedLimits(s *state) verdict {
	if s.pod.Excluded.Reason != reasons.NodeCannotResize {
		return next
	}
	s.Report(PhaseNotApplied, reasons.NodeCannotResize, s.pod.Excluded.Detail)
	return done
}
