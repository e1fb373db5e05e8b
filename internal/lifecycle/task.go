package lifecycle

import (
	"time"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
)

// Purpose is what a resize is for.
type Purpose string

// Purposes, as audit lines and metrics write them.
const (
	Allocate Purpose = "allocate" // the market's decision
	Restore  Purpose = "restore"  // back to the declared limits
	Revert   Purpose = "revert"   // back to the limits in force, after the kubelet could not carry a resize out
	Rollback Purpose = "rollback" // back to the limits before a harmful decrease
	Startup  Purpose = "startup"  // above the declared limits while the pod starts
	Repair   Purpose = "repair"   // by a quantum and back, so that the kubelet writes the quota of the pod's cgroup
	StepBack Purpose = "stepback" // down to limits with which a container can start
)

// Phase is where the allocation of a pod stands.
type Phase string

const (
	PhasePending    Phase = "Pending"    // undecided, or a resize is in flight
	PhaseApplied    Phase = "Applied"    // the limits are as decided
	PhaseNotApplied Phase = "NotApplied" // deliberately not applied; the reason says why
	PhaseFailed     Phase = "Failed"     // the last resize was refused or failed
	PhaseRestored   Phase = "Restored"   // the limits are as declared
)

// Status is what is recorded of a pod and survives a restart. Zero times and nil limits: none.
type Status struct {
	Phase   Phase
	Reason  reasons.Reason
	Message string

	Declared Limits
	// Applied are the limits that MBCAS last applied, at LastApplied.
	Applied                                 Limits
	LastApplied, LastIncrease, LastDecrease time.Time
	// RollbackLimits are those before the run of decreases that began at RollbackWindowStart.
	RollbackLimits      Limits
	RollbackWindowStart time.Time
	LastHarmfulDecrease time.Time // when harm by a decrease was found
	LastExternalChange  time.Time
	// RetryAt is when a refused or failed resize may be tried again, after Failures in a row.
	RetryAt  time.Time
	Failures int32
}

func (s *Status) lastApplied(declared Limits) Limits {
	if len(s.Applied) == 0 {
		return declared
	}
	return s.Applied
}

// Task is what to do about one pod, in this order: record, create, resize, report, delete.
type Task struct {
	Pod int // its index in the pods that were decided about
	// Record are the declared limits to write to the ledger before anything else; nil: nothing new.
	Record Limits
	Create bool // the PodAllocation
	Move   *actuator.Move
	// Purpose is what Move is for, and Why what calls for it if not the market.
	Purpose Purpose
	Why     reasons.Reason
	// Supersedes: a decrease of the pod is in flight, and Move, if there is one, takes its place. Until it
	// does, the status tells of that decrease alone.
	Supersedes bool
	// Status is what to record when nothing is resized.
	Status Status
	// NoDecrease is why the pod must not be decreased, by a constraint or after a rollback.
	NoDecrease reasons.Reason
	// Harm is what has just shown that a decrease of the pod was harmful; "": nothing.
	Harm Harm
	// Done: the resize in flight has just been found carried out.
	Done   bool
	Delete bool // the PodAllocation is not needed any more
	// WaitsSince is when the increase of the pod began to wait for decreases; zero: it does not want one. It
	// is remembered until the pod is looked at again.
	WaitsSince time.Time
	// RecheckAt is when to look again even if nothing changes; zero: no need.
	RecheckAt time.Time
}

// Report sets the phase with its reason, and the reason's sentence as message.
func (t *Task) Report(p Phase, r reasons.Reason, detail string) {
	t.Status.Phase, t.Status.Reason, t.Status.Message = p, r, Sentence(r, detail)
}

// AwaitRecord has the task wait until its declared limits can be recorded in the ledger. What returns a
// pod to limits that its PodAllocation, with that status, records does not wait, unless the ledger has
// others: of two records that differ, none is certain.
func (t *Task) AwaitRecord(stored Status, others bool) {
	if t.Move != nil && t.Purpose != Allocate && t.Purpose != Startup && stored.Declared.Equal(t.Record) && !others {
		return
	}
	t.Record, t.Move, t.Status = nil, nil, stored
	if stored.LastApplied.IsZero() && stored.RetryAt.IsZero() { // else its status says more
		t.Report(PhaseNotApplied, reasons.LimitsNotRecorded, "")
	}
}

// Recheck has the pod looked at again no later than at.
func (t *Task) Recheck(at time.Time) { t.RecheckAt = Earlier(t.RecheckAt, at) }

// Earlier is the earlier of two times, of which zero is none.
func Earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// settle forgets past failures.
func (t *Task) settle() { t.Status.Failures, t.Status.RetryAt = 0, time.Time{} }

// Sentence is the reason in a sentence with what the server or the kubelet said, within the bounds
// of the API.
func Sentence(r reasons.Reason, detail string) string {
	s := r.Sentence()
	if detail != "" {
		s += ": " + detail
	}
	return bounded(s)
}

// longestMessage is the bound of the API, in characters.
const longestMessage = 1024

func bounded(message string) string {
	if runes := []rune(message); len(runes) > longestMessage {
		return string(runes[:longestMessage])
	}
	return message
}
