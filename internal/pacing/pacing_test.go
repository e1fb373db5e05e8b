package pacing

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mbcas/mbcas/cpu"
	_ "github.com/mbcas/mbcas/internal/testing/atlength" // a fixed seed in make test
)

// notes takes in so many seconds of one kind.
func (p Pace) notes(c Config, wants bool, seconds int) Pace {
	for range seconds {
		p = p.Note(c, wants, time.Second)
	}
	return p
}

func TestSaturatesNearlyAllTheTime(t *testing.T) {
	c := DefaultConfig()
	for _, k := range []struct {
		wants, pauses int // seconds of each
		want          bool
	}{{1, 0, true}, {9, 1, true}, {4, 1, true}, {3, 1, false}, {1, 1, false}, {20, 40, false}, {0, 1, false}} {
		p, saturated := Pace{}, false
		for s := range 600 {
			p = p.Note(c, s%(k.wants+k.pauses) < k.wants, time.Second)
			saturated = saturated || p.Saturates()
		}
		if saturated != k.want {
			t.Errorf("wants more for %d s, and not for %d: saturates %v, want %v", k.wants, k.pauses, saturated, k.want)
		}
	}
	p := Pace{}.notes(c, true, 30)
	if !p.notes(c, false, 119).Saturates() || p.notes(c, false, 120).Saturates() {
		t.Error("it counts as one that saturates for another time than two minutes")
	}
	for range 5 { // wants more for a second in half a minute
		p = p.notes(c, true, 1).notes(c, false, 29)
	}
	if p.Saturates() {
		t.Error("wanting more for a second in half a minute keeps it among those that saturate")
	}
}

// TestIncreasesAreBounded: whatever the market leaves a pod that saturates, in any window of time its
// increases are Burst and one for each interval at most. A pod that does not saturate needs no token.
func TestIncreasesAreBounded(t *testing.T) {
	raised := 0
	rapid.Check(t, func(t *rapid.T) {
		c := Config{
			SaturatedAfter: 30 * time.Second, IncreaseInterval: time.Duration(rapid.IntRange(2, 80).Draw(t, "interval")) * time.Second,
			Burst: rapid.IntRange(1, 8).Draw(t, "burst"),
		}
		p, limit := Pace{}.notes(c, true, 30), cpu.Milli(1000)
		var at []time.Duration // of the increases
		for s := range 400 {
			target := cpu.Milli(rapid.IntRange(1, 80).Draw(t, "target")) * 100
			var most cpu.Milli
			p, most = p.Note(c, true, time.Second).Next(c, limit, target, time.Second)
			if to := min(target, most); most == 0 {
				t.Fatalf("a pod that saturates is not bounded")
			} else if to > limit && rapid.IntRange(0, 3).Draw(t, "lost") == 0 {
				continue // it is decided, and not published
			} else if to > limit {
				at = append(at, time.Duration(s)*time.Second)
			}
			limit = min(target, max(limit, most))
		}
		for i := range at {
			for j := i; j < len(at); j++ {
				if n, most := j-i+1, float64(c.Burst)+(at[j]-at[i]).Seconds()/c.IncreaseInterval.Seconds(); float64(n) > most+1e-6 {
					t.Fatalf("%d increases between %v and %v, with %+v", n, at[i], at[j], c)
				}
			}
		}
		raised += len(at)
	})
	if raised == 0 {
		t.Error("no increase was drawn")
	}
	c := DefaultConfig()
	for range 100 {
		if _, most := (Pace{}).Note(c, false, time.Second).Next(c, 1000, 2000, time.Second); most != 0 {
			t.Fatal("a pod that does not saturate is bounded")
		}
	}
}

// TestTokensArePublications: see the package's promises. In between the pod is lowered again, so that each increase is
// one of its own.
func TestTokensArePublications(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Config{SaturatedAfter: 30 * time.Second, IncreaseInterval: 1e6 * time.Hour, Burst: rapid.IntRange(1, 6).Draw(t, "burst")}
		p, limit, published := Pace{}.notes(c, true, 30), cpu.Milli(1000), 0
		for range 200 {
			target := cpu.Milli(rapid.SampledFrom([]int{800, 1100, 2000, 3000}).Draw(t, "target"))
			var most cpu.Milli
			p, most = p.Note(c, true, time.Second).Next(c, limit, target, time.Second)
			switch to := min(target, most); {
			case target < limit:
				limit = 1000
			case to <= limit:
			case rapid.Bool().Draw(t, "published"):
				limit, published = to, published+1
			case rapid.Bool().Draw(t, "raised by a look"):
				p, limit = p.Raised(), to
			}
		}
		if _, most := p.Next(c, 1000, 2000, time.Second); published > c.Burst || published < c.Burst != (most > 1000) {
			t.Fatalf("%d increases were published of %d, and the next may have %v", published, c.Burst, most)
		}
	})
}

// TestIncreasesWaitBoundedly: a pod without tokens is raised after an interval at the latest if the market
// leaves it more all the time, to the mean of that and to four times its limit at most.
func TestIncreasesWaitBoundedly(t *testing.T) {
	c := Config{SaturatedAfter: 30 * time.Second, IncreaseInterval: 20 * time.Second, Burst: 2}
	p := Pace{}.notes(c, true, 60)
	waits := func(targets ...cpu.Milli) (waited int, most cpu.Milli) {
		for waited = range 100 {
			p, most = p.Note(c, true, time.Second).Next(c, 1000, targets[waited%len(targets)], time.Second)
			if most > 1000 {
				p, _ = p.Next(c, most, most, 0) // it is published
				return waited, most
			}
		}
		return waited, most
	}
	for i, k := range []struct {
		targets []cpu.Milli
		waits   [2]int
		most    cpu.Milli
	}{
		{[]cpu.Milli{2000}, [2]int{0, 0}, 2000}, {[]cpu.Milli{3000}, [2]int{0, 0}, 3000},
		{[]cpu.Milli{2000, 4000}, [2]int{17, 20}, 3000}, {[]cpu.Milli{9000}, [2]int{18, 20}, 4000},
	} {
		waited, most := waits(k.targets...)
		if waited < k.waits[0] || waited > k.waits[1] || most < k.most-100 || most > k.most+100 {
			t.Errorf("increase %d, while the market leaves it %v: to %v after %d s, want to %v after %v", i, k.targets, most, waited, k.most, k.waits)
		}
	}
	if _, most := p.Next(c, 1000, 4000, 0); most != 1000 {
		t.Errorf("raised to %v in no time", most)
	}
}

// TestOffIsOff: the bucket of a pod stays full, also in a tick without a length.
func TestOffIsOff(t *testing.T) {
	c, p := DefaultConfig(), Pace{}
	for s := range 100 {
		p = p.Note(c, true, time.Duration(s%2)*time.Second)
		p, _ = p.Next(c, 1000, 2000, time.Second)
		if p, _ = p.Next(c, 2000, 2000, 0); p.spent > 1 {
			t.Fatalf("%v tokens are spent", p.spent)
		}
	}
	if p = p.Note(c, true, 0); p.spent != 0 {
		t.Errorf("%v tokens are spent", p.spent)
	}
}

func TestValidate(t *testing.T) {
	for text, c := range map[string]struct {
		config Config
		valid  bool
	}{
		"the default":      {DefaultConfig(), true},
		"off":              {Config{SaturatedAfter: time.Second}, true},
		"no tokens":        {Config{SaturatedAfter: time.Second, IncreaseInterval: time.Second}, false},
		"below 0":          {Config{SaturatedAfter: time.Second, IncreaseInterval: -time.Second, Burst: 1}, false},
		"saturates always": {Config{IncreaseInterval: time.Second, Burst: 1}, false},
	} {
		if err := c.config.Validate(); (err == nil) != c.valid {
			t.Errorf("%s: %v", text, err)
		}
	}
}
