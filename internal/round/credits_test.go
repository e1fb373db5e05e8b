package round

import (
	"math"
	"testing"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/sense"
	"github.com/mbcas/mbcas/market"
)

// forever forgets next to nothing within a test.
const forever = 1e6 * time.Hour

func TestCreditsAreSavedAndSpent(t *testing.T) {
	c := Credits{MaxFactor: 3, MaxSaved: time.Minute, HalfLife: forever}
	pods := []PodInput{{Pod: demand.Pod{UID: "a", Budget: 500}}} // its share is two cores, at 4 cores for 1000
	saved := map[string]time.Duration{}
	for _, step := range []struct {
		what    string
		use     cpu.Milli
		seconds int
		saved   time.Duration
		budget  market.Budget
	}{
		{"its share leaves nothing", 2000, 30, 0, 500},
		{"half of it for 20 s saves 10 s", 1000, 20, 10 * time.Second, 667},
		{"a rest of 35 s more", 0, 35, 45 * time.Second, 1250},
		{"more than it can save", 0, 60, time.Minute, 1500},
		{"twice its share for 15 s", 4000, 15, 45 * time.Second, 1250},
		{"until nothing is left", 6000, 30, 0, 500},
	} {
		for range step.seconds {
			saved = c.accrue(saved, pods, fresh(step.use), 4.0/1000, time.Second)
		}
		if got := saved["a"]; math.Abs((got - step.saved).Seconds()) > 0.01 {
			t.Errorf("%s: %v saved, want %v", step.what, got, step.saved)
		}
		if got := c.apply(pods, saved)[0].Budget; got != step.budget {
			t.Errorf("%s: a budget of %d, want %d", step.what, got, step.budget)
		}
	}
	if pods[0].Budget != 500 {
		t.Error("the budget that was given has changed")
	}
}

func fresh(use cpu.Milli) []sense.PodRates {
	return []sense.PodRates{{Containers: []sense.Rate{{Validity: sense.Valid, Usage: use}, {Validity: sense.Missing}}}}
}

func TestCreditsAreForgotten(t *testing.T) {
	c := Credits{MaxFactor: 2, MaxSaved: time.Minute, HalfLife: 10 * time.Second}
	pods := []PodInput{{Pod: demand.Pod{UID: "a", Budget: 1000}}}
	saved := map[string]time.Duration{"a": 40 * time.Second, "gone": time.Minute}
	for range 20 {
		saved = c.accrue(saved, pods, fresh(4000), 4.0/1000, time.Second)
	}
	if got := saved["a"]; math.Abs((got-10*time.Second).Seconds()) > 0.01 || len(saved) != 1 {
		t.Errorf("after two half-lives at its share %v are saved of 40s, and %d pods are known: want 10s, and one", got, len(saved))
	}
	for _, v := range []sense.Validity{sense.NoEarlierSample, sense.Gap, sense.Reset} {
		unread := []sense.PodRates{{Containers: []sense.Rate{{Validity: sense.Valid}, {Validity: v}}}}
		if got := c.accrue(saved, pods, unread, 4.0/1000, time.Second)["a"]; got != saved["a"] {
			t.Errorf("with a container that is %v, %v becomes %v", v, saved["a"], got)
		}
	}
}

// TestCreditsServeWhoRested: of two pods with equal requests that demand the whole node, the one that rested before gets more
// for a while, and then the same. Without credits both get the same all the time.
func TestCreditsServeWhoRested(t *testing.T) {
	for _, boost := range []float64{1, 2} {
		rested := &tenant{name: "rested", request: 500, declared: 1000}
		busy := &tenant{name: "busy", request: 500, declared: 1000, want: 8000}
		w := newWorld(rested, busy)
		w.cfg.Credits.MaxFactor = boost
		w.run(120)
		rested.want = 8000
		w.run(20)
		ratio := func() float64 {
			usage := w.uses()
			return float64(usage[0]) / float64(usage[1])
		}
		early := ratio()
		w.run(300)
		late := ratio()
		if want := boost > 1; early > 1.2 != want || math.Abs(late-1) > 0.15 {
			t.Errorf("boost %v: after its rest the pod uses %.2f times the CPU of the other, later %.2f times", boost, early, late)
		}
	}
}
