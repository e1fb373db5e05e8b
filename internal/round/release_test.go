package round

import (
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/testing/atlength"
	"github.com/mbcas/mbcas/market"
)

// TestStoppedPodFreesItsCPU: when a capped pod stops, the next looks raise the throttled one, and the
// rounds after it keep the lower price. The pod that has stopped keeps its limit.
func TestStoppedPodFreesItsCPU(t *testing.T) {
	for phase := range 4 { // looks between the round and the stop
		w, service, job := contended()
		if service.limit >= 2500 || w.state.price.inForce == 0 {
			t.Fatalf("the service is not capped: limit %v, price %v", service.limit, w.state.price.inForce)
		}
		limit := job.limit
		for range phase {
			w.pass(w.cfg.LookInterval)
			w.look()
		}
		job.demand = 0
		looks := 0
		for service.limit < 3000 && looks < 4-phase {
			w.pass(w.cfg.LookInterval)
			w.look()
			looks++
		}
		if service.limit < 3000 || looks > 2 {
			t.Fatalf("phase %d: after %d looks the service's limit is %v", phase, looks, service.limit)
		}
		if job.limit != limit {
			t.Errorf("phase %d: the limit of the pod that stopped went from %v to %v", phase, limit, job.limit)
		}
		for range 4 - phase - looks {
			w.pass(w.cfg.LookInterval)
			w.look()
		}
		w.pass(w.cfg.LookInterval)
		for range 30 {
			if out := w.round(); out.Node.Price > 0 {
				t.Fatalf("phase %d: the price is %v again", phase, out.Node.Price)
			}
			w.pass(w.interval)
		}
	}
}

// TestStopOnAFullNodeIsSeen: a capped pod whose decrease is not in force yet is not throttled, and fills the node. When
// it stops, the next looks raise the throttled one.
func TestStopOnAFullNodeIsSeen(t *testing.T) {
	w, service, job := contended()
	service.limit, job.limit = 1000, 4000
	w.pass(w.interval)
	in := w.input()
	var out Output
	w.state, out = Run(w.cfg, w.state, in) // not applied
	w.watch = w.watch[:0]
	for _, i := range out.Watch {
		w.watch = append(w.watch, in.Pods[i].UID)
	}
	for range saturatedLooks {
		w.pass(w.cfg.LookInterval)
		if w.look(); job.stat.Throttled != in.Sample.Pods[slices.Index(w.pods, job)].Containers[0].Stat.Throttled {
			t.Fatal("the job is throttled, so this test shows nothing")
		}
	}
	job.demand = 0
	for range 2 {
		w.pass(w.cfg.LookInterval)
		w.look()
	}
	if w.state.price.inForce != 0 || service.limit < 3000 {
		t.Errorf("two looks after the stop the price is %v, and the service's limit %v", w.state.price.inForce, service.limit)
	}
}

// TestStopAfterTheFirstCapIsSeen: a pod that a whole tick saw throttled can be seen to stop by the first looks after it.
func TestStopAfterTheFirstCapIsSeen(t *testing.T) {
	service := &fakePod{name: "service", request: 1000, declared: 1500, ceiling: 1500, demand: 1400}
	job := &fakePod{name: "job", request: 1000, declared: 2400, demand: 5}
	w := newWorld(service, job)
	w.run(30)
	service.demand, job.demand = 3000, 8000
	for w.state.price.inForce == 0 {
		w.tick()
	}
	job.demand = 0
	for range 2 {
		w.pass(w.cfg.LookInterval)
		w.look()
	}
	if w.state.price.inForce != 0 {
		t.Errorf("two looks after the stop the price is %v", w.state.price.inForce)
	}
}

// TestLullsAreNotReleases: while all capped pods go on, pauses of the uncapped ones lower no price.
func TestLullsAreNotReleases(t *testing.T) {
	service := &fakePod{name: "service", request: 3000, declared: 4000, demand: 2500}
	jobs := []*fakePod{
		{name: "job-1", request: 200, declared: 4000, demand: 4000}, {name: "job-2", request: 200, declared: 4000, demand: 4000},
	}
	w := newWorld(append(jobs, service)...)
	w.cfg.Release = time.Hour // releases by rounds are another rule
	capped := 0
	for s := range 600 {
		for look := range 5 {
			service.demand = 2500
			if s > 60 && (s*5+look)%7 == 0 {
				service.demand = 0
			}
			w.pass(w.cfg.LookInterval)
			if look == 4 {
				w.round()
				continue
			}
			out := w.look()
			if out.Node.Released {
				t.Fatalf("second %d: a lull released the price", s)
			}
			if w.state.price.inForce > 0 {
				capped++
			}
		}
	}
	if capped == 0 {
		t.Error("no pod was capped")
	}
}

// TestVanishedPodFreesItsCPU: a capped pod whose cgroup is removed has stopped, too; one whose read does not
// end has not.
func TestVanishedPodFreesItsCPU(t *testing.T) {
	for _, blocked := range []bool{false, true} {
		w, service, job := contended()
		for range 3 {
			w.pass(w.cfg.LookInterval)
			w.look()
		}
		job.demand = 0
		w.pass(w.cfg.LookInterval)
		s := w.lookSample()
		for i := range s.Pods {
			if s.Pods[i].Pod == job.name {
				s.Pods[i] = kernel.PodSample{Pod: job.name, Blocked: blocked, Containers: []kernel.Group{{ID: job.id}}}
			}
		}
		w.state, _ = Look(w.cfg, w.state, s)
		if released := w.state.price.inForce == 0; released == blocked {
			t.Errorf("blocked %v: the price is %v, and the service's limit %v", blocked, w.state.price.inForce, service.limit)
		}
	}
}

// TestWrongReleaseIsUndone: when a pod goes on that a look took to have stopped, the next round is at the price
// of before, and does not take it for a pod that demands little.
func TestWrongReleaseIsUndone(t *testing.T) {
	a := newAdversary(true)
	price, limit := a.state.price.inForce, a.job.limit
	a.play(0, 1, true)
	if a.released != 1 || a.accomplice.limit <= limit {
		t.Fatalf("%d releases, and the accomplice's limit is %v", a.released, a.accomplice.limit)
	}
	a.play(1, 4, false)
	if got := a.state.price.inForce; got != price || a.job.limit != limit {
		t.Errorf("after the round the price is %v and the job's limit %v; want %v and %v as before", got, a.job.limit, price, limit)
	}
	if a.play(5, 5, true); a.released != 1 {
		t.Error("the next stop released the price at once")
	}

	w, _, job := contended()
	inForce := w.state.price.inForce
	for i := range 5 {
		if job.demand = 4000; i == 0 {
			job.demand = 0
		}
		w.pass(w.cfg.LookInterval)
		if i == 4 {
			w.round()
		} else {
			w.look()
		}
		if i == 0 && w.state.price.inForce != 0 {
			t.Fatalf("the price is %v after the stop", w.state.price.inForce)
		}
	}
	if p := w.state.price; p.inForce != inForce {
		t.Errorf("after the round the price is %v, want %v as before", p.inForce, inForce)
	}
}

// TestReleasesComeOneByOne: while it is not known whether a pod that stopped stays so, no other pod that stops releases
// the price: the first release could not be undone.
func TestReleasesComeOneByOne(t *testing.T) {
	var jobs []*fakePod
	for _, name := range []string{"a", "b", "c"} {
		jobs = append(jobs, &fakePod{name: name, request: 500, declared: 2000, demand: 4000})
	}
	w := priceAlone(jobs...)
	for range 60 {
		w.lookAndRun()
	}
	price, limit := w.state.price.inForce, jobs[0].limit
	look := func() bool {
		w.pass(w.cfg.LookInterval)
		return w.look().Node.Released
	}
	jobs[0].demand = 0
	released := false
	for range 2 {
		released = released || look()
	}
	if !released {
		t.Fatal("the stop of the first pod released nothing")
	}
	jobs[0].demand, jobs[1].demand = 4000, 0
	if look() {
		t.Error("the stop of the second pod released the price again")
	}
	w.pass(w.cfg.LookInterval)
	w.round()
	if got := w.state.price.inForce; got < price*0.85 || jobs[0].limit > limit {
		t.Errorf("the first pod goes on: the price is %v and its limit %v; want about %v and %v as before", got, jobs[0].limit, price, limit)
	}
}

// adversary is a node on which a job stops and goes on to have its accomplice raised, beside a third pod.
type adversary struct {
	*world
	job, accomplice, victim *fakePod
	looks                   bool
	released, raised        int     // by looks: the price, and limits of the job and its accomplice
	used, due               float64 // by the two, in core looks; due is their share of the supply at the time
}

func newAdversary(looks bool) *adversary {
	a := &adversary{looks: looks}
	pod := func(name string) *fakePod {
		return &fakePod{name: name, request: 1000, declared: 2000, demand: 4000}
	}
	a.job, a.accomplice, a.victim = pod("job"), pod("accomplice"), pod("victim")
	a.world = priceAlone(a.job, a.accomplice, a.victim)
	for range 60 {
		a.lookAndRun()
	}
	return a
}

// play has the job demand what it can, or nothing, for a number of looks from the given one on.
func (a *adversary) play(from, looks int, stopped bool) {
	if a.job.demand = 4000; stopped {
		a.job.demand = 0
	}
	problem := market.Problem{Supply: 3600}
	for _, p := range a.pods {
		problem.Bids = append(problem.Bids, market.Bid{Budget: p.budget, Demand: p.demand, Ceiling: 4000})
	}
	price := market.Clear(problem).Price
	for i := from; i < from+looks; i++ {
		before := a.job.stat.Usage + a.accomplice.stat.Usage
		a.pass(a.cfg.LookInterval)
		a.used += (a.job.stat.Usage + a.accomplice.stat.Usage - before).Seconds() / a.cfg.LookInterval.Seconds()
		for j, p := range []*fakePod{a.job, a.accomplice} {
			a.due += min(p.demand, problem.Bids[j].Limit(price)).Cores()
		}
		limits := [2]cpu.Milli{a.job.limit, a.accomplice.limit}
		switch {
		case i%5 == 4:
			a.round()
		case a.looks:
			if a.look().Node.Released {
				a.released++
			}
		}
		for j, p := range []*fakePod{a.job, a.accomplice} {
			if i%5 != 4 && p.limit > limits[j] {
				a.raised++
			}
		}
	}
}

// pattern is how many looks the job of an adversary goes on and stops for, in turn.
type pattern []struct{ goes, stops int }

// hour plays a pattern for an hour.
func (p pattern) hour(looks bool) *adversary {
	a := newAdversary(looks)
	const end = 3600 * 5
	for i := 0; i < end; {
		for _, step := range p {
			a.play(i, step.goes, false)
			a.play(i+step.goes, step.stops, true)
			i += step.goes + step.stops
		}
	}
	return a
}

// patterns draws some whose stops are at most so many looks.
func patterns(longest int) *rapid.Generator[pattern] {
	return rapid.Custom(func(t *rapid.T) pattern {
		p := make(pattern, rapid.IntRange(1, 4).Draw(t, "steps"))
		for i := range p {
			p[i].goes, p[i].stops = rapid.IntRange(3, 300).Draw(t, "goes"), rapid.IntRange(1, longest).Draw(t, "stops")
		}
		return p
	})
}

// TestWrongReleasesAreBounded: a job that stops for as long as only looks notice, to have an accomplice raised,
// gets the two at most 16 increases an hour out of looks. However long it stops, the two have at most 5 % more
// CPU on average than their share or, where the price band leaves them more, than without looks.
func TestWrongReleasesAreBounded(t *testing.T) {
	var brief, long []pattern
	for _, stops := range []int{1, 2, 5, 10} {
		for _, goes := range []int{5, 250, 50}[:atlength.Of(2, 3)] {
			brief = append(brief, pattern{{goes, stops}})
		}
	}
	for seed := range atlength.Of(2, 8) {
		brief, long = append(brief, patterns(10).Example(seed)), append(long, patterns(150).Example(seed))
	}
	released := 0
	for i, p := range slices.Concat(brief, long) {
		with := p.hour(true)
		released += with.released
		if i < len(brief) && with.raised > 16 {
			t.Errorf("%v: looks raise the two %d times in an hour", p, with.raised)
		}
		if with.used <= 1.05*with.due {
			continue
		}
		if without := p.hour(false); with.used > 1.05*without.used {
			t.Errorf("%v: the two use %.3f cores, without looks %.3f, of a share of %.3f", p, with.used/18000, without.used/18000, with.due/18000)
		}
	}
	if released < len(brief) {
		t.Errorf("%d releases in all, so this test proves little", released)
	}
}

// TestJoinedPodsThatStop: a pod that joined after the round, and that a look takes to have stopped, has no sample of the round
// to compare with.
func TestJoinedPodsThatStop(t *testing.T) {
	s := State{}
	s.look = lookState{pods: make([]PodInput, 2), book: []bidder{{pod: 0}, {pod: 1}}}
	s.last.Pods = []kernel.PodSample{{Pod: "a"}}
	s.releases.stopped = map[string]cpu.Milli{}
	s.look.pods[0].UID, s.look.pods[1].UID = "a", "b"
	s.look.book[0].limit, s.look.book[0].bid.Demand = 500, 400
	s = s.forgetStopped([]observed{{index: 0, stopped: true}, {index: 1, stopped: true}}, kernel.Sample{})
	if want := map[string]cpu.Milli{"a": 400}; !maps.Equal(s.releases.stopped, want) {
		t.Errorf("it notes %v, want %v", s.releases.stopped, want)
	}
}
