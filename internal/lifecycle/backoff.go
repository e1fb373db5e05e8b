package lifecycle

import (
	"strings"
	"time"

	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
)

// Resized records a resize that the API server stored.
func (t *Task) Resized(cfg Config, now time.Time, from, to Limits, m *Memory) {
	m.RetryAt, m.Troubles, m.WaitsSince = time.Time{}, 0, time.Time{}
	if t.Purpose != Revert { // a revert belongs to the resize that it takes back
		m.RestoreRefused = t.Purpose == Restore
	}
	m.Repairs.applied(cfg, now, t.Purpose, from, to)
	t.Supersedes = false // what was in flight is replaced
	t.resized(now, t.Purpose, from, to, &cfg)
	t.Recheck(now.Add(cfg.ActuationTimeout))
}

// Refused records a refusal and sets the back-off: it doubles with each failure in a row, and jitter
// spreads it.
func (t *Task) Refused(cfg Config, now time.Time, c Cause, jitter func(time.Duration) time.Duration) {
	r, detail := c.Reason, c.Detail
	t.Status.RetryAt = now.Add(jitter(Doubled(cfg.Backoff, cfg.BackoffMax, int(t.Status.Failures))))
	t.Status.Failures++
	t.Report(PhaseFailed, r, detail)
	t.Recheck(t.Status.RetryAt)
}

// Answer is what the API server, or its absence, said about a resize that was not made.
type Answer struct {
	Reason     reasons.Reason
	Detail     string
	RetryAfter time.Duration // that the server asks for; 0: it does not
}

// Unanswered has a resize tried again later that the API server did not answer. The wait doubles
// with each time in a row; jitter spreads it, and the server may ask for more.
func (t *Task) Unanswered(cfg Config, now time.Time, a Answer, jitter func(time.Duration) time.Duration, m *Memory) {
	wait := max(jitter(Doubled(cfg.ServerBackoff, cfg.ServerBackoffMax, m.Troubles)), a.RetryAfter)
	m.Troubles++
	m.RetryAt = now.Add(wait)
	t.Postpone(a.Reason, a.Detail, m.RetryAt)
}

// Postpone leaves the pod as it is until then. A failure says more than the wait.
func (t *Task) Postpone(r reasons.Reason, detail string, until time.Time) {
	t.Recheck(until)
	if t.Purpose == Revert || t.Status.Phase != PhaseFailed {
		t.ReportWait(r, detail)
	}
}

// ReportWait says what the resize waits for. Of a revert that is added to the failure that calls for it; of one
// that supersedes a decrease in flight nothing is said, as the status still tells of that decrease.
func (t *Task) ReportWait(r reasons.Reason, detail string) {
	switch {
	case t.Supersedes:
		return
	case t.Purpose != Revert:
		t.Report(PhaseNotApplied, r, detail)
		return
	}
	failure := []rune(failureAlone(t.Status.Message))
	t.Status.Message = bounded(string(failure[:min(len(failure), longestMessage/2)]) + revertWaits + Sentence(r, detail))
}

// revertWaits comes between what failed and what its revert waits for.
const revertWaits = "; the limits in force are not back in the spec: "

// failureAlone is the message of a failure without what its revert waits for.
func failureAlone(message string) string {
	failure, _, _ := strings.Cut(message, revertWaits)
	return failure
}

// Leave leaves the pod alone for a short while, without a word: it is about to be gone, or the answer
// concerns more than this pod.
func (t *Task) Leave(cfg Config, now time.Time, jitter func(time.Duration) time.Duration, m *Memory) {
	m.RetryAt = now.Add(jitter(cfg.ServerBackoff))
	t.Recheck(m.RetryAt)
}

// Doubled is a wait that doubles n times, up to most.
func Doubled(wait, most time.Duration, n int) time.Duration {
	for range min(n, 16) {
		wait = min(2*wait, most)
	}
	return wait
}
