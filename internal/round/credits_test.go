package round

import (
	"math"
	"testing"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/credits"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/sense"
	"github.com/mbcas/mbcas/market"
)

// forever is a half-life at which nothing decays within a test.
const forever = 1e6 * time.Hour

func TestCreditsAreSavedAndSpent(t *testing.T) {
	c := credits.Config{MaxFactor: 3, MaxSaved: time.Minute, HalfLife: forever}
	pods := []PodInput{{Pod: demand.Pod{UID: "a", Budget: 500}}} // its share is two cores, at 4 cores for 1000
	saved := map[string]time.Duration{}
	for _, step := range []struct {
		what    string
		usage   cpu.Milli
		seconds int
		saved   time.Duration
		budget  market.Budget
	}{
		{"its share saves nothing", 2000, 30, 0, 500},
		{"half of it for 20 s saves 10 s", 1000, 20, 10 * time.Second, 667},
		{"a pause of 35 s more", 0, 35, 45 * time.Second, 1250},
		{"more than it can save", 0, 60, time.Minute, 1500},
		{"twice its share for 15 s", 4000, 15, 45 * time.Second, 1250},
		{"until nothing is left", 6000, 30, 0, 500},
	} {
		for range step.seconds {
			saved = saveCredits(c, saved, pods, valid(step.usage), 4.0/1000)
		}
		if got := saved["a"]; math.Abs((got - step.saved).Seconds()) > 0.01 {
			t.Errorf("%s: %v saved, want %v", step.what, got, step.saved)
		}
		if got := withCredits(c, pods, saved)[0].Budget; got != step.budget {
			t.Errorf("%s: budget %d, want %d", step.what, got, step.budget)
		}
	}
	if pods[0].Budget != 500 {
		t.Error("the budget of the input has changed")
	}
}

// valid are the rates of a pod with one running container after a second.
func valid(usage cpu.Milli) sense.Rates {
	return sense.Rates{
		Node: sense.NodeRates{Elapsed: time.Second},
		Pods: []sense.PodRates{{Containers: []sense.Rate{{Validity: sense.Valid, Usage: usage}, {Validity: sense.Missing}}}},
	}
}

func TestCreditsDecay(t *testing.T) {
	c := credits.Config{MaxFactor: 2, MaxSaved: time.Minute, HalfLife: 10 * time.Second}
	pods := []PodInput{{Pod: demand.Pod{UID: "a", Budget: 1000}}}
	saved := map[string]time.Duration{"a": 40 * time.Second, "gone": time.Minute}
	for range 20 {
		saved = saveCredits(c, saved, pods, valid(4000), 4.0/1000)
	}
	if got := saved["a"]; math.Abs((got-10*time.Second).Seconds()) > 0.01 || len(saved) != 1 {
		t.Errorf("after two half-lives at its share %v are saved of 40s, and %d pods are known: want 10s, and one", got,
			len(saved))
	}
	for _, v := range []sense.Validity{sense.NoEarlierSample, sense.Gap, sense.Reset} {
		invalid := valid(0)
		invalid.Pods[0].Containers[1].Validity = v
		if got := saveCredits(c, saved, pods, invalid, 4.0/1000)["a"]; got != saved["a"] {
			t.Errorf("with a container that is %v, %v becomes %v", v, saved["a"], got)
		}
	}
}

// TestCreditsServePodsThatPaused: of two pods with equal requests that demand the whole node, the
// one that paused before gets more for a while, and then the same. Without credits both get the
// same all the time.
func TestCreditsServePodsThatPaused(t *testing.T) {
	for _, boost := range []float64{1, 2} {
		paused := &fakePod{name: "paused", request: 500, declared: 1000}
		busy := &fakePod{name: "busy", request: 500, declared: 1000, demand: 8000}
		w := newWorld(paused, busy)
		w.cfg.Credits.MaxFactor = boost
		w.run(120)
		paused.demand = 8000
		w.run(20)
		ratio := func() float64 {
			usage := w.uses()
			return float64(usage[0]) / float64(usage[1])
		}
		early := ratio()
		w.run(300)
		late := ratio()
		if want := boost > 1; early > 1.2 != want || math.Abs(late-1) > 0.15 {
			t.Errorf("boost %v: after its pause the pod uses %.2f times the CPU of the other, later %.2f times", boost, early,
				late)
		}
	}
}
