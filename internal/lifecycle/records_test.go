package lifecycle

import (
	"testing"
	"time"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
)

// TestAnEmptyStatusIsPending: a PodAllocation whose first status was not written reports that it is pending,
// during a pause, too.
func TestAnEmptyStatusIsPending(t *testing.T) {
	p := running("web", 500, 500, constraint{})
	p.Recorded = true
	node := up
	node.Suspended = reasons.Paused
	if got := decideOne(t, DefaultConfig(), node, p, noon); got.Status.Phase != PhasePending || got.Status.Reason != reasons.NoDecisionYet {
		t.Errorf("status %s %s", got.Status.Phase, got.Status.Reason)
	}
}

// TestUnpublishedPodsGetBackWhatWasTaken: nothing is decided about a pod that is not published. A lowered
// limit goes back to the declared one, and a raised limit stays.
func TestUnpublishedPodsGetBackWhatWasTaken(t *testing.T) {
	for limit, want := range map[cpu.Milli]cpu.Milli{500: 1000, 1000: 0, 2000: 0} {
		p := applied(limit, 1000)
		p.NotPublished = true
		got := decideOne(t, DefaultConfig(), up, p, noon)
		if got.to() != want || want == 0 && (got.Status.Phase != PhaseNotApplied || got.Status.Reason != reasons.NotPublished) {
			t.Errorf("at %v: to %v, status %s %s; want %v", limit, got.to(), got.Status.Phase, got.Status.Reason, want)
		}
	}
}

// TestTooLargePodsAreRestored: a pod whose limits no object can hold gets back what MBCAS took. In restore
// mode it returns to the recorded limits.
func TestTooLargePodsAreRestored(t *testing.T) {
	raised := func(p *Pod) { p.Declared, p.Status.Declared = app(300), app(300) }
	for name, c := range map[string]struct {
		change func(*Pod)
		want   cpu.Milli
	}{
		"enforced":              {func(*Pod) {}, 1000},
		"enforced, and raised":  {raised, 0},
		"restored, and raised":  {func(p *Pod) { raised(p); p.Mode = ModeRestore }, 300},
		"restored":              {func(p *Pod) { p.Mode = ModeRestore }, 1000},
		"its request is raised": {func(p *Pod) { raised(p); p.Mode, p.Containers[0].RestoreFloor = ModeRestore, 400 }, 400},
		"opted out":             {func(p *Pod) { p.Excluded.Reason = reasons.OptedOut }, 1000},
		"another writer's":      {func(p *Pod) { p.Mode, p.Containers[0].Own = ModeRestore, false }, 0},
		"it does not run":       {func(p *Pod) { p.Mode, p.Containers[0].NotRunning = ModeRestore, true }, 0},
		"a resize is in flight": {func(p *Pod) { p.Mode, p.Progress = ModeRestore, actuator.InProgress }, 0},
		"nothing is recorded":   {func(p *Pod) { p.Mode, p.Status.Declared, p.Containers[0].RestoreFloor = ModeRestore, nil, 600 }, 0},
		"an answer is awaited":  {func(p *Pod) { p.Mode, p.Sent = ModeRestore, &actuator.Move{} }, 0},
		"after a refusal":       {func(p *Pod) { p.Mode, p.Status.RetryAt = ModeRestore, noon.Add(time.Minute) }, 0},
	} {
		p := applied(500, 1000)
		p.TooLarge, p.Containers[0].Own, p.Status.Declared = true, true, app(1000)
		c.change(&p)
		if got := decideOne(t, DefaultConfig(), up, p, noon); got.to() != c.want || got.Status.Reason != reasons.PodTooLarge {
			t.Errorf("%s: %s to %v, status %s %s; want %v", name, got.Purpose, got.to(), got.Status.Phase, got.Status.Reason, c.want)
		}
	}
}
