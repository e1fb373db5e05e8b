package rival

import (
	"math"
	"testing"
	"time"

	"github.com/mbcas/mbcas/internal/sim"
	"github.com/mbcas/mbcas/internal/sim/load"
)

// eager is VPA for pods without replicas.
func eager(history time.Duration) VPAConfig {
	cfg := DefaultVPAConfig()
	cfg.IgnoreBudget, cfg.History = true, history
	return cfg
}

// A pod with request 500m and limit 1000m uses 1 core. Buckets begin at 0.2 x (1.05^n - 1): 1 core lies in n = 36, as ln 6 /
// ln 1.05 = 36.7, which ends at 0.2 x (6.0814 - 1) = 1.01628. Target = 1.01628 x 1.15 = 1.16872: 1168m.
// Samples come at 60 s, 120 s and so on, so at 60 s x k the confidence is min((k - 1)/1440, k/1440) = (k - 1)/1440, and the lower
// bound 1168.72 x (1 + 1.44/(k - 1))^-2: 196m at k = 2, 395m at 3, 533m at 4, which is the first above 500m. Limit = 1168 x 1000/500.
func TestVPARaisesWhenItIsSure(t *testing.T) {
	v := NewVPA(eager(0))
	w := handmade(8, sim.Spec{Request: 500, Limit: 1000})
	for w.Now < 4*time.Minute {
		if actions, _ := v.Turn(&w.Reading); len(actions) > 0 {
			t.Fatalf("changed at %v: %v", w.Now, actions)
		}
		w.pass(15*time.Second, 1)
	}
	actions, _ := v.Turn(&w.Reading)
	want := sim.Action{Pod: 0, Request: 1168, Limit: 2336, After: sim.ResizeDelay}
	if len(actions) != 1 || actions[0] != want {
		t.Fatalf("got %v at 4 min, want %v", actions, want)
	}
	if got := v.models["/pod/pod-0"].bounds.lower; got != 533 {
		t.Errorf("lower bound %v, want 533m", got)
	}
}

// With m samples of 1 core before and n of 4 cores after, p90 lies at 4 cores as soon as the new ones weigh more than a tenth. In a half-life of
// 1440 samples, n of them weigh 2^(n/1440) - 1 where the old ones weigh 1 - 2^(-m/1440). For 1 hour, n > 6.6 gives 7 minutes; for 8 days
// 2^(n/1440) = 1 + (1 - 2^-8)/9, n = 218 minutes. The lower bound needs half of the weight: 2^(n/1440) = 1 + (1 - 2^-8), n = 1436 minutes.
func TestVPAFollowsAStepAsLateAsItsHistoryIsLong(t *testing.T) {
	for history, want := range map[time.Duration]int{time.Hour: 7, 8 * 24 * time.Hour: 218} {
		minutes, _ := afterStep(history)
		if math.Abs(float64(minutes-want)) > 1 {
			t.Errorf("history of %v: target moves after %d min, want %d", history, minutes, want)
		}
	}
	if _, minutes := afterStep(8 * 24 * time.Hour); math.Abs(float64(minutes-1436)) > 2 {
		t.Errorf("lower bound moves after %d min, want 1436", minutes)
	}
}

// afterStep is how many minutes after a step from 1 to 4 cores the target and the lower bound have followed.
func afterStep(history time.Duration) (target, lower int) {
	v := NewVPA(eager(history))
	w := handmade(16, sim.Spec{Request: 1000, Limit: 5000, Spin: load.Step{Before: 1, After: 4, Time: time.Minute}})
	v.Turn(&w.Reading)
	for minute := 1; lower == 0 && minute < 3000; minute++ {
		w.pass(time.Minute, 4)
		v.Turn(&w.Reading)
		b := v.models["/pod/pod-0"].bounds
		if target == 0 && b.target > 4000 {
			target = minute
		}
		if b.lower > 4000 {
			lower = minute
		}
	}
	return target, lower
}

// Of four replicas floor(0.5 x 4) = 2 are touched in a turn; one that is alone is not touched at all.
func TestVPATouchesHalfOfTheReplicas(t *testing.T) {
	cfg := DefaultVPAConfig()
	cfg.History = 24 * time.Hour
	spec := sim.Spec{Workload: "web", Request: 200, Limit: 1000, Spin: load.Constant(1)}
	alone := spec
	alone.Workload = ""
	w := handmade(16, spec, spec, alone, spec, spec)
	v := NewVPA(cfg)
	for turn, want := range []int{2, 2, 0} {
		actions, _ := v.Turn(&w.Reading)
		if len(actions) != want {
			t.Errorf("turn %d: %d changes, want %d", turn, len(actions), want)
		}
		for _, a := range actions {
			if a.Pod == 2 {
				t.Error("the pod without replicas was changed")
			}
		}
		w.do(actions)
		w.pass(time.Minute, 1, 1, 1, 1, 1)
	}
}

// Both want 1168m. The node has room for 1300m in all: the one that is off the most (968/200) is raised, the other one waits.
func TestVPADefersWhatDoesNotFit(t *testing.T) {
	w := handmade(16, sim.Spec{Request: 300, Limit: 1500, Spin: load.Constant(1)}, sim.Spec{Request: 200, Limit: 1500, Spin: load.Constant(1)})
	w.Allocatable = 1500
	v := NewVPA(eager(24 * time.Hour))
	actions, _ := v.Turn(&w.Reading)
	if len(actions) != 1 || actions[0].Pod != 1 || actions[0].Request != 1168 || actions[0].Limit != 8760 {
		t.Errorf("got %v, want pod 1 alone with request 1168m and limit 8760m", actions)
	}
}

func TestHistogramForgetsByHalf(t *testing.T) {
	h := histogram{first: 0.01, growth: 1.05, most: 1000, least: 1e-4, halfLife: 24 * time.Hour}
	for day := range 300 { // beyond maxExponent
		h.add(1, 0.1, time.Duration(day)*24*time.Hour)
	}
	// All samples but the last weigh 1/2 + 1/4 + ... of it: 1. One of three times the weight at 2 cores makes p50 that of 2 cores, and p25 not.
	h.add(2, 0.3, 299*24*time.Hour)
	if low, high := h.percentile(0.25), h.percentile(0.5); low > 1.05 || high < 2 {
		t.Errorf("p25 %v and p50 %v, want just above 1 and 2", low, high)
	}
}

func TestVPAInTheCrowd(t *testing.T) {
	r := playTwice(t, 6*time.Minute, func() sim.Policy { return NewVPA(eager(24 * time.Hour)) })
	changes := 0
	for _, p := range r.Pods {
		changes += len(p.Changes)
		for _, c := range p.Changes {
			if c.At%time.Minute != sim.ResizeDelay {
				t.Errorf("%s changed at %v: not one resize after a turn of the updater", p.Spec.Name, c.At)
			}
			if request := float64(c.To) * float64(p.Spec.Request) / float64(p.Spec.Limit); request < 24 {
				t.Errorf("%s has limit %v, so a request of %vm, below 25m", p.Spec.Name, c.To, request)
			}
		}
	}
	if changes == 0 {
		t.Error("nothing was changed")
	}
}
