package controller

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/atlength"
	"github.com/mbcas/mbcas/internal/testing/history"
	"github.com/mbcas/mbcas/internal/testing/loads"
	"github.com/mbcas/mbcas/internal/testing/schedule"
)

var (
	soakFor  = flag.Duration("soak", 10*time.Minute, "how long TestSoak has load and faults, by its own clock")
	soakTo   = flag.String("soakreport", "", "the file to write the report of TestSoak to")
	both     = flag.Bool("two-controllers", false, "two controllers work on all nodes during all of TestSoak")
	tracesOf = flag.String("traces", os.Getenv("MBCAS_TRACES"), "a folder of recorded load, cpu-usage-*.csv")
)

// traces are the recorded ones; none where there is no folder of them.
func traces(t *testing.T) []*loads.Trace {
	if *tracesOf == "" {
		t.Log("no recorded traces (-traces, MBCAS_TRACES): the load is generated")
		return nil
	}
	list, err := loads.Read(*tracesOf)
	if err != nil || len(list) == 0 {
		t.Fatalf("%d traces in %s: %v", len(list), *tracesOf, err)
	}
	return list
}

// TestSoak: over a long time with load like that recorded, pods that come and go, lost nodes and faults,
// no invariant breaks, little is written that changes no limit, and what the controller remembers goes
// with the pods. make soak plays a day.
func TestSoak(t *testing.T) {
	recorded, nodes, pods := traces(t), atlength.Of(3, 5), atlength.Of(30, 60)
	if *soakTo != "" {
		nodes, pods = 5, 60
	}
	synctest.Test(t, func(t *testing.T) {
		soak := schedule.Soak{
			System: system(), Nodes: nodes, Pods: pods, Length: *soakFor, Seed: *firstSeed, Traces: recorded, Remembered: remembered, TwoControllers: *both,
		}
		if *soakTo != "" {
			soak.Progress = func(text string) { fmt.Println(text) }
		}
		r := soak.Run()
		for _, v := range r.Violations {
			t.Errorf("%v: %v", r.Events[v.Event].At.Sub(r.Events[0].At), v)
		}
		// In a short run, one fault decides; TestLiveLoadWritesLittle is without faults.
		if b := r.Beyond(); b > 0.05 && r.Length >= 6*time.Hour {
			t.Errorf("%.3f writes per pod and minute change nothing, want at most 0.05: %v", b, r.Writes)
		}
		for path, n := range r.After {
			if n > r.Before[path]+fewLeft {
				t.Errorf("without pods, %s has %d entries; before the first there were %d", path, n, r.Before[path])
			}
		}
		if r.Ledgered >= 20 { // as many may stay until they are removed together
			t.Errorf("a ledger has %d entries of pods that are gone", r.Ledgered)
		}
		if r.Writes.Resizes < pods*3/4 || r.Requests["OK"] == 0 {
			t.Errorf("%d resizes, requests of agents %v: this proves nothing", r.Writes.Resizes, r.Requests)
		}
		if *soakTo == "" {
			t.Log(r.Writes)
		} else if err := os.WriteFile(*soakTo, []byte(r.Report()), 0o644); err != nil {
			t.Error(err)
		}
	})
}

// TestLiveLoadWritesLittle: with load like that recorded, agents and controller write at most 0.05
// times per pod and minute beyond what changes of limits cost, whether limits are applied or not.
// With MBCAS_LONG=1 it lasts an hour.
func TestLiveLoadWritesLittle(t *testing.T) {
	recorded := traces(t)
	for mode, part := range map[kube.Mode]time.Duration{kube.ModeEnforce: 15 * time.Minute, kube.ModeRecommend: 30 * time.Minute} {
		t.Run(string(mode), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := schedule.Soak{
					System: system(), Nodes: 2, Pods: atlength.Of(20, 30), Length: atlength.Of(part, time.Hour), Calm: true, Mode: mode,
					Seed: *firstSeed, Traces: recorded, Remembered: remembered,
				}.Run()
				if b := r.Beyond(); b > 0.05 {
					t.Errorf("%.3f writes per pod and minute change no limit, want at most 0.05: %v", b, r.Writes)
				}
				if r.Writes.Kinds["decisions"] == 0 {
					t.Error("no decision changes a limit: this proves nothing")
				}
				t.Logf("%.4f per pod and minute: %v", r.Beyond(), r.Writes)
			})
		})
	}
}

// TestNothingIsWrittenWithinBands: while load varies by five percent, where it throttles no pod, nothing but Leases is written.
func TestNothingIsWrittenWithinBands(t *testing.T) {
	for _, mode := range []kube.Mode{kube.ModeEnforce, kube.ModeRecommend} {
		t.Run(string(mode), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := schedule.Soak{
					System: system(), Nodes: 2, Pods: atlength.Of(20, 30), Length: atlength.Of(20*time.Minute, 30*time.Minute), Calm: true,
					Mode: mode, Remembered: remembered,
					Load: func(request cpu.Milli, seed uint64) *loads.Load { return loads.Steady(request.Cores()/2, 0.05, seed) },
				}.Run()
				for kind, n := range r.Writes.Kinds {
					if kind != "Leases" {
						t.Errorf("%d %s are written, want none", n, kind)
					}
				}
				if r.Writes.Kinds["Leases"] < atlength.Of(2*40, 2*60) {
					t.Errorf("%d Leases are renewed: the agents do not work", r.Writes.Kinds["Leases"])
				}
			})
		})
	}
}

// scarce is load of which each fourth takes all that a node has, so that limits change often.
func scarce(request cpu.Milli, seed uint64) *loads.Load {
	if seed%4 == 0 {
		return loads.Constant(8)
	}
	return loads.New(request.Cores()*1.5, nil, seed)
}

// TestAgentsWhoseClockJumps: while the clock of a node jumps by minutes, to and fro, and its agent also starts anew,
// Leases are renewed and pods are resized as with clocks that go right, and nothing breaks.
func TestAgentsWhoseClockJumps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		steps := []string{"15m agent n1 stop", "15m5s agent n1 start", "25m agent n1 stop", "25m10s agent n1 start", "35m crash A", "35m1s start A"}
		run := func(clocks ...string) (renewals, resizes int) {
			r := schedule.Soak{
				System: system(), Nodes: 2, Pods: 16, Length: 40 * time.Minute, Calm: true, Load: scarce, Seed: *firstSeed,
				Remembered: remembered, Steps: slices.Concat(clocks, steps),
			}.Run()
			for _, v := range r.Violations {
				t.Errorf("clocks %v: %v", clocks, v)
			}
			for _, e := range r.Events {
				if e.Kind == history.Renewed && e.Node == "n1" {
					renewals++
				}
			}
			return renewals, r.Writes.Resizes
		}
		renewals, resizes := run()
		jumping, resized := run("2m clock n1 10m", "8m clock n1 -10m", "20m clock n1 1h", "25m5s clock n1 -1h", "38m clock n1 0s")
		// In 30 runs, the jitter of the agents moved renewals between 125 and 131, and resizes by 14 of 692 at most.
		if jumping < renewals*9/10 || resized < resizes*19/20 || resized > resizes*21/20 || resizes < 60 {
			t.Errorf("%d renewals and %d resizes, want about %d and %d", jumping, resized, renewals, resizes)
		}
		t.Logf("%d renewals and %d resizes; %d and %d with a clock that jumps", renewals, resizes, jumping, resized)
	})
}

// TestTwoControllers: two controllers that see things otherwise, here when the agent of a node was last heard of, leave
// records to each other for longer and longer, instead of writing as fast as watches tell them. Nothing else
// breaks, and in the end both come to rest.
func TestTwoControllers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Without jitter: which waits it makes short depends on the order of goroutines, and so would the count.
		steady := system()
		steady.New = func(p schedule.Process) schedule.Controller {
			p.Jitter = exactly
			return system().New(p)
		}
		r := schedule.Soak{
			System: steady, Nodes: 2, Pods: 8, Length: 30 * time.Minute, TwoControllers: true, Remembered: remembered,
			Load: func(request cpu.Milli, seed uint64) *loads.Load { return loads.Steady(request.Cores()/2, 0.05, seed) },
			// B, which has forgotten, takes the agent for alive for longer.
			Steps: []string{"2m agent n1 stop", "4m crash B", "4m1s start B", "15m agent n1 start"},
		}.Run()
		for _, v := range r.Violations {
			t.Error(v)
		}
		if n := r.Writes.Kinds["records in PodAllocations"]; n < 8 || n > 80 {
			t.Errorf("%d records of 8 pods: %v", n, r.Writes)
		}
	})
}

// fewLeft are the entries that a map may keep after the pods: what was reserved of a quota, for one, is
// forgotten when the next is.
const fewLeft = 5

// remembered counts what a controller remembers: the entries of every map and list that can be reached
// from it, by the fields that lead there.
func remembered(c schedule.Controller) map[string]int {
	counts, seen := map[string]int{}, map[uintptr]bool{}
	countEntries(reflect.ValueOf(c.(*underTest).Reconciler).Elem(), "", counts, seen)
	return counts
}

func countEntries(v reflect.Value, path string, counts map[string]int, seen map[uintptr]bool) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() && !seen[v.Pointer()] {
			seen[v.Pointer()] = true
			countEntries(v.Elem(), path, counts, seen)
		}
	case reflect.Interface:
		if !v.IsNil() {
			countEntries(v.Elem(), path, counts, seen)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if name := v.Type().Field(i).Name; !notMemory[name] {
				countEntries(v.Field(i), path+"."+name, counts, seen)
			}
		}
	case reflect.Map:
		counts[path] += v.Len()
		for each := v.MapRange(); each.Next(); {
			countEntries(each.Value(), path+"[]", counts, seen)
		}
	case reflect.Slice:
		counts[path] += v.Len()
		for i := range v.Len() {
			countEntries(v.Index(i), path+"[]", counts, seen)
		}
	}
}

// notMemory are fields that lead out of the controller, to the API server and its caches.
var notMemory = map[string]bool{
	"API": true, "Client": true, "client": true, "Live": true, "Resizer": true, "Reader": true, "Leases": true, "Pods": true,
	"loc": true, "Telemetry": true, "Log": true, "Metrics": true, "Events": true, "Audit": true, "Config": true,
}
