package round

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mbcas/mbcas/cpu"
)

// contended is a node on which a job takes what a service leaves, each capped.
func contended() (w *world, service, job *fakePod) {
	service = &fakePod{name: "service", request: 1000, declared: 1000, demand: 3000}
	job = &fakePod{name: "job", request: 1000, declared: 2000, demand: 4000}
	w = newWorld(service, job)
	for range 60 {
		w.lookAndRun()
	}
	return w, service, job
}

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

// TestLooksOnlyRaise: no look lowers a limit, or decides about a pod that it does not read.
func TestLooksOnlyRaise(t *testing.T) {
	raised := 0
	rapid.Check(t, func(rt *rapid.T) {
		var pods []*fakePod
		for i := range rapid.IntRange(1, 6).Draw(rt, "pods") {
			request := cpu.Milli(rapid.IntRange(1, 20).Draw(rt, "request")) * 50
			pods = append(pods, &fakePod{
				name: fmt.Sprintf("p%d", i), request: request, declared: request + cpu.Milli(rapid.IntRange(0, 10).Draw(rt, "more"))*100,
				onNeed: rapid.Bool().Draw(rt, "on need"), unmanaged: rapid.IntRange(0, 5).Draw(rt, "unmanaged") == 0,
			})
		}
		w := newWorld(pods...)
		w.run(w.cfg.Demand.WarmUpSamples)
		for range 40 {
			w.pass(w.cfg.LookInterval)
			before := map[string]cpu.Milli{}
			for _, p := range pods {
				before[p.name] = p.limit
				if rapid.IntRange(0, 9).Draw(rt, "change") == 0 {
					p.demand = cpu.Milli(rapid.IntRange(0, 45).Draw(rt, "demand")) * 100
				}
			}
			if rapid.IntRange(0, 4).Draw(rt, "round") == 0 {
				w.round()
				continue
			}
			for _, d := range w.look().Decisions {
				raised++
				switch {
				case !d.Publish || d.Limit <= before[d.UID]:
					rt.Fatalf("%s: from %v to %v, publish %v", d.UID, before[d.UID], d.Limit, d.Publish)
				case !slices.Contains(w.watch, d.UID):
					rt.Fatalf("%s: raised to %v by a look that did not read it", d.UID, d.Limit)
				case d.Limit > d.Ceiling:
					rt.Fatalf("%s: %v is above the ceiling %v", d.UID, d.Limit, d.Ceiling)
				}
			}
		}
	})
	if raised == 0 {
		t.Error("no look raised a limit")
	}
}

// TestLooksRaiseAsTheNextRound: an uncapped pod that is throttled gets from a look the limit that the next
// round would give it.
func TestLooksRaiseAsTheNextRound(t *testing.T) {
	for _, demand := range []cpu.Milli{600, 1500, 3000} {
		limits := map[bool]cpu.Milli{}
		for _, looks := range []bool{false, true} {
			service := &fakePod{name: "service", request: 200, declared: 500, demand: 100}
			w := newWorld(service)
			w.run(30)
			service.demand = demand
			w.pass(w.cfg.LookInterval)
			if looks {
				w.look()
			} else {
				w.round()
			}
			limits[looks] = service.limit
		}
		if limits[true] != limits[false] || limits[true] != 4000 {
			t.Errorf("demand %v: a round gives %v, a look %v", demand, limits[false], limits[true])
		}
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

// TestNothingToRaiseNothingRead: looks read nothing where no limit could be raised before the next round,
// and never more than 32 containers.
func TestNothingToRaiseNothingRead(t *testing.T) {
	idle := &fakePod{name: "idle", request: 100, declared: 500, demand: 10}
	raised := &fakePod{name: "raised", request: 100, declared: 4000, demand: 1000}
	w := newWorld(idle, raised)
	if out := w.run(30); len(out.Watch) != 0 {
		t.Errorf("no pod needs more, and looks read %v", out.Watch)
	}
	idle.demand = 300
	w.cfg.PublishBand = 0.999 // it is not raised
	if out := w.run(1); !slices.Equal(w.watch, []string{"idle"}) {
		t.Errorf("a pod near its limit: looks read %v", out.Watch)
	}
	var many []*fakePod
	for i := range 60 {
		many = append(many, &fakePod{name: fmt.Sprint(i), request: 20, declared: 50, demand: 4000})
	}
	if out := newWorld(many...).run(30); len(out.Watch) != maxWatched {
		t.Errorf("looks read %d of 60 capped pods: want %d", len(out.Watch), maxWatched)
	}
}

// TestWrongReleasesAreBounded: a pod that stops and goes on, to have another one raised, gets at most 16
// releases an hour out of looks, and the other one at most 5 % more CPU than without looks.
func TestWrongReleasesAreBounded(t *testing.T) {
	released := 0
	for _, stops := range []int{1, 2, 6, 15} { // looks for which it stops
		for _, goes := range []int{3, 20, 60} {
			var mean [2]float64
			for i, looks := range []bool{false, true} {
				var releases int
				releases, mean[i] = alternate(looks, stops, goes)
				if released += releases; releases > 16 {
					t.Errorf("stops for %d, goes on for %d: %d releases in an hour", stops, goes, releases)
				}
			}
			if mean[1] > 1.05*mean[0] {
				t.Errorf("stops for %d, goes on for %d: the other pod used %.0fm, without looks %.0fm", stops, goes, mean[1], mean[0])
			}
		}
	}
	if released == 0 {
		t.Error("no look released the price")
	}
}

// alternate has a job stop and go on for an hour, each for as many looks, and counts the releases by
// looks. mean is what the other pod used, in millicores.
func alternate(looks bool, stops, goes int) (releases int, mean float64) {
	w, service, job := contended()
	w.cfg.Release = 2 * time.Hour // releases by rounds are another rule
	used := service.stat.Usage
	for i := range 3600 * 5 {
		if job.demand = 4000; i%(stops+goes) < stops {
			job.demand = 0
		}
		w.pass(w.cfg.LookInterval)
		switch {
		case i%5 == 4:
			w.round()
		case looks && w.look().Node.Released:
			releases++
		}
	}
	return releases, float64((service.stat.Usage - used).Milliseconds()) / 3600
}
