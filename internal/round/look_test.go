package round

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

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

// TestLooksRaiseOrRevoke: a look lowers one limit at most, to the declared one, and decides about no pod that it does
// not read.
func TestLooksRaiseOrRevoke(t *testing.T) {
	raised, revoked := 0, 0
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
			for i, d := range w.look().Decisions {
				declared := max(w.pod(d.UID).declared.RoundUp(cpu.Quantum), d.Floor)
				switch lowered := d.Limit < before[d.UID]; {
				case !slices.Contains(w.watch, d.UID):
					rt.Fatalf("%s: set to %v by a look that did not read it", d.UID, d.Limit)
				case lowered && d.Publish && d.Limit == declared && i == 0:
					revoked++
				case !d.Publish || d.Limit <= before[d.UID]:
					rt.Fatalf("%s: from %v to %v, publish %v", d.UID, before[d.UID], d.Limit, d.Publish)
				case d.Limit > d.Ceiling:
					rt.Fatalf("%s: %v is above the ceiling %v", d.UID, d.Limit, d.Ceiling)
				default:
					raised++
				}
			}
		}
	})
	if raised == 0 || revoked == 0 {
		t.Errorf("looks raised %d limits and revoked %d", raised, revoked)
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
		if limits[true] != limits[false] || limits[true] != 2000 {
			t.Errorf("demand %v: a round gives %v, a look %v", demand, limits[false], limits[true])
		}
	}
}

// TestNothingToRaiseNothingRead: looks read nothing where no limit could be raised before the next round,
// and never more than 32 containers.
func TestNothingToRaiseNothingRead(t *testing.T) {
	idle := &fakePod{name: "idle", request: 100, declared: 500, demand: 10, ceiling: 500}
	raised := &fakePod{name: "raised", request: 100, declared: 4000, demand: 1000}
	w := newWorld(idle, raised)
	if out := w.run(30); len(out.Watch) != 0 {
		t.Errorf("no pod can be raised, and looks read %v", out.Watch)
	}
	idle.ceiling = 0
	if out := w.run(1); !slices.Equal(w.watch, []string{"idle"}) {
		t.Errorf("an idle pod may become busy any time: looks read %v", out.Watch)
	}
	var many []*fakePod
	for i := range 60 {
		many = append(many, &fakePod{name: fmt.Sprint(i), request: 20, declared: 50, demand: 4000})
	}
	if out := newWorld(many...).run(30); len(out.Watch) != maxWatched {
		t.Errorf("looks read %d of 60 capped pods: want %d", len(out.Watch), maxWatched)
	}
	for _, p := range many {
		p.demand = 1
	}
	if out := newWorld(many...).run(30); len(out.Watch) != maxWatchedCapped {
		t.Errorf("looks read %d of 60 idle pods: want %d, so that new ones have room", len(out.Watch), maxWatchedCapped)
	}
}

// TestLooksReadIdlePods: an idle pod at its declared limit that no price leaves more is read all the same. So it is raised in
// the look that sees it begin as a hog stops.
func TestLooksReadIdlePods(t *testing.T) {
	hog := &fakePod{name: "hog", request: 600, declared: 1600, ceiling: 1600, demand: 4000}
	idle := &fakePod{name: "idle", request: 200, budget: 2000, declared: 600, demand: 5}
	w := newWorld(hog, idle)
	w.node = Node{Capacity: 2000, Allocatable: 1600}
	for range 40 {
		w.lookAndRun()
	}
	pod := &fakePod{name: "pod", request: 100, budget: 500, declared: 300, demand: 5}
	w.join(pod)
	for range 15 {
		w.lookAndRun()
	}
	if price, share := w.state.price, w.state.room.perBudget*500; !price.binds || share > 0.3 {
		t.Fatalf("price %+v, and a share of %.2f: want one that binds, and less than the declared 0.3", price, share)
	}
	hog.demand, pod.demand = 0, 1000
	w.pass(w.cfg.LookInterval)
	if w.look(); pod.limit < 600 {
		t.Errorf("after a look the pod has %v, want twice its limit", pod.limit)
	}
}

// TestLooksChangeNoEstimate: looks change the estimates of pods that have stopped, and no others.
func TestLooksChangeNoEstimate(t *testing.T) {
	released := 0
	rapid.Check(t, func(rt *rapid.T) {
		w, service, job := contended()
		other := &fakePod{name: "other", request: 100, declared: 500, demand: 80}
		w.join(other)
		for range 15 {
			w.lookAndRun()
		}
		for range 40 {
			w.pass(w.cfg.LookInterval)
			for _, p := range []*fakePod{service, job, other} {
				if rapid.IntRange(0, 4).Draw(rt, "change") == 0 {
					p.demand = cpu.Milli(rapid.IntRange(0, 40).Draw(rt, "demand")) * 100
				}
			}
			if rapid.IntRange(0, 4).Draw(rt, "round") == 0 {
				w.round()
				continue
			}
			before, last := maps.Clone(w.state.estimates), w.state.last
			out := w.look()
			if out.Node.Released {
				released++
			}
			for _, p := range w.pods {
				was, is := before[p.id], w.state.estimates[p.id]
				stopped := w.state.look.busy[p.name].stopped
				if was != is && !(out.Node.Released && stopped && is.Mean < was.Mean && is.Samples == was.Samples) {
					rt.Fatalf("%s: the estimate goes from %+v to %+v, released %v, stopped %v", p.name, was, is, out.Node.Released, stopped)
				}
			}
			if w.state.last.Node != last.Node {
				rt.Fatalf("the next round compares with another sample of the node")
			}
		}
	})
	if released == 0 {
		t.Error("no look released the price")
	}
}

// TestDecreaseIsNoObstacle: a look raises a pod that the round before it lowers, and none that it has raised.
func TestDecreaseIsNoObstacle(t *testing.T) {
	w, service, job := contended()
	service.limit, service.published.Limits = 2500, map[string]cpu.Milli{"c": 2500}
	w.cfg.PublishInterval = 0
	if d := w.run(1).Decisions[0]; !d.Publish || d.Limit >= 2000 {
		t.Fatalf("the round does not lower the service: %+v", d)
	}
	job.demand = 0
	raised := 0
	for range 4 {
		w.pass(w.cfg.LookInterval)
		raised += len(w.look().Decisions)
	}
	if raised != 1 || service.limit != 3600 {
		t.Errorf("looks raise it %d times, to %v; want once, to 3600m", raised, service.limit)
	}
}

// TestLooksSayThrottled: the decision of a look says how much the pod is throttled: the controller raises
// throttled pods first.
func TestLooksSayThrottled(t *testing.T) {
	service := &fakePod{name: "service", request: 200, declared: 500, demand: 100}
	w := newWorld(service)
	w.run(30)
	service.demand = 1000
	w.pass(w.cfg.LookInterval)
	if out := w.look(); len(out.Decisions) != 1 || out.Decisions[0].ThrottleRatio != 1 || out.Decisions[0].Usage != 500 {
		t.Errorf("%+v, want a throttle ratio of 1 and a usage of 500m", out.Decisions)
	}
}

// TestBusyPodsStop: only a pod that looks saw throttled, or busy on a full node, several times in a row can be seen
// to stop, within the time of a look or between two. It has stopped until it uses more.
func TestBusyPodsStop(t *testing.T) {
	// T: throttled, t: throttled and uses little, F: uses more on a full node, f: little there, l: uses little, m: more
	for looks, want := range map[string]string{
		"TTTl":     "...s",
		"TTTTlll":  "....sss",
		"TTTtl":    "...ss",
		"TTTTml":   ".....s",
		"TTTTmml":  ".......",
		"TTTlml":   "...s..",
		"TlTlTlTl": "........",
		"TTlTTl":   "......",
		"mmml":     "....",
		"FFFl":     "...s",
		"TFTlf":    "...ss",
		"FFl":      "...",
		"FFfl":     "....",
		"fffl":     "....",
	} {
		var b busy
		got := ""
		for _, l := range looks {
			if b = b.next(l == 'T' || l == 't', l == 'F' || l == 'f', strings.ContainsRune("tfl", l)); b.stopped {
				got += "s"
			} else {
				got += "."
			}
		}
		if got != want {
			t.Errorf("%s: stopped %s, want %s", looks, got, want)
		}
	}
}
