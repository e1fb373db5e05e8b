package baseline

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/lab/load"
	"github.com/mbcas/mbcas/internal/lab/sim"
)

// street is a small node with everything on it: two services, a hog, one that comes late, one that goes, and pods that
// nobody may touch.
func street(seed uint64) sim.Setup {
	burst := load.Burst{Low: 20, High: 150, Start: 5 * time.Second, Length: 5 * time.Second, Every: 20 * time.Second}
	return sim.Setup{Machine: sim.Machine{Cores: 4}, Length: 70 * time.Second, Seed: seed, Pods: []sim.Spec{
		{Name: "web", Request: 200, Limit: 600, Priority: 2000, Threads: 8, Requests: load.Requests{Rate: burst, Service: 10 * time.Millisecond}},
		{Name: "api", Request: 100, Limit: 300, Threads: 4, Requests: load.Requests{Rate: load.Constant(20), Service: 5 * time.Millisecond, Spread: load.Exponential}},
		{Name: "hog", Request: 500, Limit: 2000, Spin: load.Constant(4)},
		{Name: "late", Limit: 400, Start: 20 * time.Second, Spin: load.Constant(1)},
		{Name: "early", Request: 100, Limit: 1000, End: 30 * time.Second, Spin: load.Constant(1)},
		{Name: "idle", Request: 50, Limit: 200},
		{Name: "guaranteed", Request: 400, Limit: 400, Spin: load.Constant(1)},
		{Name: "besteffort", Spin: load.Constant(1)},
		{Name: "optout", Request: 100, Limit: 500, OptOut: true, Spin: load.Constant(1)},
		{Name: "kubelet", System: true, Spin: load.Burst{High: 1, Length: time.Second, Every: 10 * time.Second}},
	}}
}

// watch plays a policy and hands each of its actions to look.
type watch struct {
	sim.Policy
	look func(*sim.Reading, sim.Action)
}

func (w watch) Turn(r *sim.Reading) ([]sim.Action, time.Duration) {
	actions, next := w.Policy.Turn(r)
	for _, a := range actions {
		w.look(r, a)
	}
	return actions, next
}

func spec(r *sim.Reading, id int) *sim.PodReading {
	for i := range r.Pods {
		if r.Pods[i].ID == id {
			return &r.Pods[i]
		}
	}
	return nil
}

func TestLeavesOthersAlone(t *testing.T) {
	// These have nothing to do here: HPA has no replicas, VPA alone is not yet sure, and the node is too busy to lend quota.
	still := map[string]bool{"static": true, "hpa": true, "vpa": true, "koordinator": true, "koordinator-60s": true, "rubik": true}
	for _, named := range All() {
		acted := false
		sim.Run(street(1), watch{named.New(), func(r *sim.Reading, a sim.Action) {
			acted = true
			if p := spec(r, a.Pod); p == nil || !p.Spec.Managed() {
				t.Errorf("%s: at %v it changes pod %d, which is not managed or does not run", named.Name, r.Now, a.Pod)
			}
		}})
		if !acted && !still[named.Name] {
			t.Errorf("%s: it never did anything, so nothing was tested", named.Name)
		}
	}
}

func TestKeepsLimitsLegal(t *testing.T) {
	for _, named := range All() {
		if named.Name == "no-limits" {
			continue
		}
		sim.Run(street(1), watch{named.New(), func(r *sim.Reading, a sim.Action) {
			if a.Scale > 0 {
				return
			}
			p := spec(r, a.Pod)
			if a.Limit < cpu.Quantum {
				t.Errorf("%s: at %v the limit of %s becomes %v, below what the kernel takes", named.Name, r.Now, p.Spec.Name, a.Limit)
			}
			if a.After < sim.ResizeDelay {
				return
			}
			if request := max(p.Request, a.Request); a.Limit <= request && a.Request == 0 {
				t.Errorf("%s: at %v the limit of %s becomes %v at a request of %v: the pod would not be Burstable", named.Name, r.Now, p.Spec.Name, a.Limit, request)
			}
		}})
	}
}

func TestSameSeedSameResult(t *testing.T) {
	for _, named := range All() {
		a, b := sim.Run(street(7), named.New()), sim.Run(street(7), named.New())
		if !reflect.DeepEqual(a, b) {
			t.Errorf("%s: two runs with one seed differ", named.Name)
		}
	}
}

func TestNewIsFresh(t *testing.T) {
	names := map[string]bool{}
	for _, named := range All() {
		if names[named.Name] || named.Name != strings.ToLower(named.Name) || strings.ContainsAny(named.Name, " /,") || named.About == "" {
			t.Errorf("%q: want a name of its own in lower case without blanks, and a description", named.Name)
		}
		names[named.Name] = true
		first := sim.Run(street(3), named.New())
		sim.Run(street(4), named.New())
		if again := sim.Run(street(3), named.New()); !reflect.DeepEqual(first, again) {
			t.Errorf("%s: what one policy saw changes what the next one does", named.Name)
		}
	}
}

// near says whether two figures are the same but for rounding.
func near(a, b float64) bool { return a-b < 1e-9 && b-a < 1e-9 }

// pod is a managed pod as a policy sees it.
func pod(id int, request, limit cpu.Milli) sim.PodReading {
	return sim.PodReading{ID: id, Spec: &sim.Spec{Request: request, Limit: limit}, Request: request, Limit: limit}
}

// bench is a node whose counters a test sets.
type bench struct {
	sim.Reading
	next    time.Duration
	periods []float64
}

func on(cores int, pods ...sim.PodReading) *bench {
	return &bench{Reading: sim.Reading{
		Cores: cores, Allocatable: cpu.Milli(cores) * cpu.Core, Period: 100 * time.Millisecond, Pods: pods,
	}, periods: make([]float64, len(pods))}
}

// play gives the policy all its turns up to a time. Pod i uses so many cores, and so large a part of its periods is
// throttled. It returns the limits that came of it.
func (b *bench) play(p sim.Policy, until time.Duration, cores, throttled []float64) []cpu.Milli {
	for b.next <= until {
		passed := b.next - b.Now
		b.Now = b.next
		for i := range b.Pods {
			pod, used := &b.Pods[i], time.Duration(cores[i]*float64(passed))
			pod.Usage += used
			b.Usage += used
			pod.Periods += uint64(passed / b.Period)
			b.periods[i] += throttled[i] * float64(passed/b.Period)
			pod.Throttled = uint64(b.periods[i])
		}
		b.Kubepods = b.Usage
		var actions []sim.Action
		actions, b.next = p.Turn(&b.Reading)
		for _, a := range actions {
			b.Pods[a.Pod].Limit = a.Limit
		}
	}
	limits := make([]cpu.Milli, len(b.Pods))
	for i := range b.Pods {
		limits[i] = b.Pods[i].Limit
	}
	return limits
}
