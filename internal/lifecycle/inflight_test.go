package lifecycle

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
)

// TestTellsWhatARevertWaitsFor: of a revert that is not made the message tells, after the failure that calls for
// it, what it waits for now, until it is made. The reason stays that of the failure.
func TestTellsWhatARevertWaitsFor(t *testing.T) {
	cfg, m := DefaultConfig(), Memory{}
	same := func(d time.Duration) time.Duration { return d }
	r := Task{Purpose: Revert}
	r.Refused(cfg, noon, Cause{reasons.ResizeInfeasible, "no room"}, same)
	failure := r.Status.Message
	says := func(want string) {
		t.Helper()
		if s := r.Status; s.Phase != PhaseFailed || s.Reason != reasons.ResizeInfeasible || s.Message != want {
			t.Errorf("%s %s %q, want the message %q", s.Phase, s.Reason, s.Message, want)
		}
	}
	waits := failure + "; the limits in force are not back in the spec: "
	r.ReportWait(reasons.WaitingForQuota, "")
	says(waits + reasons.WaitingForQuota.Sentence())
	for range 2 {
		r.Unanswered(cfg, noon, Answer{Reason: reasons.PolicyRefused, Detail: "not today"}, same, &m)
		says(waits + reasons.PolicyRefused.Sentence() + ": not today")
	}
	r.Resized(cfg, noon, app(100), app(200), &m)
	says(failure)
	r.Refused(cfg, noon, Cause{reasons.ResizeInfeasible, strings.Repeat("é", 2000)}, same)
	r.ReportWait(reasons.WaitingForQuota, "")
	if n := len([]rune(r.Status.Message)); n > 1024 || !strings.Contains(r.Status.Message, reasons.WaitingForQuota.Sentence()) {
		t.Errorf("%d characters: %s", n, r.Status.Message)
	}
}

// TestWaitsForTheAnswer: while the answer to a resize is awaited nothing is concluded from what the pod
// shows, and a decrease among these holds up the increases of capped pods.
func TestWaitsForTheAnswer(t *testing.T) {
	cfg := DefaultConfig()
	sent := running("sent", 800, 1000, constraint{}) // the cache shows the resize, no record does
	sent.Recorded, sent.InLedger, sent.Status.Declared = true, true, sent.Declared
	sent.Status.Phase, sent.Status.Reason = PhasePending, reasons.ResizeInFlight
	sent.Decision = &Decision{Limits: app(800), Demand: 500, Budget: 100, Price: 1}
	sent.Sent = &actuator.Move{UID: "sent", Changes: []actuator.Change{{Container: "app", From: 1000, To: 800}}}
	other := running("other", 500, 500, constraint{})
	other.Recorded, other.InLedger, other.Status.Declared = true, true, other.Declared
	other.Decision = &Decision{Limits: app(1500), Demand: 3000, Budget: 100, Price: 1}
	node := Node{Ready: true}
	tasks := map[int]Task{}
	for _, t := range Decide(cfg, node, []Pod{sent, other}, noon) {
		tasks[t.Pod] = t
	}
	if got := tasks[0]; got.Move != nil || got.Status.Reason != sent.Status.Reason || !got.Status.LastApplied.IsZero() {
		t.Errorf("the pod whose answer is awaited: %+v", got)
	}
	if got := tasks[1]; got.Move != nil || got.Status.Reason != reasons.WaitingForDecreases || !got.WaitsSince.Equal(noon) {
		t.Errorf("the capped pod: %+v, want it to wait since now", got)
	}
	other.Memory.WaitsSince = noon.Add(-cfg.Actuator.DecreasesWait)
	for _, got := range Decide(cfg, node, []Pod{sent, other}, noon) {
		if got.Pod == 1 && (got.Move == nil || !got.WaitsSince.Equal(other.Memory.WaitsSince)) {
			t.Errorf("after the wait: %+v, want the increase", got)
		}
	}
}

// TestAnIncreaseSupersedes: with a decrease in flight an increase is made at once, and recorded beside what the decrease
// left for a rollback. Whatever keeps it from being made leaves the record of the decrease, and its time, as they are.
// Histories: testdata/supersede*.txt.
func TestAnIncreaseSupersedes(t *testing.T) {
	cfg, sent := DefaultConfig(), noon.Add(-2*time.Second)
	same := func(d time.Duration) time.Duration { return d }
	lowering := running("web", 1000, 500, constraint{})
	lowering.Recorded, lowering.LatestWins, lowering.Progress = true, true, actuator.InProgress
	lowering.Decision = &Decision{Limits: app(2000)}
	lowering.Status = Status{
		Phase: PhasePending, Reason: reasons.ResizeInFlight, Declared: app(500), Applied: app(1000),
		LastApplied: sent, LastDecrease: sent, LastIncrease: sent.Add(-time.Minute), RollbackLimits: app(1500), RollbackWindowStart: sent,
	}
	got := decideOne(t, cfg, Node{Ready: true}, lowering, noon)
	if got.Move == nil || got.Move.Changes[0].To != 2000 || !got.Supersedes || !reflect.DeepEqual(got.Status.Applied, app(1000)) {
		t.Fatalf("%+v, want the increase, and the decrease as it was recorded", got)
	}
	refused, m := got, Memory{}
	refused.Unanswered(cfg, noon, Answer{Reason: reasons.ServerUnavailable}, same, &m)
	if s := refused.Status; s.Reason != reasons.ResizeInFlight || !s.LastApplied.Equal(sent) || m.RetryAt.IsZero() {
		t.Errorf("not answered: %+v, want the record of the decrease, and a back-off", s)
	}
	got.Resized(cfg, noon, app(1000), app(2000), &m)
	s := got.Status
	if !s.LastIncrease.Equal(noon) || !s.LastApplied.Equal(noon) || !s.LastDecrease.Equal(sent) || !s.RollbackLimits.Equal(app(1500)) || got.Supersedes {
		t.Errorf("resized: %+v", s)
	}
	for name, c := range map[string]struct {
		edit func(*Pod, *Node)
		late bool // and the decrease has timed out
	}{
		"the kubelet is older":       {edit: func(p *Pod, _ *Node) { p.LatestWins = false }},
		"a quota is short":           {edit: func(p *Pod, _ *Node) { p.QuotaShort = true }},
		"the increase is in flight":  {edit: func(p *Pod, _ *Node) { p.Status.LastIncrease = sent }},
		"it is within the dead band": {edit: func(p *Pod, _ *Node) { p.Decision.Limits = app(1050) }},
		"MBCAS is paused":            {edit: func(_ *Pod, n *Node) { n.Suspended = reasons.Paused }},
		"the node is not Ready":      {edit: func(_ *Pod, n *Node) { n.Ready = false }},
		"the decision is old":        {edit: func(p *Pod, _ *Node) { p.Decision.Age = time.Hour }},
		"it backs off":               {edit: func(p *Pod, _ *Node) { p.Memory.RetryAt = noon.Add(time.Second) }},
		"the decrease is late":       {edit: func(p *Pod, n *Node) { n.Ready = false }, late: true},
	} {
		p, n, at, want := lowering, Node{Ready: true}, noon, reasons.ResizeInFlight
		p.Decision = &Decision{Limits: app(2000)}
		if c.edit(&p, &n); c.late {
			at, want = sent.Add(cfg.ActuationTimeout), reasons.ResizeTimedOut
		}
		got := decideOne(t, cfg, n, p, at)
		if got.Move != nil || got.Status.Reason != want || !got.Status.LastApplied.Equal(sent) {
			t.Errorf("%s: %v, %+v, want the decrease in flight (%s)", name, got.Move, got.Status, want)
		}
	}
}

// TestARevertBacksOff: a revert that the API server did not answer is asked for again when its back-off
// ends, and not before.
func TestARevertBacksOff(t *testing.T) {
	p := running("web", 2000, 500, constraint{})
	p.Recorded, p.InLedger, p.Progress = true, true, actuator.Deferred
	p.Containers[0].InForce = 500
	p.Status = Status{
		Phase: PhaseFailed, Reason: reasons.ResizeDeferred, Declared: p.Declared, Applied: app(2000),
		LastApplied: noon, RetryAt: noon.Add(time.Minute), Failures: 1,
	}
	retry := noon.Add(10 * time.Second)
	p.Memory.RetryAt = retry
	if got := Decide(DefaultConfig(), Node{Ready: true}, []Pod{p}, noon)[0]; got.Move != nil || !got.RecheckAt.Equal(retry) {
		t.Errorf("before the back-off ends: %+v", got)
	}
	if got := Decide(DefaultConfig(), Node{Ready: true}, []Pod{p}, retry)[0]; got.Move == nil || got.Purpose != Revert {
		t.Errorf("after the back-off: %+v", got)
	}
}
