package baseline

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/mbcas/mbcas/internal/lab/load"
	"github.com/mbcas/mbcas/internal/lab/sim"
)

// crowd is a node of four cores with two bursty replicas, a hog, a pod without a limit and one that opted out.
func crowd(length time.Duration) sim.Setup {
	burst := load.Requests{
		Rate:    load.Burst{Low: 20, High: 90, Start: 20 * time.Second, Length: 20 * time.Second, Every: 60 * time.Second},
		Service: 10 * time.Millisecond, Spread: load.Exponential,
	}
	return sim.Setup{Machine: sim.Machine{Cores: 4}, Length: length, Seed: 3, Pods: []sim.Spec{
		{Name: "web-1", Workload: "web", Request: 300, Limit: 600, Requests: burst},
		{Name: "web-2", Workload: "web", Request: 300, Limit: 600, Requests: burst},
		{Name: "hog", Request: 200, Limit: 800, Spin: load.Burst{Low: 0, High: 2, Start: 30 * time.Second, Length: 45 * time.Second}},
		{Name: "free", Request: 100, Requests: burst},
		{Name: "own", Request: 100, Limit: 200, OptOut: true, Requests: burst},
	}}
}

// playTwice runs a policy in the crowd, fails unless a second run is equal and pods that are not managed kept their limits, and
// returns the result.
func playTwice(t *testing.T, length time.Duration, policy func() sim.Policy) sim.Result {
	t.Helper()
	r := sim.Run(crowd(length), policy())
	if again := sim.Run(crowd(length), policy()); !reflect.DeepEqual(r.Pods, again.Pods) {
		t.Error("two runs with one seed differ")
	}
	for _, p := range r.Pods {
		if !p.Spec.Managed() && len(p.Changes) > 0 {
			t.Errorf("%s is not managed, and was changed: %v", p.Spec.Name, p.Changes)
		}
	}
	return r
}

// world feeds a policy with readings made by hand.
type world struct {
	sim.Reading
}

func handmade(cores int, specs ...sim.Spec) *world {
	w := &world{Reading: sim.Reading{Cores: cores, Allocatable: 1000 * 1000, Period: 100 * time.Millisecond}}
	for i, s := range specs {
		if s.Name == "" {
			s.Name = fmt.Sprint("pod-", i)
		}
		w.Pods = append(w.Pods, sim.PodReading{ID: i, Spec: &s, Request: s.Request, Limit: s.Limit})
	}
	return w
}

// pass lets time pass, in which each pod uses so many cores.
func (w *world) pass(d time.Duration, cores ...float64) {
	w.Now += d
	for i := range w.Pods {
		used := time.Duration(cores[i] * float64(d))
		w.Pods[i].Usage += used
		w.Pods[i].Age += d
		w.Usage += used
	}
}

// do carries actions out at once.
func (w *world) do(actions []sim.Action) {
	for _, a := range actions {
		for i := range w.Pods {
			if p := &w.Pods[i]; p.ID == a.Pod && a.Scale == 0 {
				p.Limit = a.Limit
				if a.Request > 0 {
					p.Request = a.Request
				}
			}
		}
	}
}
