package lifecycle

import (
	"testing"
	"time"

	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
)

// TestHoldsDecisions: a pod that is held is not changed by a decision, and says why where it would be. Its rollbacks and
// restores go on.
func TestHoldsDecisions(t *testing.T) {
	cfg, hold := DefaultConfig(), Cause{reasons.NoChangeWindow, "it ends soon"}
	node := Node{Ready: true, ReadySince: noon.Add(-time.Hour)}
	decided := func(limit, desired cpu.Milli) Pod {
		p := running("web", limit, 500, constraint{})
		p.Recorded, p.Hold = true, hold
		p.Status = Status{Declared: app(500), Applied: app(limit), LastApplied: noon.Add(-time.Hour)}
		p.Decision = &Decision{Limits: app(desired), Demand: desired, Budget: 100}
		return p
	}
	for _, desired := range []cpu.Milli{300, 900} {
		got := decideOne(t, cfg, node, decided(500, desired), noon)
		if want := Sentence(hold.Reason, hold.Detail); got.Move != nil || got.Status.Reason != hold.Reason || got.Status.Message != want {
			t.Errorf("to %v: move %v, status %+v", desired, got.Move, got.Status)
		}
	}
	hold.Reason = reasons.HarmSpread
	if got := decideOne(t, cfg, node, decided(300, 900), noon); got.Move == nil || got.Move.Changes[0].To != 500 {
		t.Errorf("while harm has spread, from below the declared limit: move %v, want the declared one", got.Move)
	}
	hold.Reason = reasons.NoChangeWindow
	if got := decideOne(t, cfg, node, decided(300, 900), noon); got.Move != nil {
		t.Errorf("in a window without changes: move %v", got.Move)
	}
	if got := decideOne(t, cfg, node, decided(500, 500), noon); got.Status.Reason != reasons.Settled {
		t.Errorf("a pod at its desired limit is %s: it is not to be written", got.Status.Reason)
	}
	leaves := decided(900, 900)
	leaves.Mode = ModeRestore
	if got := decideOne(t, cfg, node, leaves, noon); got.Move == nil || got.Purpose != Restore {
		t.Errorf("a restore: move %v, purpose %s", got.Move, got.Purpose)
	}
	harmed := lowered(cfg, 0)
	harmed.Hold, harmed.Ready, harmed.UnreadySince = hold, false, noon.Add(3*time.Second)
	if got := decideOne(t, cfg, node, harmed, noon.Add(10*time.Second)); got.Move == nil || got.Purpose != Rollback {
		t.Errorf("a rollback: move %v, purpose %s", got.Move, got.Purpose)
	}
}

// TestAStoppedWorkloadIsRestored: a pod of a workload that was stopped returns to its declared limits, whatever is
// decided, and has proved nothing then.
func TestAStoppedWorkloadIsRestored(t *testing.T) {
	cfg, stopped := DefaultConfig(), noon.Add(-time.Second)
	node := Node{Ready: true, ReadySince: noon.Add(-time.Hour)}
	for _, limit := range []cpu.Milli{300, 500, 900} {
		p := running("web", limit, 500, constraint{})
		p.Recorded, p.CanaryStopped = true, stopped
		p.Status = Status{Declared: app(500), Applied: app(limit), LastApplied: noon.Add(-time.Hour), FirstApplied: noon.Add(-time.Hour)}
		p.Decision = &Decision{Limits: app(800), Demand: 800, Budget: 100}
		got := decideOne(t, cfg, node, p, noon)
		if !got.Status.CanaryStopped.Equal(stopped) {
			t.Errorf("at %v: stopped at %v is recorded, want %v", limit, got.Status.CanaryStopped, stopped)
		}
		if limit == 500 {
			if got.Move != nil || got.Status.Phase != PhaseRestored || got.Status.Reason != reasons.CanaryStopped || !got.Status.FirstApplied.IsZero() {
				t.Errorf("at the declared limit: move %v, status %+v", got.Move, got.Status)
			}
		} else if got.Move == nil || got.Purpose != Restore || got.Move.Changes[0].To != 500 {
			t.Errorf("at %v: move %v for %s, want a restore to 500m", limit, got.Move, got.Purpose)
		}
	}
}
