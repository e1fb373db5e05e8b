package rival

import (
	"slices"
	"testing"
	"time"

	"github.com/mbcas/mbcas/internal/sim"
)

// scaleTo is what the actions ask for; 0: nothing.
func scaleTo(actions []sim.Action) int {
	for _, a := range actions {
		if a.Scale > 0 {
			return a.Scale
		}
	}
	return 0
}

// Two replicas with a request of 200m use 400m each: 200 %, or 2.5 times the target of 80 %, so ceil(2.5 x 2) = 5; two may become
// max(2 x 2, 2 + 4) = 6 in a period. At the next sync three are on their way. They count as using nothing: 800m of 1000m is 80 %, so five it
// stays. When each of the five uses 40m, 20 % of its request, ceil(0.25 x 5) = 2 are wanted, and are had when the last wish for 5 is more than 300 s old.
func TestHPAGrowsAtOnceAndShrinksLate(t *testing.T) {
	spec := sim.Spec{Workload: "web", Request: 200, Limit: 600}
	w := handmade(16, spec, spec)
	h := NewHPA(DefaultHPAConfig())
	turn := func(each float64) int {
		uses := []float64{each, each, each, each, each}
		w.pass(15*time.Second, uses...)
		actions, _ := h.Turn(&w.Reading)
		return scaleTo(actions)
	}
	h.Turn(&w.Reading)
	if got := turn(0.4); got != 5 {
		t.Fatalf("asked for %d, want 5", got)
	}
	if got := turn(0.4); got != 5 {
		t.Fatalf("asked for %d while three are on their way, want 5", got)
	}
	for i := range 3 {
		w.Pods = append(w.Pods, sim.PodReading{ID: 2 + i, Spec: &spec, Request: 200, Limit: 600})
	}
	last := w.Now // of a wish for 5
	for got := 0; got != 2; got = turn(0.04) {
		if got != 0 {
			t.Fatalf("asked for %d at %v", got, w.Now)
		}
		if w.Now > 2*last+10*time.Minute {
			t.Fatal("never shrinks")
		}
	}
	if waited := w.Now - last; waited <= 5*time.Minute || waited > 6*time.Minute {
		t.Errorf("shrank %v after the last wish for five, want a little above 5 min", waited)
	}
}

// At 1000 % of the request each, 25 replicas are wanted of two, but no more than four are added in a period, and none above Max.
// Within a tenth of the target nothing happens.
func TestHPAHoldsItsSpeedAndItsBounds(t *testing.T) {
	spec := sim.Spec{Workload: "web", Request: 200, Limit: 4000}
	for use, want := range map[float64]int{2: 6, 0.175: 0, 0.179: 3} { // 87 % is within a tenth of 80 %, 89 % is not: ceil(1.1125 x 2) = 3
		w := handmade(16, spec, spec)
		h := NewHPA(DefaultHPAConfig())
		h.Turn(&w.Reading)
		w.pass(15*time.Second, use, use)
		actions, _ := h.Turn(&w.Reading)
		if got := scaleTo(actions); got != want {
			t.Errorf("use %v: asked for %d, want %d", use, got, want)
		}
	}
	h := NewHPA(DefaultHPAConfig())
	if got := h.limit(&hpaWorkload{wanted: 8, most: 10}, 20); got != 10 {
		t.Errorf("%d replicas, want 10 at most", got)
	}
	if got := h.limit(&hpaWorkload{wanted: 8, most: 10}, 0); got != 1 {
		t.Errorf("%d replicas, want 1 at least", got)
	}
}

func TestHPAWaitsForRoom(t *testing.T) {
	spec := sim.Spec{Workload: "web", Request: 200, Limit: 600}
	w := handmade(4, spec, spec)
	w.Allocatable = 700 // 300m are free: one more
	h := NewHPA(DefaultHPAConfig())
	h.Turn(&w.Reading)
	w.pass(15*time.Second, 0.4, 0.4)
	actions, _ := h.Turn(&w.Reading)
	if got := scaleTo(actions); got != 3 {
		t.Errorf("asked for %d, want 3", got)
	}
}

func TestHPAInTheCrowd(t *testing.T) {
	r := playTwice(t, 10*time.Minute, func() sim.Policy { return NewHPA(DefaultHPAConfig()) })
	group := slices.DeleteFunc(slices.Clone(r.Pods), func(p sim.PodResult) bool { return p.Spec.Workload != "web" })
	if len(group) <= 2 {
		t.Fatalf("%d replicas at 135 %% of the request, want more than two", len(group))
	}
	for _, p := range r.Pods {
		if len(p.Changes) > 0 {
			t.Errorf("%s: the limit was changed: %v", p.Spec.Name, p.Changes)
		}
	}
	for _, p := range group[2:] {
		if late := p.Spec.Start % (15 * time.Second); late != sim.StartDelay {
			t.Errorf("%s started at %v: not the start delay after a sync", p.Spec.Name, p.Spec.Start)
		}
	}
}
