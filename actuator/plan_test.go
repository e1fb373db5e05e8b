package actuator

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	_ "github.com/mbcas/mbcas/internal/testing/atlength" // a fixed seed in make test
)

var now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// one is a pod of one container that stands at limit and should be at want.
func one(limit, want cpu.Milli) Pod {
	return Pod{UID: "p", Containers: []Container{{Name: "c", Limit: limit, Declared: 500, Floor: 100, Ceiling: 4000, Desired: want}}}
}

// plan plans for one pod on a node with room.
func plan(p Pod) Step { return Plan(DefaultConfig(), now, false, []Pod{p})[0] }

// with is the pod after the change.
func with(p Pod, change func(*Pod)) Pod {
	change(&p)
	return p
}

// planned is what the plan does with one pod on a node with room. A recheck of 0 is none.
type planned struct {
	pod     Pod
	to      cpu.Milli
	reason  reasons.Reason
	recheck time.Duration
}

// expect checks the whole plan of each, by why it is so.
func expect(t *testing.T, rows map[string]planned) {
	t.Helper()
	for because, want := range rows {
		s, again := plan(want.pod), time.Time{}
		if want.recheck > 0 {
			again = now.Add(want.recheck)
		}
		if to(s) != want.to || s.Reason != want.reason || !s.RecheckAt.Equal(again) {
			t.Errorf("%s: %+v %v, want %v (%s, again in %v)", because, s, s.Move, want.to, want.reason, want.recheck)
		}
	}
}

// to is where the step takes the pod's only container; 0: nowhere.
func to(s Step) cpu.Milli {
	if s.Move == nil {
		return 0
	}
	return s.Move.Changes[0].To
}

// bounded limits increases, too.
func bounded() Config {
	c := DefaultConfig()
	c.MaxIncreaseFactor, c.IncreaseCooldown, c.DecreaseCooldown = 1.5, 30*time.Second, 30*time.Second
	return c
}

func configs(t *rapid.T) Config {
	return rapid.SampledFrom([]Config{DefaultConfig(), bounded()}).Draw(t, "config")
}

// pods draws the pods of a node in every standing, also ones that should not occur.
func pods(t *rapid.T) []Pod {
	ago := rapid.Custom(func(t *rapid.T) time.Time {
		if rapid.Bool().Draw(t, "never") {
			return time.Time{}
		}
		return now.Add(-time.Duration(rapid.IntRange(0, 60).Draw(t, "ago")) * time.Second)
	})
	milli := rapid.Custom(func(t *rapid.T) cpu.Milli {
		return cpu.Milli(rapid.IntRange(1, 400).Draw(t, "milli")) * cpu.Quantum
	})
	pods := make([]Pod, rapid.IntRange(0, 6).Draw(t, "pods"))
	for i := range pods {
		pods[i] = Pod{
			UID: fmt.Sprint(i), Restore: rapid.IntRange(0, 9).Draw(t, "restore") == 0, InSteps: rapid.Bool().Draw(t, "in steps"),
			Stale:        rapid.IntRange(0, 5).Draw(t, "stale") == 0,
			InFlight:     rapid.IntRange(0, 3).Draw(t, "in flight") == 0,
			Supersedable: rapid.Bool().Draw(t, "supersedable"), Capped: rapid.Bool().Draw(t, "capped"),
			Revoked:      rapid.Bool().Draw(t, "revoked"),
			NoDecrease:   rapid.SampledFrom([]reasons.Reason{"", "", reasons.PodNotReady}).Draw(t, "no decrease"),
			LastDecrease: ago.Draw(t, "decrease"), LastIncrease: ago.Draw(t, "increase"),
			DecreaseCooldown: rapid.SampledFrom([]time.Duration{0, 0, 45 * time.Second}).Draw(t, "cooldown"),
			SmallSteps:       rapid.Bool().Draw(t, "small steps"),
			RetryAt:          rapid.SampledFrom([]time.Time{{}, {}, now.Add(time.Minute)}).Draw(t, "retry"),
		}
		for j := range rapid.IntRange(1, 3).Draw(t, "containers") {
			floor := milli.Draw(t, "floor")
			pods[i].Containers = append(pods[i].Containers, Container{
				Name: fmt.Sprint(j), Limit: milli.Draw(t, "limit"), Declared: milli.Draw(t, "declared") + cpu.Milli(rapid.SampledFrom([]int{0, 0, 5}).Draw(t, "no quantum")),
				Floor: floor, Ceiling: floor + milli.Draw(t, "room"),
				Desired:    rapid.SampledFrom([]cpu.Milli{0, milli.Draw(t, "want")}).Draw(t, "decided"),
				NotRunning: rapid.IntRange(0, 4).Draw(t, "down") == 0,
			})
		}
	}
	return pods
}

func container(p Pod, name string) Container {
	return p.Containers[slices.IndexFunc(p.Containers, func(c Container) bool { return c.Name == name })]
}

// TestKeepsTheRules draws nodes with pods in every standing, and holds the plan of each to the rules.
func TestKeepsTheRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg, all := configs(t), pods(t)
		steps := Plan(cfg, now, rapid.Bool().Draw(t, "full"), all)
		if len(steps) != len(all) {
			t.Fatalf("%d steps for %d pods", len(steps), len(all))
		}
		if !slices.IsSortedFunc(steps, func(a, b Step) int { return a.rank() - b.rank() }) {
			t.Fatalf("order %v: want decreases, increases, no move", steps)
		}
		seen := map[int]bool{}
		for _, s := range steps {
			if seen[s.Pod] {
				t.Fatalf("two steps of pod %d", s.Pod)
			}
			seen[s.Pod] = true
			if rule := breaks(cfg, s, all[s.Pod]); rule != "" {
				t.Fatalf("%s: %v of %+v", rule, s.Move, all[s.Pod])
			}
		}
	})
}

// breaks names the rule that a step breaks; "" if it breaks none.
func breaks(cfg Config, s Step, p Pod) string {
	switch {
	case s.Move == nil:
		return ""
	case slices.ContainsFunc(s.Move.Changes, func(c Change) bool { return c.To > c.From && container(p, c.Container).NotRunning }):
		return "raises a container that does not run"
	case p.InFlight && !p.Supersedable || now.Before(p.RetryAt):
		return "moves before the last resize has ended, or within the back-off"
	case p.InFlight && s.Move.Lowers():
		return "supersedes a decrease by another one"
	case p.Restore && !p.InSteps:
		return ""
	case p.Stale && !p.Restore:
		return "moves on a stale decision"
	}
	for _, ch := range s.Move.Changes {
		c := container(p, ch.Container)
		if p.Restore {
			c.Floor, c.Ceiling = c.Declared, c.Declared
		}
		factor := cfg.MaxDecreaseFactor
		if ch.From <= c.Declared.RoundUp(cpu.Quantum) && !p.SmallSteps {
			factor = max(factor, cfg.BelowDeclaredFactor)
		}
		least, last := min(scale(ch.From, 1/factor), ch.From-cpu.Quantum), p.LastDecrease
		cooldown := max(cfg.DecreaseCooldown, p.DecreaseCooldown)
		if declared := c.Declared.RoundUp(cpu.Quantum); p.Revoked && !p.Restore && ch.From > declared {
			if least = min(least, declared); now.Sub(last) < cooldown {
				least, last = declared, time.Time{}
			}
		}
		switch {
		case ch.From != c.Limit || ch.To == ch.From:
			return "starts from another limit, or changes nothing"
		case ch.To < min(c.Floor, c.Limit) || ch.To > max(c.Ceiling, c.Limit):
			return "a limit that was outside of its bounds does not come nearer"
		case c.Limit >= c.Floor && c.Limit <= c.Ceiling && (ch.To < c.Floor || ch.To > c.Ceiling):
			return "leaves its bounds"
		case ch.To < ch.From && ch.To < least:
			return "lowers by more than a step"
		case ch.To < ch.From && now.Sub(last) < cooldown:
			return "lowers within the cooldown"
		case ch.To < ch.From && p.NoDecrease != "" && (p.Restore || !p.Capped && !p.Revoked || ch.To < c.Declared):
			return "lowers a pod that must not be, where that takes more than its raise"
		}
	}
	return ""
}

func TestIncreasesAreImmediate(t *testing.T) {
	p := one(500, 4000)
	p.LastIncrease, p.LastDecrease, p.NoDecrease = now, now, reasons.PodNotReady
	inFlight := with(p, func(p *Pod) { p.InFlight = true })
	failed := with(p, func(p *Pod) { p.RetryAt = now.Add(time.Second) })
	expect(t, map[string]planned{
		"it does not wait for what was done a moment ago": {p, 4000, reasons.Settled, 0},
		"the ceiling bounds it":                           {one(500, 9000), 4000, reasons.Settled, 0},
		"it waits for the resize in flight":               {inFlight, 0, reasons.ResizeInFlight, 0},
		"it waits for the back-off":                       {failed, 0, reasons.BackingOff, time.Second},
	})
	if got := to(Plan(bounded(), now, false, []Pod{one(500, 4000)})[0]); got != 750 {
		t.Errorf("with bounded increases it raised to %v, want 750m", got)
	}
}

// TestIncreasesSupersede: while a decrease is in flight that may be superseded, an increase beyond the dead band, and a
// restore that raises, are planned. What is in flight goes on where a limit would be lowered, also beside one that would
// be raised. Increases of other pods do not wait for a decrease that is superseded, and its own does not wait for it.
func TestIncreasesSupersede(t *testing.T) {
	lowered := func(limit, want cpu.Milli) Pod {
		return with(one(limit, want), func(p *Pod) {
			p.InFlight, p.Supersedable, p.LastDecrease = true, true, now.Add(-10*time.Second)
		})
	}
	both := with(lowered(1000, 2000), func(p *Pod) {
		p.Containers = append(p.Containers, Container{Name: "side", Limit: 800, Declared: 800, Floor: 100, Ceiling: 4000, Desired: 500})
	})
	expect(t, map[string]planned{
		"an increase":                  {lowered(1000, 2000), 2000, reasons.Settled, 0},
		"within the dead band":         {lowered(1000, 1050), 0, reasons.ResizeInFlight, 0},
		"another decrease":             {lowered(1000, 500), 0, reasons.ResizeInFlight, 0},
		"one up and one down":          {both, 0, reasons.ResizeInFlight, 0},
		"a restore that raises":        {with(lowered(300, 0), func(p *Pod) { p.Restore = true }), 500, "", 0},
		"a restore that lowers":        {with(lowered(1000, 0), func(p *Pod) { p.Restore = true }), 0, reasons.ResizeInFlight, 0},
		"what may not be superseded":   {with(lowered(1000, 2000), func(p *Pod) { p.Supersedable = false }), 0, reasons.ResizeInFlight, 0},
		"a decision that is too old":   {with(lowered(1000, 2000), func(p *Pod) { p.Stale = true }), 0, reasons.ResizeInFlight, 0},
		"looked at after the back-off": {with(lowered(1000, 2000), func(p *Pod) { p.RetryAt = now.Add(time.Second) }), 0, reasons.ResizeInFlight, time.Second},
	})
	superseding, other := with(lowered(1000, 2000), func(p *Pod) { p.Capped = true }), with(one(500, 2000), func(p *Pod) { p.Capped = true })
	for _, s := range Plan(DefaultConfig(), now, true, []Pod{superseding, other}) {
		if to(s) != 2000 {
			t.Errorf("pod %d: %+v, want both raised at once", s.Pod, s)
		}
	}
}

func TestDecreasesAreGradual(t *testing.T) {
	lowered := func(limit cpu.Milli, ago time.Duration) Pod {
		return with(one(limit, 500), func(p *Pod) { p.LastDecrease = now.Add(-ago) })
	}
	small := with(one(500, 100), func(p *Pod) { p.SmallSteps = true })
	notReady := with(lowered(2000, 5*time.Second), func(p *Pod) { p.NoDecrease = reasons.PodNotReady })
	expect(t, map[string]planned{
		"the next step is after the cooldown":      {one(3000, 500), 2000, reasons.StepLimited, 5 * time.Second},
		"it waits for one of several steps":        {lowered(2000, 4*time.Second), 0, reasons.StepLimited, time.Second},
		"it waits for the one step that is left":   {lowered(700, 4*time.Second), 0, reasons.CoolingDown, time.Second},
		"2000m / 1.5 is rounded up":                {lowered(2000, 5*time.Second), 1340, reasons.StepLimited, 5 * time.Second},
		"a pod that is not Ready is left as it is": {notReady, 0, reasons.PodNotReady, 0},
		"below the declared limit":                 {one(500, 100), 130, reasons.StepLimited, 5 * time.Second},
		"below it, in small steps":                 {small, 340, reasons.StepLimited, 5 * time.Second},
	})
}

// TestRaisesAreRevokedInOneStep: what is above the declared limit of 500m goes at once, what is below it in steps.
func TestRaisesAreRevokedInOneStep(t *testing.T) {
	revoked := func(p Pod) Pod {
		p.Revoked = true
		return p
	}
	expect(t, map[string]planned{
		"to the declared limit":         {revoked(one(3000, 500)), 500, reasons.Settled, 0},
		"above it":                      {revoked(one(3000, 700)), 700, reasons.Settled, 0},
		"below it":                      {revoked(one(3000, 300)), 500, reasons.StepLimited, 5 * time.Second},
		"below it, by an ordinary step": {revoked(one(600, 420)), 420, reasons.Settled, 0},
		"below it, while it cools down": {
			revoked(with(one(600, 420), func(p *Pod) { p.LastDecrease = now.Add(-time.Second) })), 500, reasons.StepLimited, 5 * time.Second,
		},
		"from a declared limit that is no whole quantum": {
			revoked(with(one(510, 400), func(p *Pod) {
				p.Containers[0].Declared, p.LastDecrease, p.DecreaseCooldown = 505, now.Add(-time.Second), 5*time.Minute
			})), 0, reasons.CoolingDown, 299 * time.Second,
		},
		"from the declared limit on": {revoked(one(500, 100)), 130, reasons.StepLimited, 5 * time.Second},
		"without a cooldown": {
			revoked(with(one(3000, 500), func(p *Pod) { p.LastDecrease, p.DecreaseCooldown = now.Add(-time.Second), 5*time.Minute })), 500, reasons.Settled, 0,
		},
		"with one below the declared limit": {
			revoked(with(one(500, 100), func(p *Pod) { p.LastDecrease = now.Add(-4 * time.Second) })), 0, reasons.StepLimited, time.Second,
		},
		"a pod in trouble, too": {
			revoked(with(one(3000, 300), func(p *Pod) { p.NoDecrease = reasons.PodNotReady })), 500, reasons.Settled, 0,
		},
		"which stays at its declared limit": {
			revoked(with(one(500, 300), func(p *Pod) { p.NoDecrease = reasons.PodNotReady })), 0, reasons.PodNotReady, 0,
		},
		"a restore in steps": {
			revoked(with(one(3000, 0), func(p *Pod) { p.Restore, p.InSteps = true, true })), 2000, reasons.StepLimited, 5 * time.Second,
		},
	})
}

// TestRestoreInSteps: a restore in steps falls no faster than a decision and rises at once, whatever
// was decided, and each ends at the declared limit of 500m.
func TestRestoreInSteps(t *testing.T) {
	steps := func(p Pod) Pod {
		p.Restore, p.InSteps, p.Stale = true, true, true
		return p
	}
	lowered := steps(with(one(2000, 4000), func(p *Pod) { p.LastDecrease = now.Add(-time.Second) }))
	expect(t, map[string]planned{
		"one step":                       {steps(one(3000, 4000)), 2000, reasons.StepLimited, 5 * time.Second},
		"the cooldown":                   {lowered, 0, reasons.StepLimited, 4 * time.Second},
		"the last step, within the band": {steps(one(510, 4000)), 500, reasons.Settled, 0},
		"not below a pod in trouble": {
			steps(with(one(2000, 0), func(p *Pod) { p.NoDecrease = reasons.PodNotReady })), 0, reasons.PodNotReady, 0,
		},
		"up at once":  {steps(with(one(100, 100), func(p *Pod) { p.LastIncrease = now })), 500, reasons.Settled, 0},
		"as declared": {steps(one(500, 4000)), 0, reasons.Settled, 0},
	})
	if got := to(Plan(bounded(), now, false, []Pod{steps(one(100, 100))})[0]); got != 500 {
		t.Errorf("with bounded increases it restored to %v, want 500m", got)
	}
}

func TestDeadBand(t *testing.T) {
	expect(t, map[string]planned{
		"a little more":              {one(1000, 1090), 0, reasons.WithinDeadBand, 0},
		"a little less":              {one(1000, 910), 0, reasons.WithinDeadBand, 0},
		"more":                       {one(1000, 1100), 1100, reasons.Settled, 0},
		"less":                       {one(1000, 900), 900, reasons.Settled, 0},
		"the same":                   {one(1000, 1000), 0, reasons.Settled, 0},
		"below its floor it is moot": {one(90, 95), 100, reasons.Settled, 0},
		"nothing is decided":         {one(1000, 0), 0, reasons.NoDecisionYet, 0},
	})
}

// TestDecreasesEnd: a decrease in steps ends at the desired limit, wherever the steps before it end.
func TestDecreasesEnd(t *testing.T) {
	for limit := cpu.Milli(300); limit <= 4000; limit += 70 {
		for want := cpu.Milli(100); want < limit*9/10; want += 10 {
			p, at := one(limit, want), now
			for range 20 {
				s := Plan(DefaultConfig(), at, false, []Pod{p})[0]
				if s.Move != nil {
					p.Containers[0].Limit, p.LastDecrease = s.Move.Changes[0].To, at
				}
				at = at.Add(time.Minute)
			}
			if got := p.Containers[0].Limit; got != want {
				t.Fatalf("from %v to %v: it ends at %v", limit, want, got)
			}
		}
	}
}

func TestStaleMovesNothing(t *testing.T) {
	for name, p := range map[string]Pod{
		"a raise": one(500, 2000), "a decrease": one(2000, 500), "back into its bounds": one(9000, 500),
	} {
		if plan(p).Move == nil {
			t.Fatalf("%s: nothing to move even when the decision is fresh", name)
		}
		p.Stale = true
		expect(t, map[string]planned{name + " waits for a newer decision": {p, 0, reasons.DecisionTooOld, 0}})
		p.Restore = true
		if s := plan(p); to(s) != 500 && s.Reason != reasons.Settled {
			t.Errorf("%s: %+v, want a restore to go ahead", name, s)
		}
	}
	settled := with(one(1000, 1000), func(p *Pod) { p.Stale = true })
	expect(t, map[string]planned{"no newer decision is needed where nothing moves": {settled, 0, reasons.Settled, 0}})
}

func TestDecreasesFirst(t *testing.T) {
	decreasing, increasing := one(3000, 1000), one(500, 2000)
	decreasing.UID, increasing.UID, increasing.Capped = "decreasing", "increasing", true
	steps := Plan(DefaultConfig(), now, false, []Pod{increasing, decreasing})
	if steps[0].Move.UID != "decreasing" || steps[1].Move.UID != "increasing" {
		t.Errorf("with room: %v, want both, the decreasing first", steps)
	}
	steps = Plan(DefaultConfig(), now, true, []Pod{increasing, decreasing})
	if steps[0].Move.UID != "decreasing" || steps[1].Move != nil || steps[1].Reason != reasons.WaitingForDecreases || steps[1].RecheckAt.IsZero() {
		t.Errorf("on a full node: %+v, want the increasing to wait", steps)
	}
	// The decreasing's decrease is on its way.
	decreasing = one(1000, 1000)
	decreasing.InFlight, decreasing.LastDecrease = true, now.Add(-time.Second)
	steps = Plan(DefaultConfig(), now, true, []Pod{increasing, decreasing})
	if steps[0].Move != nil || steps[1].Move != nil {
		t.Errorf("with the decrease in flight: %+v, want the increasing to wait", steps)
	}
	decreasing.InFlight = false
	if got := to(Plan(DefaultConfig(), now, true, []Pod{increasing, decreasing})[0]); got != 2000 {
		t.Errorf("after the decrease the increasing goes to %v, want 2000m", got)
	}
	// A pod in its decrease cooldown frees nothing now, so no increase waits for it.
	decreasing = one(3000, 1000)
	decreasing.LastDecrease = now
	if got := to(Plan(DefaultConfig(), now, true, []Pod{increasing, decreasing})[0]); got != 2000 {
		t.Errorf("beside a decreasing that cools down the increasing goes to %v, want 2000m", got)
	}
}

// TestWaitsAreBounded: an increase on a full node waits for a decrease whose turn does not come, or that
// stays in flight, no longer than DecreasesWait in ten minutes; one of a pod that is not capped does
// not wait.
func TestWaitsAreBounded(t *testing.T) {
	inFlight := with(one(1000, 1000), func(p *Pod) { p.InFlight, p.LastDecrease = true, now })
	for name, c := range map[string]struct {
		decreasing Pod
		capped     bool
		want       time.Duration
	}{
		"a decrease that is planned again and again": {one(3000, 1000), true, time.Second},
		"a decrease in flight":                       {inFlight, true, time.Second},
		"a decrease that waits for its turn":         {with(one(3000, 1000), func(p *Pod) { p.Queued = true }), true, 0},
		"a pod that is not capped":                   {one(3000, 1000), false, 0},
	} {
		increasing := with(one(500, 2000), func(p *Pod) { p.UID, p.Capped = "increasing", c.capped })
		held := time.Duration(0)
		for at := now; at.Before(now.Add(10 * time.Minute)); at = at.Add(500 * time.Millisecond) {
			for _, s := range Plan(DefaultConfig(), at, true, []Pod{c.decreasing, increasing}) {
				if s.Pod != 1 || s.Reason != reasons.WaitingForDecreases {
					continue
				}
				held += 500 * time.Millisecond
				if increasing.WaitsSince.IsZero() {
					increasing.WaitsSince = at
				}
				if end := increasing.WaitsSince.Add(time.Second); !s.RecheckAt.Equal(end) {
					t.Errorf("%s: planned again at %v, want when the wait ends, %v", name, s.RecheckAt, end)
				}
			}
		}
		if held != c.want {
			t.Errorf("%s: held up for %v of ten minutes, want %v", name, held, c.want)
		}
	}
}

func TestRestoreIsExact(t *testing.T) {
	p := one(4000, 100)
	p.Restore, p.NoDecrease, p.LastDecrease = true, reasons.PodNotReady, now
	p.Containers[0].Declared = 45 // outside of floor, band, step and quantum
	expect(t, map[string]planned{"a restore is one move": {p, 45, "", 0}})
	p.Containers[0].Limit = 45
	expect(t, map[string]planned{"nothing is left to do": {p, 0, reasons.Settled, 0}})
	increasing := one(100, 100)
	increasing.Restore = true
	if got := to(Plan(DefaultConfig(), now, true, []Pod{one(3000, 1000), increasing})[1]); got != 500 {
		t.Errorf("on a full node a restore goes to %v, want 500m without waiting", got)
	}
}

// TestRaisesOnlyWhatRuns: a container that is down is lowered and not raised, and its pod's other container is both.
func TestRaisesOnlyWhatRuns(t *testing.T) {
	down := func(p *Pod) { p.Containers[0].NotRunning = true }
	restored := func(p *Pod) { p.Restore = true }
	expect(t, map[string]planned{
		"a raise waits":     {with(one(500, 1000), down), 0, reasons.ContainerNotRunning, 0},
		"it is lowered":     {with(one(1000, 900), down), 900, reasons.Settled, 0},
		"a restore waits":   {with(with(one(300, 1000), down), restored), 0, reasons.ContainerNotRunning, 0},
		"a restore lowers":  {with(with(one(1000, 1000), down), restored), 500, "", 0},
		"below its floor":   {with(one(50, 1000), down), 0, reasons.ContainerNotRunning, 0},
		"nothing to raise":  {with(one(500, 500), down), 0, reasons.Settled, 0},
		"within the band":   {with(one(500, 520), down), 0, reasons.WithinDeadBand, 0},
		"as it was desired": {with(one(500, 0), down), 0, reasons.NoDecisionYet, 0},
	})
	two := one(500, 1000)
	two.Containers = append(two.Containers, Container{Name: "d", Limit: 500, Declared: 800, Ceiling: 4000, Desired: 1000, NotRunning: true})
	for _, restore := range []bool{false, true} {
		two.Restore = restore
		two.Containers[0].Declared = 1000
		if s := plan(two); s.Move == nil || len(s.Move.Changes) != 1 || to(s) != 1000 || s.Reason != reasons.ContainerNotRunning {
			t.Errorf("restore %v: %v, %s; want the container that runs at 1000m", restore, s.Move, s.Reason)
		}
	}
}

func TestQuiesces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg, all, full := configs(t), pods(t), rapid.Bool().Draw(t, "full")
		at := now
		for range 40 {
			at = at.Add(max(cfg.DecreaseCooldown, time.Minute))
			moved := false
			for _, s := range Plan(cfg, at, full, all) {
				if s.Move == nil {
					continue
				}
				moved = true
				p := &all[s.Pod]
				for _, ch := range s.Move.Changes {
					for j := range p.Containers {
						if p.Containers[j].Name == ch.Container {
							p.Containers[j].Limit = ch.To
						}
					}
				}
				if s.Move.Lowers() {
					p.LastDecrease = at
				}
				if s.Move.Raises() {
					p.LastIncrease = at
				}
			}
			if !moved {
				return
			}
		}
		t.Fatalf("still moving after 40 plans: %+v", all)
	})
}

func TestConfigReportsEverything(t *testing.T) {
	for _, c := range []Config{DefaultConfig(), bounded()} {
		if err := c.Validate(); err != nil {
			t.Error(err)
		}
	}
	err := Config{DeadBand: 1, MaxDecreaseFactor: 1, BelowDeclaredFactor: -1, MaxIncreaseFactor: 0.5, DecreaseCooldown: -1, DecreasesWait: -1}.Validate()
	if err == nil || len(err.(interface{ Unwrap() []error }).Unwrap()) != 6 {
		t.Errorf("Validate = %v, want six complaints", err)
	}
}

// TestStepsOfADecrease is the bound of docs/theory.md: rounded to whole quanta, a decrease above the declared limit takes
// one step more than the logarithm says at most, whatever the limits, and one below it none more.
func TestStepsOfADecrease(t *testing.T) {
	cfg := DefaultConfig()
	cfg.DecreaseCooldown = 0
	for declared, c := range map[cpu.Milli]struct {
		factor float64
		more   int
	}{cpu.Quantum: {cfg.MaxDecreaseFactor, 1}, 256_000: {cfg.BelowDeclaredFactor, 0}} {
		tight := false
		for _, from := range []cpu.Milli{100, 110, 300, 640, 1000, 3990, 4000, 16_000, 64_000, 255_990} {
			for want := from - cpu.Quantum; want > 0; want -= max(cpu.Quantum, (want / 50).RoundDown(cpu.Quantum)) {
				steps := stepsDown(cfg, declared, from, want)
				most := c.more + int(math.Ceil(math.Log(from.Cores()/want.Cores())/math.Log(c.factor)-1e-9))
				if steps > most {
					t.Errorf("from %v to %v, declared %v: %d steps, want %d at most", from, want, declared, steps, most)
				}
				tight = tight || steps == most && steps > 2
			}
		}
		if !tight {
			t.Errorf("declared %v: no decrease took as many steps, so the bound is too wide", declared)
		}
	}
}

// stepsDown is how many steps a limit takes down to the wanted one, or to within the dead band of it.
func stepsDown(cfg Config, declared, limit, want cpu.Milli) (steps int) {
	for ; ; steps++ {
		p := one(limit, want)
		p.Containers[0].Floor, p.Containers[0].Ceiling, p.Containers[0].Declared = cpu.Quantum, limit, declared
		move := Plan(cfg, now, false, []Pod{p})[0].Move
		if move == nil {
			return steps
		}
		limit = move.Changes[0].To
	}
}
