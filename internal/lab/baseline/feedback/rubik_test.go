package feedback

import (
	"testing"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/lab/sim"
	"github.com/mbcas/mbcas/internal/lab/simtest"
)

// On 10 cores a turn gives 1 % of the node, 0.1 cores. One pod was throttled for 60 ms in one
// period of 100 ms and wants 0.6 cores; another one for 40 ms in two and wants 0.2. They get 0.075
// and 0.025; the third was not throttled.
func TestQuotaTurboRisesInProportionToThrottling(t *testing.T) {
	a := &quotaTurboPod{newThrottled: 1, newTime: 60 * time.Millisecond}
	b := &quotaTurboPod{newThrottled: 2, newTime: 40 * time.Millisecond}
	c := &quotaTurboPod{newTime: 40 * time.Millisecond}
	increase(&sim.Snapshot{Cores: 10, Period: 100 * time.Millisecond}, []*quotaTurboPod{a, b, c})
	if !simtest.AlmostEqual(a.delta, 0.075) || !simtest.AlmostEqual(b.delta, 0.025) || c.delta != 0 {
		t.Errorf("got %v, %v and %v, want 0.075, 0.025 and 0", a.delta, b.delta, c.delta)
	}
}

// Quotas of 1.5 and 1.25 cores at limits of 1. At 70 % the one that is not throttled loses (70 -
// 60)/20 x 0.1 = 0.05 of its excess: 0.0125. At 82 % it loses 22/20 x 0.1 = 0.11 of it, 0.0275, and
// both lose their part, 2/3 and 1/3, of 2 % of 10 cores.
func TestQuotaTurboFallsByTheNodesUse(t *testing.T) {
	for util, want := range map[float64][2]float64{
		59: {0, 0},
		70: {0, -0.0125},
		82: {-0.2 * 2 / 3, -0.0275 - 0.2/3},
	} {
		a, b := &quotaTurboPod{limit: 1, cur: 1.5, newThrottled: 1}, &quotaTurboPod{limit: 1, cur: 1.25}
		decrease(util, 10, []*quotaTurboPod{a, b})
		if !simtest.AlmostEqual(a.delta, want[0]) || !simtest.AlmostEqual(b.delta, want[1]) {
			t.Errorf("at %v %%: %v and %v, want %v", util, a.delta, b.delta, want)
		}
	}
}

// 59 reads at a limit of 1 core are 5.8 s, of which 1 x 5.8 x 59/58 = 5.9 s may be used. When 5.8 s
// were, 0.1/5.8 x 58 = 1 period of a core is left. That is less than 3 x 2, so the highest quota is
// 1 + 1 x 1/6. When 5.7 s were, 2 periods are, and it is 1 + 1 x 2/6. When 4.9 s were, 10 periods
// are left, and it is 2. When 6.5 s were, nothing is, and it is 1. Two reads with a full period
// between them leave 1 period, too.
func TestQuotaTurboKeepsTheMeanAtTheLimit(t *testing.T) {
	for used, want := range map[time.Duration]float64{5800: 1 + 1.0/6, 5700: 1 + 2.0/6, 4900: 2, 6500: 1} {
		p := &quotaTurboPod{limit: 1}
		for i := range time.Duration(59) {
			p.uses = append(p.uses, nodeUse{time.Minute + i*100*time.Millisecond, used * time.Millisecond * i / 58})
		}
		if got := p.maxLimit(); !simtest.AlmostEqual(got, want) {
			t.Errorf("%d ms used: %v, want %v", used, got, want)
		}
	}
	two := []nodeUse{{0, 0}, {100 * time.Millisecond, 100 * time.Millisecond}}
	if got, want := (&quotaTurboPod{limit: 1, uses: two}).maxLimit(), 1+1.0/6; !simtest.AlmostEqual(got, want) {
		t.Errorf("two reads: %v, want %v", got, want)
	}
	if got := (&quotaTurboPod{limit: 1}).maxLimit(); got != 2 {
		t.Errorf("nothing known: %v, want 2", got)
	}
}

func TestQuotaTurboIsCalmWithinTenPoints(t *testing.T) {
	for _, c := range []struct {
		first, second float64
		want          bool
	}{{20, 30, true}, {20, 30.5, false}, {30.5, 20, false}} {
		q := NewQuotaTurbo()
		q.utils = []nodeUtil{{percent: c.first}, {percent: c.second}}
		if q.calm() != c.want {
			t.Errorf("from %v to %v %%: calm is %v", c.first, c.second, !c.want)
		}
	}
}

// On 10 cores at a steady use of 3, nothing rises in the first minute, as its first tick counts as
// a use of 0, and the next one is idle; then a throttled pod gets 0.1 cores a tick. The same at 79
// %, but not at 79.5 %, closer than 1 to 80.
func TestQuotaTurboWaitsForACalmMinute(t *testing.T) {
	for other, want := range map[float64]time.Duration{2.8: time.Minute + 200*time.Millisecond, 7.7: time.Minute + 200*time.Millisecond, 7.75: 0} {
		w := simtest.NewNode(10, sim.PodSpec{Request: 500, Limit: 1000}, sim.PodSpec{})
		q := NewQuotaTurbo()
		q.Decide(&w.Snapshot)
		w.Advance(100*time.Millisecond, 0, 0)
		var rose time.Duration
		for rose == 0 && w.Now < 2*time.Minute {
			actions, _ := q.Decide(&w.Snapshot)
			if w.Apply(actions); w.Pods[0].Limit > 1000 {
				rose = w.Now
			}
			w.Advance(100*time.Millisecond, 0.2, other)
			w.Pods[0].Throttled++
			w.Pods[0].ThrottledTime += 60 * time.Millisecond
		}
		if rose != want || want > 0 && w.Pods[0].Limit != 1100 {
			t.Errorf("others use %v: rose at %v to %v, want at %v to 1100m", other, rose, w.Pods[0].Limit, want)
		}
	}
}

// Time passes for one tick, in which the pods use so many cores and those with a limit are
// throttled for a time.
func tick(t *testing.T, w *simtest.Node, q *QuotaTurbo, throttled time.Duration, cores ...float64) {
	t.Helper()
	w.Advance(100*time.Millisecond, cores...)
	for i := range w.Pods {
		if p := &w.Pods[i]; throttled > 0 && p.Limit > 0 {
			p.Throttled++
			p.ThrottledTime += throttled
		}
	}
	actions, next := q.Decide(&w.Snapshot)
	if next != w.Now+100*time.Millisecond {
		t.Fatalf("next call at %v, want in 100 ms", next)
	}
	for _, a := range actions {
		if a.Delay != sim.DirectDelay {
			t.Fatalf("%+v, want a write to the cgroup", a)
		}
	}
	w.Apply(actions)
}

// The second pod has a limit of 1 core, the third one of the whole node, so it is left alone. 2 ms
// of throttling are 0.02 cores, and 60 ms more than the 0.1 that a tick gives. Then the others' use
// leaps: at 70 % the pod loses 0.05 x 0.24 = 0.012 when it is not throttled and nothing when it is;
// at 95 % it would lose 1.5 cores and goes back to its limit. What the node used before the first
// call does not count.
func TestQuotaTurboLendsAndTakesBack(t *testing.T) {
	w := simtest.NewNode(10, sim.PodSpec{}, sim.PodSpec{Request: 500, Limit: 1000}, sim.PodSpec{Request: 500, Limit: 10000})
	w.Now, w.Usage = time.Minute, 5*time.Minute
	q := NewQuotaTurbo()
	q.Decide(&w.Snapshot)
	for i, c := range []struct {
		throttled time.Duration
		others    float64
		want      cpu.Milli
	}{
		{2, 0.3, 1020}, {2, 0.3, 1040}, {60, 0.3, 1140}, {0, 0.3, 1140}, {60, 0.3, 1240},
		{0, 6.8, 1228}, {60, 6.8, 1228}, {60, 9.3, 1000},
	} {
		tick(t, w, q, c.throttled*time.Millisecond, c.others, 0.2, 0)
		if got := w.Pods[1].Limit; got != c.want {
			t.Errorf("tick %d: %v, want %v", i+1, got, c.want)
		}
	}
	if got := w.Pods[2].Limit; got != 10000 {
		t.Errorf("the limit of the whole node became %v", got)
	}
}

// Throttled in each tick, the pod that uses its whole limit of 1 core has 1 period left, so it gets
// no more than 1 + 1/6. The one that uses a tenth of 2 cores gets twice its limit.
func TestQuotaTurboLendsNoMoreThanIsLeft(t *testing.T) {
	w := simtest.NewNode(20, sim.PodSpec{Request: 500, Limit: 1000}, sim.PodSpec{Request: 500, Limit: 2000})
	q := NewQuotaTurbo()
	q.Decide(&w.Snapshot)
	for range 50 {
		tick(t, w, q, 60*time.Millisecond, 1, 0.2)
	}
	if a, b := w.Pods[0].Limit, w.Pods[1].Limit; a != 1167 || b != 4000 {
		t.Errorf("quotas %v and %v, want 1167m and 4000m", a, b)
	}
}

// The balance is over the last 59 reads. Of a pod that has gone nothing is kept, of the other one
// everything. Where a pod stands at first is not written again.
func TestQuotaTurboRemembersFiftyNineReads(t *testing.T) {
	w := simtest.NewNode(10, sim.PodSpec{Request: 500, Limit: 1000}, sim.PodSpec{Request: 500, Limit: 1000})
	w.Pods[0].Limit = 1500
	q := NewQuotaTurbo()
	if actions, _ := q.Decide(&w.Snapshot); len(actions) > 0 {
		t.Errorf("at first it does %v, want nothing", actions)
	}
	for range 100 {
		tick(t, w, q, 0, 0.2, 0.2)
	}
	w.Pods = w.Pods[1:]
	tick(t, w, q, 0, 0.2)
	uses := q.pods[1].uses
	if len(q.pods) != 1 || len(uses) != 59 || uses[0].at != w.Now-5800*time.Millisecond || uses[58].at != w.Now {
		t.Errorf("%d pods; %d reads from %v to %v, want 59 up to %v", len(q.pods), len(uses), uses[0].at, uses[len(uses)-1].at, w.Now)
	}
}
