package pacing

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mbcas/mbcas/cpu"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func on() Config {
	return Config{
		BurstAllowance: 4 * time.Second, SaturatedAfter: 30 * time.Second,
		LeastDelay: 2 * time.Second, LongestDelay: 8 * time.Second,
	}
}

// notes is the pace after some seconds of the same.
func (p Pace) notes(c Config, wants bool, ofShare float64, seconds int) Pace {
	for range seconds {
		p = p.Note(c, wants, ofShare, time.Second)
	}
	return p
}

func TestAllowancesAreSpentAndSaved(t *testing.T) {
	c := on()
	for _, k := range []struct {
		ofShare float64
		seconds int
		left    bool
	}{{1, 1000, true}, {2, 3, true}, {2, 4, false}, {3, 1, true}, {3, 2, false}, {1.2, 19, true}, {1.2, 21, false}} {
		if got := (Pace{}).notes(c, false, k.ofShare, k.seconds).MayBurst(c); got != k.left {
			t.Errorf("%v times its share for %d s: may burst %v, want %v", k.ofShare, k.seconds, got, k.left)
		}
	}
	spent := Pace{}.notes(c, false, 3, 100)
	if spent.MayBurst(c) || !spent.notes(c, false, 0.5, 1).MayBurst(c) {
		t.Error("a second below the share saves nothing")
	}
	if spent.notes(c, false, 0.5, 1).notes(c, false, 2, 1).MayBurst(c) {
		t.Error("what was saved in a second lasts longer than that")
	}
	if (Pace{}).notes(Off(), false, 0.5, 10).MayBurst(Off()) {
		t.Error("there is an allowance where it is off")
	}
}

func TestSaturatesNearlyAllTheTime(t *testing.T) {
	c := on()
	for _, k := range []struct {
		wants, pauses int // seconds of each
		want          bool
	}{{1, 0, true}, {9, 1, true}, {4, 1, true}, {3, 1, false}, {1, 1, false}, {20, 40, false}, {0, 1, false}} {
		p, saturated := Pace{}, false
		for s := range 600 {
			p = p.Note(c, s%(k.wants+k.pauses) < k.wants, 1, time.Second)
			saturated = saturated || p.Waits(c)
		}
		if saturated != k.want {
			t.Errorf("wants more for %d s, and not for %d: saturates %v, want %v", k.wants, k.pauses, saturated, k.want)
		}
	}
	p := Pace{}.notes(c, true, 1, 30)
	if !p.notes(c, false, 1, 119).Waits(c) || p.notes(c, false, 1, 120).Waits(c) {
		t.Error("it counts as one that saturates for another time than two minutes")
	}
	if p.MayBurst(c) || p.Waits(Off()) {
		t.Error("a pod that saturates may burst, or waits where waits are off")
	}
}

// raised is how long a pod that saturates waits until it is raised.
func (p Pace) raised(c Config, now time.Time) (after Pace, waited int, most cpu.Milli) {
	for waited = range 60 {
		if p, most = p.Follow(c, 1000, 2000, now.Add(time.Duration(waited)*time.Second), time.Second); most != 1000 {
			return p, waited, most
		}
	}
	return p, waited, most
}

func TestRegretDelaysIncreases(t *testing.T) {
	c, now := on(), start
	p := Pace{}.notes(c, true, 1, 30)
	var waits []int
	for range 5 {
		var waited int
		p, waited, _ = p.raised(c, now)
		waits = append(waits, waited)
		now = now.Add(time.Duration(waited+1) * time.Second)
		p, _ = p.Follow(c, 2000, 1000, now, time.Second)
	}
	for i, want := range []int{0, 1, 3, 7, 7} { // ticks before; the increase is in the tick that ends the delay
		if waits[i] != want {
			t.Errorf("waits of %v ticks after wrong increases: want [0 1 3 7 7]", waits)
			break
		}
	}
	for range 4 * 300 {
		now = now.Add(time.Second)
		p, _ = p.Follow(c, 1000, 1000, now, time.Second)
	}
	if _, waited, most := p.raised(c, now); waited != 0 || most != 0 {
		t.Errorf("twenty minutes later it waits for %d ticks, and gets %v at most", waited, most)
	}
	right := Pace{}.notes(c, true, 1, 30)
	right, _, _ = right.raised(c, now)
	now = now.Add(time.Minute)
	right, _ = right.Follow(c, 2000, 1000, now, time.Second)
	if _, waited, _ := right.raised(c, now); waited != 0 {
		t.Errorf("an increase that lasted a minute delays the next by %d ticks", waited)
	}
}

// TestIncreasesWaitBoundedly: whatever the market leaves it, a pod for which that is clearly above its limit is
// raised within the longest delay, to no more than that, and never below its limit.
func TestIncreasesWaitBoundedly(t *testing.T) {
	c := on()
	raises := 0
	rapid.Check(t, func(t *rapid.T) {
		p, now, limit, above := Pace{}, start, cpu.Milli(1000), 0
		for range 200 {
			now = now.Add(time.Second)
			target := cpu.Milli(rapid.IntRange(1, 80).Draw(t, "target")) * 100
			p = p.Note(c, rapid.IntRange(0, 9).Draw(t, "wants") > 0, 1, time.Second)
			if above++; target.Cores() <= (1+Band)*limit.Cores() {
				above = 0
			}
			var most cpu.Milli
			p, most = p.Follow(c, limit, target, now, time.Second)
			next := target
			if most > 0 && target > limit {
				next = min(target, most)
			}
			switch {
			case target > limit && next < limit:
				t.Fatalf("from %v to %v while it is left %v", limit, next, target)
			case above > 8 && next == limit:
				t.Fatalf("it is left more than %v for %d s, and stays", limit, above)
			case next > limit:
				raises, above = raises+1, 0
			}
			limit = next
		}
	})
	if raises == 0 {
		t.Error("no pod was raised")
	}
}

func TestValidate(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"a negative allowance":       func(c *Config) { c.BurstAllowance = -1 },
		"nothing saturates":          func(c *Config) { c.SaturatedAfter = 0 },
		"bounds the wrong way round": func(c *Config) { c.LeastDelay, c.LongestDelay = time.Minute, time.Second },
		"no least delay":             func(c *Config) { c.LeastDelay = 0 },
	} {
		c := on()
		if change(&c); c.Validate() == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	for _, c := range []Config{on(), Off()} {
		if err := c.Validate(); err != nil {
			t.Error(err)
		}
	}
}
