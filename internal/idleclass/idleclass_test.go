package idleclass

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/round"
	"github.com/mbcas/mbcas/internal/sense"
	"github.com/mbcas/mbcas/market"
)

// fakePod is a pod and what it wants.
type fakePod struct {
	uid       string
	request   cpu.Milli
	budget    market.Budget // 0: the request
	wants     cpu.Milli
	optedOut  bool
	unmanaged bool
	unlimited bool // a second container has no limit
	undecided int  // for how many ticks more the round has no decision about it
	unrated   bool // nor a rate while it has no decision
	setting   Setting
	usage     cpu.Milli
}

// world is a node with a simple kernel: first the pods outside of the idle class take what they want, by weight, and
// members share the rest equally.
type world struct {
	cfg     Config
	cores   cpu.Milli
	pods    []*fakePod
	now     time.Time
	state   State
	price   market.Price
	psi     bool // pressure is read
	unknown bool // usage cannot be read
	changes int  // of the class
}

func newWorld(cores cpu.Milli, pods ...*fakePod) *world {
	for _, p := range pods {
		if p.budget == 0 {
			p.budget = market.Budget(p.request)
		}
		p.setting = Setting{UID: p.uid, Weight: WeightOf(p.request)}
	}
	return &world{cfg: DefaultConfig(), cores: cores, pods: pods, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
}

// run advances by seconds.
func (w *world) run(seconds int) {
	for range seconds {
		w.tick()
	}
}

func (w *world) tick() {
	w.now = w.now.Add(time.Second)
	left := fill(w.cores, w.pods, false)
	fill(left, w.pods, true)
	w.decide()
}

func (w *world) decide() []Setting {
	in := round.Input{Now: w.now, Node: round.Node{Capacity: w.cores, Allocatable: w.cores}}
	out := round.Output{Node: round.NodeDecision{Supply: w.cores * 9 / 10, SystemKnown: true, Price: w.price}}
	gap := w.now.Sub(w.state.at) > round.DefaultConfig().LongestGap
	out.Node.UsageKnown = !w.unknown && !gap
	for i, p := range w.pods {
		containers := []demand.Container{{ID: p.uid, Request: p.request, Declared: 1000, Limit: w.cores}}
		if p.unlimited {
			containers = append(containers, demand.Container{ID: p.uid + "-2"})
		}
		in.Pods = append(in.Pods, round.PodInput{
			Pod: demand.Pod{UID: p.uid, Budget: p.budget, Unmanaged: p.unmanaged, Containers: containers},
		})
		out.Node.Usage += p.usage
		d := round.Decision{UID: p.uid, Pod: i, Usage: p.usage, Demand: min(p.wants, 2*p.usage), Budget: p.budget}
		if d.Pressure.Known = w.psi; p.usage < p.wants {
			d.Pressure.Value = 1
		}
		if p.undecided--; !p.unmanaged && p.undecided < 0 {
			out.Decisions = append(out.Decisions, d)
		}
		rate := sense.Rate{Usage: p.usage}
		if p.unrated && p.undecided >= 0 {
			rate = sense.Rate{Validity: sense.NoEarlierSample}
		}
		out.Rates = append(out.Rates, sense.PodRates{Containers: []sense.Rate{rate}})
	}
	var settings []Setting
	w.state, settings = Decide(w.cfg, w.state, in, out, func(uid string) bool { return !w.pod(uid).optedOut })
	for _, s := range settings {
		p := w.pod(s.UID)
		if s.Idle != p.setting.Idle {
			w.changes++
		}
		p.setting = s
	}
	return settings
}

func (w *world) pod(uid string) *fakePod {
	for _, p := range w.pods {
		if p.uid == uid {
			return p
		}
	}
	return nil
}

// fill divides cores among the pods of a class by weight, or equally in the idle class, and returns what is left.
func fill(cores cpu.Milli, pods []*fakePod, idle bool) cpu.Milli {
	open := map[*fakePod]float64{}
	for _, p := range pods {
		if p.setting.Idle == idle {
			p.usage = 0
			if open[p] = float64(p.setting.Weight); idle {
				open[p] = 1
			}
		}
	}
	left := cores.Cores()
	for len(open) > 0 {
		var weights float64
		for _, w := range open {
			weights += w
		}
		level, satisfied := left/weights, false
		for p, w := range open {
			if p.wants.Cores() <= level*w {
				p.usage, left, satisfied = p.wants, left-p.wants.Cores(), true
				delete(open, p)
			}
		}
		if !satisfied {
			for p, w := range open {
				p.usage = cpu.FromCores(level * w)
			}
			return 0
		}
	}
	return max(0, cpu.FromCores(left))
}

func TestSaturatingPodsBecomeMembers(t *testing.T) {
	for _, psi := range []bool{true, false} {
		service := &fakePod{uid: "service", request: 128, wants: 600}
		hog := &fakePod{uid: "hog", request: 1024, wants: 4000}
		w := newWorld(2000, service, hog)
		w.psi = psi
		w.tick() // the first has nothing before it
		if hog.setting.Idle {
			t.Error("a pod is a member at the first tick")
		}
		w.run(1)
		if !hog.setting.Idle || service.setting.Idle {
			t.Errorf("psi %v: idle: hog %v, service %v: want the hog alone, after %v",
				psi, hog.setting.Idle, service.setting.Idle, DefaultConfig().SureAfter)
		}
		if w.run(60); w.changes != 1 || service.usage != 600 || hog.usage != 1400 {
			t.Errorf("psi %v: the service has %v and the hog %v after %d changes: want 600m, and the rest",
				psi, service.usage, hog.usage, w.changes)
		}
	}
	// Three hogs beside services: no service becomes a member, and all hogs do within a few ticks.
	var pods []*fakePod
	for i := range 6 {
		pods = append(pods, &fakePod{uid: fmt.Sprint("service-", i), request: 500, budget: 1000, wants: 800})
	}
	for i := range 3 {
		pods = append(pods, &fakePod{uid: fmt.Sprint("hog-", i), request: 500, wants: 6000})
	}
	w := newWorld(8000, pods...)
	w.run(10)
	for i, p := range pods {
		if p.setting.Idle != (i >= 6) {
			t.Errorf("%s: idle %v after 10 s", p.uid, p.setting.Idle)
		}
	}
}

// idleFor10s is a node of two cores with a quiet pod and a service.
func idleFor10s(t *testing.T, request cpu.Milli, service *fakePod) (w *world, p *fakePod) {
	t.Helper()
	p = &fakePod{uid: "quiet", request: request, wants: 3}
	w = newWorld(2000, p, service)
	w.psi = true
	w.run(9)
	if p.setting.Weight != WeightOf(request) || p.setting.Class != Weighted {
		t.Fatalf("idle for 9 s: weight %d, class %d", p.setting.Weight, p.setting.Class)
	}
	w.run(2)
	if p.setting.Weight != smallWeight(market.Budget(request), request, 0) || p.setting.Class != Quiet || p.setting.Idle {
		t.Fatalf("idle for 11 s: weight %d, class %d, idle %v", p.setting.Weight, p.setting.Class, p.setting.Idle)
	}
	if service.setting.Weight != WeightOf(cpu.Milli(service.budget)) {
		t.Fatalf("the service has a weight of %d", service.setting.Weight)
	}
	return w, p
}

// probationTicks is for how many ticks a pod that wakes has a small weight at most: the one in which it wakes, too.
const probationTicks = 4

// TestQuietPodsYield: the pod that begins to saturate has a small weight before it does.
func TestQuietPodsYield(t *testing.T) {
	t.Run("saturates beside misleading requests", func(t *testing.T) {
		for _, first := range []cpu.Milli{4000, 1000, 200} { // it wakes at any time of a tick
			service := &fakePod{uid: "service", request: 100, wants: 600}
			w, hog := idleFor10s(t, 800, service)
			hog.wants = first
			for i := range 30 {
				if w.tick(); service.usage < service.wants {
					t.Fatalf("%d s after the start the service has %v of %v", i, service.usage, service.wants)
				}
				hog.wants = 4000
			}
			if !hog.setting.Idle {
				t.Error("the pod that saturates is no member")
			}
		}
	})
	t.Run("wants its request", func(t *testing.T) {
		w, p := idleFor10s(t, 800, &fakePod{uid: "service", request: 100, wants: 4000})
		p.wants = 700
		if w.run(probationTicks); p.setting.Weight != WeightOf(800) || p.setting.Class != Weighted {
			t.Fatalf("after its probation: weight %d, class %d", p.setting.Weight, p.setting.Class)
		}
		if w.run(30); p.usage < p.wants || p.setting.Idle {
			t.Errorf("it has %v of %v within its request, idle %v", p.usage, p.wants, p.setting.Idle)
		}
	})
	t.Run("has all that it wants", func(t *testing.T) {
		for _, wants := range []cpu.Milli{900, 1300} { // beside idle CPU, and of which there is just enough
			w, p := idleFor10s(t, 800, &fakePod{uid: "service", request: 100, wants: 600})
			p.wants = wants
			for range 30 {
				if w.tick(); p.usage < p.wants || p.setting.Idle {
					t.Fatalf("it has %v of %v, idle %v", p.usage, p.wants, p.setting.Idle)
				}
			}
			if p.setting.Weight != WeightOf(800) {
				t.Errorf("after its probation it has a weight of %d", p.setting.Weight)
			}
		}
	})
	t.Run("a priority tells", func(t *testing.T) {
		service := &fakePod{uid: "service", request: 100, budget: 800, wants: 3}
		w := newWorld(4000, service)
		w.psi = true
		for _, uid := range []string{"a", "b", "c", "d"} {
			w.pods = append(w.pods, &fakePod{uid: uid, request: 800, budget: 800, wants: 940, setting: Setting{Weight: WeightOf(800)}})
		}
		w.run(15)
		service.wants = 700
		if w.run(probationTicks + 1); service.usage < service.wants || service.setting.Idle {
			t.Errorf("it has %v of %v within its share, idle %v", service.usage, service.wants, service.setting.Idle)
		}
	})
	t.Run("starved members", func(t *testing.T) { // they leave the class one by one, the last after more than 10 s
		w, _ := idleFor10s(t, 200, &fakePod{uid: "service", request: 100, wants: 600})
		for _, uid := range []string{"b", "c", "d", "e"} {
			w.pods = append(w.pods, &fakePod{uid: uid, request: 200, budget: 200, setting: Setting{Weight: WeightOf(200)}})
		}
		w.pod("quiet").wants = 4000
		for _, p := range w.pods[2:] {
			p.wants = 4000
		}
		w.run(30)
		members := map[*fakePod]bool{}
		for _, p := range w.pods {
			members[p] = p.setting.Idle
		}
		w.psi = false // else it is known that they wait
		w.pods = append(w.pods, &fakePod{uid: "greedy", request: 1000, budget: 1000, wants: 4000, optedOut: true,
			setting: Setting{Weight: WeightOf(100_000)}})
		left := 0
		for range 30 {
			w.tick()
			for p := range members {
				if members[p] && !p.setting.Idle {
					if left, members[p] = left+1, false; p.setting.Weight != WeightOf(200) {
						t.Errorf("%s leaves the class with a weight of %d", p.uid, p.setting.Weight)
					}
				}
			}
		}
		if left < 2 {
			t.Errorf("%d left the class, want several", left)
		}
	})
	t.Run("no usage", func(t *testing.T) {
		w, p := idleFor10s(t, 800, &fakePod{uid: "service", request: 100, wants: 600})
		w.unknown = true
		if w.tick(); p.setting.Weight != WeightOf(800) {
			t.Errorf("while usage cannot be read it has a weight of %d", p.setting.Weight)
		}
	})
	t.Run("no usage of the pod", func(t *testing.T) {
		p := &fakePod{uid: "busy", request: 800, wants: 700}
		w := newWorld(2000, p)
		w.run(5)
		p.undecided, p.unrated = 20, true
		if w.run(20); p.setting.Weight != WeightOf(800) {
			t.Errorf("a busy pod whose usage cannot be read has a weight of %d", p.setting.Weight)
		}
	})
	t.Run("off", func(t *testing.T) {
		p := &fakePod{uid: "quiet", request: 800, wants: 3}
		w := newWorld(2000, p)
		w.cfg.Probation = 0
		if w.run(30); p.setting.Weight != WeightOf(800) {
			t.Errorf("without probation a quiet pod has a weight of %d", p.setting.Weight)
		}
	})
}

// TestProbationEnds: however little a pod gets, it has its own weight or is a member some ticks after it demands CPU.
func TestProbationEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		milli := func(name string, least, most int) cpu.Milli {
			return cpu.Milli(rapid.IntRange(least, most).Draw(t, name))
		}
		p := &fakePod{uid: "quiet", request: milli("request", 10, 1000)}
		w := newWorld(2000, p)
		w.psi = true
		for i := range rapid.IntRange(1, 3).Draw(t, "others") {
			other := &fakePod{uid: fmt.Sprint(i), request: milli("other's request", 10, 4000), wants: milli("other's wants", 0, 4000)}
			other.optedOut = rapid.Bool().Draw(t, "opted out")
			other.budget, other.setting.Weight = market.Budget(other.request), WeightOf(other.request)
			if other.optedOut && rapid.Bool().Draw(t, "large weight") { // that another program has written
				other.setting.Weight = 10_000
			}
			w.pods = append(w.pods, other)
		}
		w.run(rapid.IntRange(0, 40).Draw(t, "quiet for"))
		p.wants = milli("wants", 300, 4000)
		if w.run(probationTicks + 1); !p.setting.Idle && p.setting.Weight != WeightOf(p.request) {
			t.Fatalf("it has a weight of %d, not %d, and %v of %v", p.setting.Weight, WeightOf(p.request), p.usage, p.wants)
		}
	})
}

// TestSmallWeight: an eighth, and neither the least weight nor more than its own.
func TestSmallWeight(t *testing.T) {
	for request, want := range map[cpu.Milli]uint64{0: 1, 27: 1, 100: 2, 300: 2, 800: 4, 8000: 39} {
		if got := smallWeight(market.Budget(request), request, 0); got != want {
			t.Errorf("of a request of %v: %d, want %d", request, got, want)
		}
	}
}

// TestNewPodsYield: pods that have just started have a small weight, and those that were there before have not, also
// when their namespace allows weights later.
func TestNewPodsYield(t *testing.T) {
	there := &fakePod{uid: "there", request: 300, wants: 600}
	later := &fakePod{uid: "later", request: 300, wants: 600, optedOut: true}
	w := newWorld(4000, there, later)
	w.tick()
	w.tick()
	starts := &fakePod{uid: "starts", request: 800, budget: 800, wants: 4000, undecided: 2, unrated: true}
	starts.setting = Setting{UID: "starts", Weight: WeightOf(800)}
	w.pods = append(w.pods, starts)
	w.tick()
	later.optedOut = false
	w.tick()
	for _, p := range []*fakePod{there, later} {
		if p.setting.Class != Weighted || p.setting.Weight != WeightOf(300) {
			t.Errorf("%s was there before: class %d, weight %d", p.uid, p.setting.Class, p.setting.Weight)
		}
	}
	if starts.setting.Class != OnProbation || starts.setting.Weight != WeightOf(800)/8 {
		t.Errorf("a pod that starts: class %d, weight %d", starts.setting.Class, starts.setting.Weight)
	}
	if w.run(2); !starts.setting.Idle {
		t.Errorf("a pod that saturates from its start: class %d, want it idle", starts.setting.Class)
	}
	w.now = w.now.Add(time.Minute) // no decisions meanwhile
	came := &fakePod{uid: "came", request: 300, budget: 300, wants: 600}
	w.pods = append(w.pods, came)
	if w.tick(); came.setting.Class != Weighted {
		t.Errorf("a pod that came while nothing was decided: class %d", came.setting.Class)
	}
}

func TestUnusedSharesHideNoPod(t *testing.T) {
	node := func(hog *fakePod) (*world, *fakePod) {
		service := &fakePod{uid: "service", request: 500, wants: 700}
		pods := []*fakePod{service, hog}
		for i := range 4 {
			pods = append(pods, &fakePod{uid: fmt.Sprint("system-", i), request: 300, wants: 10, optedOut: true})
		}
		return newWorld(2000, pods...), service
	}
	for _, hog := range []*fakePod{
		{uid: "not opted in", request: 100, wants: 4000, optedOut: true},
		{uid: "unmanaged", request: 100, wants: 4000, unmanaged: true},
		{uid: "partly limited", request: 100, wants: 4000, unlimited: true, optedOut: true},
		{uid: "never decided", request: 100, wants: 4000, undecided: 1000},
	} {
		w, service := node(hog)
		for range 30 {
			if w.tick(); service.setting.Idle {
				t.Fatalf("the service is a member beside a larger pod that cannot enter: %s", hog.uid)
			}
		}
	}
	for _, unrated := range []bool{false, true} {
		hog := &fakePod{uid: "hog", request: 100, wants: 4000, undecided: 4, unrated: unrated}
		w, service := node(hog)
		for range 8 {
			if w.tick(); service.setting.Idle {
				t.Fatalf("the service is a member, before or after the hog is decided; rate unknown: %v", unrated)
			}
		}
		if !hog.setting.Idle {
			t.Errorf("the hog is no member 4 s after the first decision about it; rate unknown: %v", unrated)
		}
	}
	for _, unrated := range []bool{false, true} {
		hog := &fakePod{uid: "hog", request: 500, wants: 4000}
		w, _ := node(hog)
		w.pods = append(w.pods, &fakePod{uid: "new", request: 10, budget: 10, undecided: 1000, unrated: unrated,
			setting: Setting{UID: "new", Weight: WeightOf(10)}})
		if w.run(2); !hog.setting.Idle {
			t.Errorf("the hog waits for a small pod without a decision; rate unknown: %v", unrated)
		}
	}
}

func TestBurstsAreNoSaturation(t *testing.T) {
	a := &fakePod{uid: "a", request: 500, wants: 1400}
	b := &fakePod{uid: "b", request: 500, wants: 400}
	w := newWorld(2000, a, b)
	w.run(30)
	if b.wants = 850; w.changes != 0 {
		t.Fatal("a pod became a member while CPU was idle")
	}
	w.run(10)
	if a.setting.Idle || b.setting.Idle {
		t.Error("ten seconds of a burst beside a pod that takes what it took before made a member")
	}
	b.wants = 400
	w.run(30)
	hog := &fakePod{uid: "hog", request: 150, budget: 500, wants: 4000, setting: Setting{UID: "hog",
		Weight: WeightOf(500)}}
	w.pods = append(w.pods, hog)
	if w.run(6); !hog.setting.Idle || a.setting.Idle || b.setting.Idle {
		t.Errorf("idle: %v %v %v: want the pod alone that was not seen to want less",
			a.setting.Idle, b.setting.Idle, hog.setting.Idle)
	}
}

// TestGuaranteeEndsMembership: over ten minutes each pod has at least 0.95 of what it wants, up to its request.
func TestGuaranteeEndsMembership(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(cpu.Milli(rapid.IntRange(2, 16).Draw(t, "cores")) * cpu.Core)
		w.psi = rapid.Bool().Draw(t, "psi")
		left := w.cores
		for i := 0; left > 300 && i < 8; i++ {
			request := cpu.Milli(rapid.IntRange(10, int(left)).Draw(t, "request"))
			left -= request
			p := &fakePod{uid: fmt.Sprint(i), request: request, wants: cpu.Milli(rapid.IntRange(0,
				int(2*w.cores)).Draw(t, "wants"))}
			w.pods = append(w.pods, p)
		}
		w.pods = newWorld(w.cores, w.pods...).pods
		w.run(60)
		used := make([]cpu.Milli, len(w.pods))
		const seconds = 600
		for range seconds {
			w.tick()
			for i, p := range w.pods {
				used[i] += p.usage
			}
		}
		for i, p := range w.pods {
			if want := min(p.wants, p.request); float64(used[i])/seconds < 0.95*float64(want)-5 {
				t.Fatalf("pod %s, which wants %v and requests %v, has %v in the mean", p.uid, p.wants, p.request, used[i]/seconds)
			}
		}
	})
}

// TestHeldOffPodsAreNotWeighted: a member that falls short leaves within 8 s, and limits may cap it for a time that
// doubles.
func TestHeldOffPodsAreNotWeighted(t *testing.T) {
	greedy := &fakePod{uid: "greedy", request: 500, wants: 500, optedOut: true}
	hog := &fakePod{uid: "hog", request: 1000, wants: 4000}
	w := newWorld(2000, greedy, hog)
	if w.state.Weighted("hog") {
		t.Error("the hog counts as weighted before anything was decided about it")
	}
	if w.run(10); !hog.setting.Idle || !w.state.Weighted("hog") {
		t.Fatal("the hog is no member, or not weighted")
	}
	greedy.wants = 4000
	left := 0
	for ; hog.setting.Idle && left < 20; left++ {
		w.tick()
	}
	if left > 8 || w.state.Weighted("hog") {
		t.Errorf("the hog left the class after %d s, weighted %v: want within 8 s, and limits to cap it",
			left, w.state.Weighted("hog"))
	}
	for want := DefaultConfig().HoldOff; want <= 4*DefaultConfig().HoldOff; want *= 2 {
		again := w.now
		for !hog.setting.Idle && w.now.Sub(again) < time.Hour {
			w.tick()
		}
		if out := w.now.Sub(again); hog.setting.Idle && out < want-time.Second {
			t.Errorf("the hog is a member again after %v, want %v at least", out, want)
		}
		for n := 0; hog.setting.Idle && n < 30; n++ {
			w.tick()
		}
	}
}

// TestOutagesEndNoHoldOff: where nothing writes class and weight for some seconds, a pod that fell short does not try again
// before its time, and not as if it had never tried.
func TestOutagesEndNoHoldOff(t *testing.T) {
	greedy := &fakePod{uid: "greedy", request: 500, wants: 500, optedOut: true}
	hog := &fakePod{uid: "hog", request: 1000, wants: 4000}
	w := newWorld(2000, greedy, hog)
	w.run(10)
	greedy.wants = 4000
	w.run(10)
	if hog.setting.Class != BelowGuarantee {
		t.Fatalf("the hog is %s, want it held off", hog.setting.Class)
	}
	outage := func(seconds int) {
		hog.optedOut, hog.setting = true, Setting{UID: "hog", Weight: hog.setting.Weight}
		w.run(seconds)
		if w.state.Weighted("hog") {
			t.Error("the hog counts as weighted while nothing is written")
		}
		hog.optedOut = false
		if w.state.Weighted("hog") {
			t.Error("the hog counts as weighted before the first decision after the outage")
		}
	}
	outage(5)
	if w.run(30); hog.setting.Idle || hog.setting.Class != BelowGuarantee {
		t.Errorf("45 s after it fell short the hog is %s, want it held off for a minute", hog.setting.Class)
	}
	for n := 0; !hog.setting.Idle && n < 120; n++ {
		w.tick()
	}
	for n := 0; hog.setting.Idle && n < 60; n++ {
		w.tick()
	}
	outage(5)
	again := w.now
	for !hog.setting.Idle && w.now.Sub(again) < time.Hour {
		w.tick()
	}
	if out := w.now.Sub(again); out < 100*time.Second {
		t.Errorf("after its second time the hog is a member again %v after the outage, want twice the first time", out)
	}
	outage(int(DefaultConfig().LongestHoldOff/time.Second) + 1)
	if _, known := w.state.pods["hog"]; known {
		t.Error("the hog is remembered for ever")
	}
}

func TestNoRoomForMembers(t *testing.T) {
	service := &fakePod{uid: "service", request: 900, wants: 900}
	hog := &fakePod{uid: "hog", request: 1000, wants: 4000}
	w := newWorld(2000, service, hog)
	if w.run(30); w.changes != 0 || w.state.Weighted("hog") {
		t.Errorf("requests fill the node: %d changes of the class, the hog weighted %v: want limits instead",
			w.changes, w.state.Weighted("hog"))
	}
	service.request, service.wants = 900, 400 // it requests more than it wants
	w = newWorld(2000, service, &fakePod{uid: "hog", request: 1000, wants: 4000})
	if w.run(30); w.changes != 1 || !w.pod("hog").setting.Idle {
		t.Errorf("%d changes of the class: want the hog to enter where the service leaves it its request", w.changes)
	}
}

func TestOthersAreLeftToLimits(t *testing.T) {
	small := &fakePod{uid: "small", request: 200, wants: 4000}
	large := &fakePod{uid: "large", request: 1000, wants: 4000, unmanaged: true}
	w := newWorld(2000, small, large)
	if w.run(30); w.changes != 0 || w.state.Weighted("small") {
		t.Errorf("beside a larger pod that cannot enter: %d changes of the class, weighted %v: want none, and limits",
			w.changes, w.state.Weighted("small"))
	}
	w = newWorld(2000, small, &fakePod{uid: "service", request: 1000, wants: 1200})
	if w.run(30); !small.setting.Idle || !w.state.Weighted("small") {
		t.Error("beside a service the pod does not enter")
	}
}

func TestStoppedMembersAreNotShort(t *testing.T) {
	service := &fakePod{uid: "service", request: 500, wants: 500}
	hog := &fakePod{uid: "hog", request: 1000, wants: 4000}
	w := newWorld(2000, service, hog)
	w.run(10)
	hog.wants = 0
	if w.run(10); !w.state.Weighted("hog") {
		t.Error("a member that stopped counts as one that falls short")
	}
	if w.run(30); hog.setting.Idle {
		t.Error("a member that stopped is still one, beside idle CPU")
	}
}

func TestSteadyLoadChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(cpu.Milli(rapid.IntRange(2, 16).Draw(t, "cores")) * cpu.Core)
		w.psi = rapid.Bool().Draw(t, "psi")
		for i := range rapid.IntRange(1, 8).Draw(t, "pods") {
			w.pods = append(w.pods, &fakePod{
				uid: fmt.Sprint(i), request: cpu.Milli(rapid.IntRange(10, 1500).Draw(t, "request")),
				wants: cpu.Milli(rapid.IntRange(0, int(2*w.cores)).Draw(t, "wants")),
			})
		}
		w.pods = newWorld(w.cores, w.pods...).pods
		w.run(120)
		w.changes = 0
		w.run(600)
		// Each hold-off is twice as long as the one before: at most three tries per pod in 12 minutes.
		if w.changes > 6*len(w.pods) {
			t.Fatalf("%d changes of the class of %d pods in 10 minutes", w.changes, len(w.pods))
		}
	})
	service := &fakePod{uid: "service", request: 500, wants: 600}
	hog := &fakePod{uid: "hog", request: 500, wants: 4000}
	w := newWorld(2000, service, hog)
	if w.run(3600); w.changes != 1 {
		t.Errorf("%d changes of the class in an hour, want one", w.changes)
	}
}

func TestClassEndsWithScarcity(t *testing.T) {
	service := &fakePod{uid: "service", request: 500, wants: 600}
	hog := &fakePod{uid: "hog", request: 500, wants: 4000}
	w := newWorld(2000, service, hog)
	w.run(10)
	hog.wants = 1000
	if w.run(20); hog.setting.Idle {
		t.Error("a member is still one, 20 s after CPU has become idle")
	}
}

func TestOnlyOptedInPods(t *testing.T) {
	hog := &fakePod{uid: "hog", request: 500, wants: 4000, optedOut: true}
	unmanaged := &fakePod{uid: "unmanaged", request: 500, wants: 4000, unmanaged: true}
	w := newWorld(2000, hog, unmanaged, &fakePod{uid: "service", request: 500, wants: 600})
	w.run(30)
	if got := w.decide(); len(got) != 1 || got[0].UID != "service" || got[0].Idle {
		t.Errorf("settings %+v: want one, of the service", got)
	}
}

func TestPartlyLimitedPodsStayOutside(t *testing.T) {
	hog := &fakePod{uid: "hog", request: 500, wants: 4000, unlimited: true}
	w := newWorld(2000, hog, &fakePod{uid: "service", request: 500, wants: 600})
	if w.run(30); hog.setting.Idle {
		t.Error("a pod with a container without a limit is a member")
	}
}

func TestGapsDecideNothing(t *testing.T) {
	hog := &fakePod{uid: "hog", request: 500, wants: 4000}
	w := newWorld(2000, hog, &fakePod{uid: "service", request: 500, wants: 600})
	for range 20 {
		w.now = w.now.Add(time.Minute)
		if w.tick(); hog.setting.Idle {
			t.Fatal("a pod became a member across a gap")
		}
	}
	w.unknown = true
	if w.run(20); hog.setting.Idle {
		t.Error("a pod became a member while usage cannot be read")
	}
	w.unknown = false
	w.run(10)
	w.unknown = true
	if w.run(20); !hog.setting.Idle {
		t.Error("a member left the class because usage cannot be read")
	}
}

func TestClassesHaveReasons(t *testing.T) {
	greedy := &fakePod{uid: "greedy", request: 500, wants: 500, optedOut: true}
	hog := &fakePod{uid: "hog", request: 1000, wants: 4000}
	partly := &fakePod{uid: "partly", request: 10, wants: 1, unlimited: true}
	w := newWorld(2000, greedy, hog, partly)
	w.tick()
	class := func(p *fakePod, want Class) {
		t.Helper()
		if got := p.setting.Class; got != want {
			t.Errorf("class of %s is %d (%s %s), want %d", p.uid, got, got, got.Reason(), want)
		}
	}
	class(hog, Weighted)
	class(partly, PartlyLimited)
	w.run(9)
	class(hog, Idle)
	greedy.wants = 4000
	w.run(10)
	class(hog, BelowGuarantee)
	small := &fakePod{uid: "small", request: 200, wants: 4000}
	w = newWorld(2000, small, &fakePod{uid: "large", request: 1000, wants: 4000, unmanaged: true})
	w.run(30)
	class(small, LeftToLimits)
	for c := NoClass; c <= OnProbation; c++ {
		if why := c.Reason(); why != "" && !slices.Contains(reasons.All(), why) {
			t.Errorf("class %d has the reason %s, which is none of MBCAS", c, why)
		}
		if c != NoClass && (c.String() == "" || c.Words() == "") {
			t.Errorf("class %d has no words", c)
		}
	}
}

// TestWeightsLeaveRequests: where all pods want more, weights give each its request, whatever the priorities are, and
// also to a pod with the kubelet's weight.
func TestWeightsLeaveRequests(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const cores = 16
		left := cpu.Milli(cores * 1000)
		var bids []market.Bid
		var requests []cpu.Milli
		for i := 0; i < 10 && left > 100; i++ {
			request := cpu.Milli(rapid.IntRange(50, int(left)).Draw(t, "request"))
			left -= request
			percent := rapid.SampledFrom([]cpu.Milli{50, 100, 200, 800}).Draw(t, "percent")
			if i == 0 {
				percent = 100 // not opted in
			}
			requests = append(requests, request)
			bids = append(bids, market.Bid{Budget: market.Budget(max(2, request*percent/100)), Demand: 64_000,
				Floor: request, Ceiling: 64_000})
		}
		price := market.Clear(market.Problem{Supply: cores * 1000, Bids: bids}).Price
		if price == market.MaxPrice {
			price = 8 // requests fill the node: from here on each has its request
		}
		weights := make([]float64, len(bids))
		var sum float64
		for i, b := range bids {
			milli := weightedMilli(b.Budget, requests[i], price)
			if i == 0 {
				milli = requests[i]
			}
			weights[i] = float64(milli)
			sum += weights[i]
		}
		for i, w := range weights {
			if got := w / sum * cores * 1000; got < 0.99*float64(requests[i])-2 {
				t.Fatalf("pod %d of %+v gets %.0fm by weight at price %v, less than it requests", i, bids, got, price)
			}
		}
	})
}

func TestWeightOf(t *testing.T) {
	for milli, want := range map[cpu.Milli]uint64{0: 1, 1: 1, 100: 4, 500: 20, 1000: 39, 256_000: 10000,
		1_000_000: 10000} {
		if got := WeightOf(milli); got != want {
			t.Errorf("weight of %v is %d, want %d", milli, got, want)
		}
	}
	if got := weightedMilli(1000, 500, 0); got != 1000 {
		t.Errorf("without a price a budget of 1000 is worth %v", got)
	}
	if got := weightedMilli(500, 500, 3); got != 500 {
		t.Errorf("without a priority the weight is that of %v at any price, want 500m", got)
	}
}

func TestConfigIsValidated(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Error(err)
	}
	if err := (Config{}).Validate(); err == nil {
		t.Error("a config of zeros is valid")
	}
}
