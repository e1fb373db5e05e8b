package round

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/disagreement"
	"github.com/mbcas/mbcas/internal/sense"
)

// keeping is a world on two cores whose pods keep what declared limits give them.
func keeping(pods ...*fakePod) *world {
	w := newWorld(pods...)
	w.node = Node{Capacity: 2000, Allocatable: 2000}
	w.cfg.Disagreement = disagreement.DefaultConfig()
	return w
}

// second advances by a second, with pods that wait for a CPU as others leave them none.
func (w *world) second() Output {
	for i, use := range w.uses() {
		p := w.pods[i]
		p.waits = 1 - use.Cores()/max(1, min(p.demand, p.limit)).Cores()
	}
	return w.tick()
}

// TestServicesKeepDeclaredLimits: a service that demands more than its share, beside a pod that saturates, and whose
// load begins with that one's. The price alone lowers it below what it uses. A small pod of higher priority, which
// always waits, claims little.
func TestServicesKeepDeclaredLimits(t *testing.T) {
	for keep, want := range map[bool]cpu.Milli{false: 0, true: 480} {
		service := &fakePod{name: "service", request: 80, declared: 500, demand: 20}
		hog := &fakePod{name: "hog", request: 600, declared: 1200, demand: 10}
		small := &fakePod{name: "small", request: 10, declared: 20, demand: 11, priority: 200}
		w := keeping(service, hog, small)
		if !keep {
			w.cfg.Disagreement = disagreement.Config{}
		}
		w.run(30)
		service.demand, hog.demand = 370, 8000
		lowest := service.limit
		for range 300 {
			w.second()
			lowest = min(lowest, service.limit)
		}
		if lowest < want || !keep && lowest >= 370 {
			t.Errorf("keep %v: the limit of the service falls to %v, want %v at least; that of the hog is %v", keep, lowest, want, hog.limit)
		}
	}
}

// TestSaturatingPodsLeaveAShare: two pods of one request and one declared limit take all of the node. Half a minute
// later each keeps most of the core that declared limits give it, and a service gets the share that they leave.
func TestSaturatingPodsLeaveAShare(t *testing.T) {
	hogs := []*fakePod{{name: "a", request: 500, declared: 2000}, {name: "b", request: 500, declared: 2000}}
	service := &fakePod{name: "service", request: 1000, declared: 2000, demand: 100}
	w := keeping(append(hogs, service)...)
	w.run(30)
	hogs[0].demand, hogs[1].demand = 8000, 8000
	for range 30 {
		w.second()
	}
	if hogs[0].limit < 2000 || hogs[1].limit < 2000 {
		t.Errorf("after half a minute the limits are %v and %v", hogs[0].limit, hogs[1].limit)
	}
	service.demand = 900
	for range 120 {
		w.second()
	}
	for _, hog := range hogs { // declared limits give it 550m
		if hog.limit < 440 || hog.limit > 540 {
			t.Errorf("%s has %v, want at least 440m, and less than 550m", hog.name, hog.limit)
		}
	}
	if service.limit < 2000 {
		t.Errorf("the service has %v", service.limit)
	}
}

// TestIdlePodsKeepTheirLimit: a pod that stops below its declared limit has that again once it needs more, from the next look
// on, or no price is in force. Until then it is not raised.
func TestIdlePodsKeepTheirLimit(t *testing.T) {
	for name, again := range map[string]func(w *world, service, hog, other *fakePod){
		"no price": func(w *world, service, _, other *fakePod) {
			service.demand, other.demand = 10, 10
			for w.state.price.inForce > 0 {
				w.second()
			}
			w.second()
		},
		"a round": func(w *world, _, hog, _ *fakePod) { hog.demand = 8000; w.second() },
		"a look":  func(w *world, _, hog, _ *fakePod) { hog.demand = 8000; w.pass(w.cfg.LookInterval); w.look() },
	} {
		service := &fakePod{name: "service", request: 1000, declared: 1500, demand: 1300}
		hog := &fakePod{name: "hog", request: 100, declared: 1200, demand: 8000}
		other := &fakePod{name: "other", request: 100, declared: 1200, demand: 8000}
		w := keeping(service, hog, other)
		for range 90 {
			w.second()
		}
		capped := hog.limit
		hog.demand = 10
		for range 60 {
			w.second()
		}
		if capped >= hog.declared || hog.limit != capped {
			t.Errorf("%s: the hog was capped at %v, and has %v while it is idle", name, capped, hog.limit)
		}
		if again(w, service, hog, other); hog.limit < hog.declared {
			t.Errorf("%s: the hog has %v", name, hog.limit)
		}
	}
}

// TestEachContainerKeepsItsDeclaredLimit: the price lowers a raised container, and not the idle one beside it.
func TestEachContainerKeepsItsDeclaredLimit(t *testing.T) {
	pod := PodInput{Pod: demand.Pod{UID: "p", Budget: 240, Containers: []demand.Container{
		demand.Container{Name: "app", ID: "1", Request: 200, Declared: 500, Limit: 2000}.Within(0, 4000),
		demand.Container{Name: "proxy", ID: "2", Request: 40, Declared: 400, Limit: 400}.Within(0, 4000),
	}}}
	known := map[string]demand.Estimate{"1": {Samples: 99, Mean: 3, Latest: 3}, "2": {Samples: 99, Mean: 0.02, Latest: 0.02}}
	valid := sense.Rate{Validity: sense.Valid, Elapsed: time.Second, Usage: 20}
	rates := sense.PodRates{Containers: []sense.Rate{valid, valid}}
	book, _ := bidders(DefaultConfig().Demand, []PodInput{pod}, []sense.PodRates{rates}, known, true)
	for keeps, want := range map[float64]cpu.Milli{1: 400, 0.9: 360, 0: 100} {
		book[0].minLimit, book[0].keeps, book[0].idle = cpu.Milli(900*keeps), keeps, max(0, cpu.Milli(400*keeps)-20)
		d := decideOne(DefaultConfig(), State{estimates: known, price: price{inForce: 0.2}}, pod, rates, book[0])
		if app := d.Containers[0].Limit; app < 1100 || app > 1180 || d.Containers[1].Limit != want {
			t.Errorf("it keeps %v: limits %v, want about the 1200m of its budget for the app, and %v for the proxy", keeps, d.Containers, want)
		}
	}
}

// TestEvidence: what a tick says of a pod that declares 1000m for its app, and 2000m for a proxy, which uses 80m.
func TestEvidence(t *testing.T) {
	cfg := DefaultConfig()
	for name, c := range map[string]struct {
		app   sense.Rate
		limit cpu.Milli // of the app, in the spec
		ceil  cpu.Milli // of the pod
		was   Published
		full  bool
		want  disagreement.Pod // the fields that are compared
	}{
		"the app is throttled, and the limit of the proxy bounds nothing": {
			app: sense.Rate{Usage: 1920, ThrottleRatio: 1, Quota: 1900}, limit: 1900,
			want: disagreement.Pod{Limit: 1980, Waits: 0.96, Declared: 3000},
		},
		"pressure counts on a full node": {
			app: sense.Rate{Usage: 920, Quota: 1000, Pressure: sense.Ratio{Known: true, Value: 0.5}}, limit: 1000, full: true,
			want: disagreement.Pod{Limit: 1080, Waits: 0.46, Declared: 3000},
		},
		"and on no other": {
			app: sense.Rate{Usage: 920, Quota: 1000, Pressure: sense.Ratio{Known: true, Value: 0.5}}, limit: 1000,
			want: disagreement.Pod{Limit: 1000, Declared: 3000},
		},
		"a raise in flight proves nothing": {
			app: sense.Rate{Usage: 320, Quota: 320, ThrottleRatio: 1}, limit: 1000,
			want: disagreement.Pod{Limit: 400, Waits: 0.8, Declared: 3000, BelowDeclared: true},
		},
		"without pressure it may wait": {
			app: sense.Rate{Usage: 920, Quota: 1000}, limit: 1000, full: true,
			want: disagreement.Pod{Limit: 1080, MayWait: true, Declared: 3000},
		},
		"the ceiling is the declared limit": {
			app: sense.Rate{Usage: 400, Quota: 1000}, limit: 1000, ceil: 1500,
			want: disagreement.Pod{Limit: 480, Declared: 1500},
		},
		"a decision below the declared limit": {
			app: sense.Rate{Usage: 400, Quota: 1000}, limit: 1000, was: Published{Price: 0.5, Limits: map[string]cpu.Milli{"app": 500, "proxy": 500}},
			want: disagreement.Pod{Limit: 480, Declared: 3000, Capped: true},
		},
	} {
		pod := PodInput{Published: c.was, Pod: demand.Pod{UID: "p", Budget: 240, Ceiling: c.ceil, Containers: []demand.Container{
			demand.Container{Name: "app", ID: "1", Request: 200, Declared: 1000, Limit: c.limit}.Within(0, 4000),
			demand.Container{Name: "proxy", ID: "2", Request: 40, Declared: 2000, Limit: 2000}.Within(0, 4000),
		}}}
		c.app.Validity = sense.Valid
		rates := sense.PodRates{Containers: []sense.Rate{c.app, {Validity: sense.Valid, Usage: 80, Quota: 2000, Pressure: sense.Ratio{Known: true}}}}
		known := map[string]demand.Estimate{"1": {Samples: 99}, "2": {Samples: 99}}
		book, _ := bidders(cfg.Demand, []PodInput{pod}, []sense.PodRates{rates}, known, true)
		got := asDeclared(cfg, pod, rates, &book[0], c.full)
		compared := disagreement.Pod{
			Limit: got.Limit, Waits: math.Round(100*got.Waits) / 100, MayWait: got.MayWait, Declared: got.Declared,
			BelowDeclared: got.BelowDeclared, Capped: got.Capped,
		}
		if compared != c.want {
			t.Errorf("%s:\n%+v, want\n%+v", name, compared, c.want)
		}
	}
}

// TestPrioritiesComeFirst: beside a waiting pod of higher priority a pod keeps less, and only as much less as the
// other claims. One that does not wait claims nothing.
func TestPrioritiesComeFirst(t *testing.T) {
	for name, c := range map[string]struct {
		demand, ceiling cpu.Milli // of the pod of higher priority
		least, most     cpu.Milli // limit of the other
	}{
		"it demands much":                    {demand: 1800, least: 210, most: 400},
		"it does not wait":                   {demand: 10, least: 1000, most: 4000},
		"it is small, and may not have more": {demand: 50, ceiling: 30, least: 900, most: 4000},
	} {
		high := &fakePod{name: "high", request: 200, declared: 400, demand: c.demand, ceiling: c.ceiling, priority: 800}
		if c.ceiling > 0 {
			high.request, high.declared = 10, 20
		}
		high.budget = demand.Weights{PriorityPercent: 800}.Budget(high.request)
		low := &fakePod{name: "low", request: 200, declared: 1000, demand: 900}
		hog := &fakePod{name: "hog", request: 200, declared: 1000, demand: 8000}
		w := keeping(high, low, hog)
		for range 120 {
			w.second()
		}
		if low.limit < c.least || low.limit > c.most {
			t.Errorf("%s: the pod of lower priority has %v, want %v to %v; the other has %v", name, low.limit, c.least, c.most, high.limit)
		}
	}
}

// TestOldClaimsLowerNoLimit: others begin three seconds after the load of a pod of higher priority has ended. The estimate
// of its demand is still high, so there is a price. Limits do not fall below the declared ones or, where they are lower,
// below what they are. The claim of a pod that waits lowers them.
func TestOldClaimsLowerNoLimit(t *testing.T) {
	for name, c := range map[string]struct {
		from  cpu.Milli // limit when the others begin
		waits bool
	}{"the declared limit": {500, false}, "just below": {480, false}, "far below": {400, false}, "a claim that holds": {500, true}} {
		high := &fakePod{name: "high", request: 400, declared: 500, demand: 380, priority: 800}
		high.budget = demand.Weights{PriorityPercent: 800}.Budget(high.request)
		low := &fakePod{name: "low", request: 100, declared: 500, demand: 10}
		hog := &fakePod{name: "hog", request: 600, declared: 1200, demand: 10}
		w := keeping(high, low, hog)
		for range 60 {
			w.second()
		}
		if !c.waits {
			high.demand = 10
		}
		for range 3 {
			w.second()
		}
		low.demand, hog.demand = min(450, c.from), 8000
		low.limit, low.published.Limits = c.from, map[string]cpu.Milli{"c": c.from}
		priced, lowest := 0, low.limit
		for range 7 {
			if w.second().Node.Price > 0 {
				priced++
			}
			lowest = min(lowest, low.limit)
		}
		if priced < 3 || (lowest < c.from) != c.waits {
			t.Errorf("%s: the lowest limit is %v; %d of 7 s had a price", name, lowest, priced)
		}
		for range 30 {
			w.second()
		}
		if !c.waits && low.limit < low.declared && differs(low.declared, low.limit, w.cfg.PublishBand) {
			t.Errorf("%s: the claim is over, and the limit is %v", name, low.limit)
		}
	}
}

// TestRestartKeepsSaturatingPods: after a restart of the agent a pod that was below its declared limit stays there.
func TestRestartKeepsSaturatingPods(t *testing.T) {
	hog := &fakePod{name: "hog", request: 200, declared: 2000, demand: 8000}
	service := &fakePod{name: "service", request: 800, declared: 2000, demand: 900}
	w := keeping(hog, service)
	for range 180 {
		w.second()
	}
	before, changes := hog.limit, hog.changes
	w.state, w.before = State{}, w.state.price.inForce
	for range 120 {
		w.second()
	}
	if before >= 1500 || hog.changes != changes {
		t.Errorf("the limit was %v, and changed %d times after the restart, to %v", before, hog.changes-changes, hog.limit)
	}
}

// TestNoPodIsWorseThanDeclared: of pods of one priority with constant loads and bursts, none raised above its
// declared limit, each has had by the end of each minute nearly the CPU that it gets with its limits as declared.
// One that saturates may leave a share of that to others. The means follow in 20 s, hence the tenth.
func TestNoPodIsWorseThanDeclared(t *testing.T) {
	worst, capped := 1.0, 0
	rapid.Check(t, func(t *rapid.T) {
		loads := drawLoads(t)
		saturated := map[string]bool{}
		var nodes [2]*world // with the limits of rounds, and as declared
		for i := range nodes {
			var pods []*fakePod
			for _, l := range loads {
				p := l.pod
				pods = append(pods, &p)
			}
			nodes[i] = keeping(pods...)
		}
		nodes[1].loses = func(Decision) bool { return true }
		for second := range 300 {
			for _, w := range nodes {
				for i, l := range loads {
					w.pods[i].demand = l.at(second)
				}
				w.second()
			}
			for name, sat := range nodes[0].state.disagreement {
				saturated[name] = saturated[name] || sat.Saturates()
			}
			if (second+1)%60 != 0 {
				continue
			}
			for i, p := range nodes[0].pods {
				got, want := p.stat.Usage, nodes[1].pods[i].stat.Usage
				if want < time.Second {
					continue
				}
				share := got.Seconds() / want.Seconds()
				worst = min(worst, share)
				least := 0.97
				if saturated[p.name] {
					least = 1 - nodes[0].cfg.Disagreement.Leave - 0.1
				}
				if share < least {
					t.Fatalf("%s has had %v by second %d, and %v with its limits as declared", p.name, got, second+1, want)
				}
				if p.limit < p.declared {
					capped++
				}
			}
		}
	})
	if capped == 0 || worst > 0.95 {
		t.Errorf("%d limits below declared ones, and the worst pod had %.2f of its work: this proves little", capped, worst)
	}
}

// load is a drawn pod and what it demands: all of it for burst of 20 seconds, and a fifth in the others.
type load struct {
	pod         fakePod
	demand      cpu.Milli
	from, burst int
}

func (l load) at(second int) cpu.Milli {
	if (second+l.from)%20 < l.burst {
		return l.demand
	}
	return l.demand / 5
}

func drawLoads(t *rapid.T) []load {
	loads := make([]load, rapid.IntRange(2, 6).Draw(t, "pods"))
	for i := range loads {
		l := &loads[i]
		l.pod.name = string(rune('a' + i))
		l.pod.request = 10 * cpu.Milli(rapid.IntRange(1, 100).Draw(t, "request"))
		l.pod.declared = l.pod.request + 10*cpu.Milli(rapid.IntRange(1, 200).Draw(t, "room"))
		l.pod.ceiling = l.pod.declared
		l.from = rapid.IntRange(0, 19).Draw(t, "from")
		l.burst = rapid.SampledFrom([]int{20, 20, 4, 10, 15}).Draw(t, "burst")
		l.demand = cpu.Milli(rapid.IntRange(0, 4000).Draw(t, "demand"))
	}
	return loads
}
