package rival

import (
	"math"
	"testing"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/sim"
)

func equals(got, want float64) bool { return math.Abs(got-want) < 1e-9 }

// On 10 cores a turn gives 1 % of the node, 0.1 cores. One pod was throttled for 60 ms in one period of 100 ms and wants 0.6 cores; another
// one for 40 ms in two and wants 0.2. They get 0.075 and 0.025; the third was not throttled.
func TestQuotaTurboRisesInProportionToThrottling(t *testing.T) {
	q := NewQuotaTurbo(DefaultQuotaTurboConfig())
	a := &turboPod{newThrottled: 1, newTime: 60 * time.Millisecond}
	b := &turboPod{newThrottled: 2, newTime: 40 * time.Millisecond}
	c := &turboPod{newTime: 40 * time.Millisecond}
	q.rise(&sim.Reading{Cores: 10, Period: 100 * time.Millisecond}, []*turboPod{a, b, c})
	if !equals(a.delta, 0.075) || !equals(b.delta, 0.025) || c.delta != 0 {
		t.Errorf("got %v, %v and %v, want 0.075, 0.025 and 0", a.delta, b.delta, c.delta)
	}
}

// Quotas of 1.5 and 1.25 cores at limits of 1. At 70 % the one that is not throttled loses (70 - 60)/20 x 0.1 = 0.05 of its excess: 0.0125.
// At 82 % it loses 22/20 x 0.1 = 0.11 of it, 0.0275, and both lose their part, 2/3 and 1/3, of 2 % of 10 cores.
func TestQuotaTurboFallsByTheNodesUse(t *testing.T) {
	q := NewQuotaTurbo(DefaultQuotaTurboConfig())
	for util, want := range map[float64][2]float64{
		59: {0, 0},
		70: {0, -0.0125},
		82: {-0.2 * 2 / 3, -0.0275 - 0.2/3},
	} {
		a, b := &turboPod{limit: 1, cur: 1.5, newThrottled: 1}, &turboPod{limit: 1, cur: 1.25}
		q.fall(util, 10, []*turboPod{a, b})
		if !equals(a.delta, want[0]) || !equals(b.delta, want[1]) {
			t.Errorf("at %v %%: %v and %v, want %v", util, a.delta, b.delta, want)
		}
	}
}

// 59 reads at a limit of 1 core are 5.8 s, of which 1 x 5.8 x 59/58 = 5.9 s may be used. When 5.8 s were, 0.1/5.8 x 58 = 1 period of
// a core is left. That is less than 3 x 2, so the highest quota is 1 + 1 x 1/6. When 4.9 s were, 10 periods are left, and it is 2. When 6.5 s were, nothing is, and it is 1.
func TestQuotaTurboKeepsTheMeanAtTheLimit(t *testing.T) {
	q := NewQuotaTurbo(DefaultQuotaTurboConfig())
	for used, want := range map[time.Duration]float64{5800: 1 + 1.0/6, 4900: 2, 6500: 1} {
		p := &turboPod{limit: 1}
		for i := range time.Duration(59) {
			p.uses = append(p.uses, nodeUse{i * 100 * time.Millisecond, used * time.Millisecond * i / 58})
		}
		if got := q.most(p); !equals(got, want) {
			t.Errorf("%d ms used: %v, want %v", used, got, want)
		}
	}
	if got := q.most(&turboPod{limit: 1}); got != 2 {
		t.Errorf("nothing known: %v, want 2", got)
	}
}

// On 10 cores at a steady use of 3, nothing rises in the first minute, as its first tick counts as a use of 0; then
// a throttled pod gets 0.1 cores a tick.
func TestQuotaTurboWaitsForACalmMinute(t *testing.T) {
	w := handmade(10, sim.Spec{Request: 500, Limit: 1000}, sim.Spec{})
	q := NewQuotaTurbo(DefaultQuotaTurboConfig())
	var rose time.Duration
	for rose == 0 && w.Now < 2*time.Minute {
		actions, _ := q.Turn(&w.Reading)
		if w.do(actions); w.Pods[0].Limit > 1000 {
			rose = w.Now
		}
		w.pass(100*time.Millisecond, 0.2, 2.8)
		w.Pods[0].Throttled++
		w.Pods[0].ThrottledTime += 60 * time.Millisecond
	}
	if rose != time.Minute+100*time.Millisecond || w.Pods[0].Limit != 1100 {
		t.Errorf("rose at %v to %v, want at 60.1 s to 1100m", rose, w.Pods[0].Limit)
	}
}

func TestQuotaTurboInTheCrowd(t *testing.T) {
	setup := crowd(3 * time.Minute)
	const cores = 4
	r := playTwice(t, setup.Length, func() sim.Policy { return NewQuotaTurbo(DefaultQuotaTurboConfig()) })
	for _, p := range r.Pods {
		for _, c := range p.Changes {
			if c.To < p.Spec.Limit || c.To > 2*p.Spec.Limit || c.To-c.From > cpu.Milli(cores*1000/100)+1 {
				t.Errorf("%s went from %v to %v, declared %v", p.Spec.Name, c.From, c.To, p.Spec.Limit)
			}
		}
	}
	// On a node of 16 cores short bursts of two move the use by 8 points at most: the pod is lent quota.
	calm := sim.Setup{Machine: sim.Machine{Cores: 16}, Length: 90 * time.Second, Seed: 1, Pods: crowd(0).Pods[:1]}
	calm.Pods[0].Requests.Rate = nil
	calm.Pods[0].Limit, calm.Pods[0].Threads = 600, 4
	calm.Pods[0].Spin = pulses{}
	lent := sim.Run(calm, NewQuotaTurbo(DefaultQuotaTurboConfig()))
	if len(lent.Pods[0].Changes) == 0 {
		t.Error("nothing was lent")
	}
}

// pulses are two threads for 150 ms of each half second.
type pulses struct{}

func (pulses) At(t time.Duration) (float64, time.Duration) {
	const every, length = 500 * time.Millisecond, 150 * time.Millisecond
	begin := t - t%every
	if t-begin < length {
		return 2, begin + length
	}
	return 0, begin + every
}
