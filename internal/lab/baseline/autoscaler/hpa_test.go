package autoscaler

import (
	"slices"
	"testing"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/lab/sim"
	"github.com/mbcas/mbcas/internal/lab/simtest"
)

// scaleTo is what the actions ask for; 0: nothing.
func scaleTo(actions []sim.Action) int {
	for _, a := range actions {
		if a.Replicas > 0 {
			return a.Replicas
		}
	}
	return 0
}

// sync lets 15 s pass in which pod i uses uses[i], and is what the actions then ask for; 0: nothing.
func sync(h *HPA, w *simtest.Node, uses ...float64) int {
	w.Advance(15*time.Second, uses...)
	actions, _ := h.Decide(&w.Snapshot)
	return scaleTo(actions)
}

// Requests are 200m, the target is 80 %. Those that are not ready count as idle, but only against
// growth.
func TestHPADesired(t *testing.T) {
	for name, c := range map[string]struct {
		wanted, running, ready int
		use                    float64
		unasked                bool
		want                   int
	}{
		"no pod is ready":                           {3, 3, 0, 0, false, 3},
		"one has no request":                        {2, 2, 2, 1, true, 2},
		"one at 200 %: 2.5 x 1":                     {1, 1, 1, 0.4, false, 3},
		"at 88 %, just more than a tenth above":     {2, 2, 2, 0.352, false, 3},
		"at 72 %, a tenth below":                    {10, 10, 10, 1.44, false, 10},
		"at 71 %: 0.8875 x 10":                      {10, 10, 10, 1.42, false, 9},
		"at 215 %, but 86 % with three to come":     {5, 2, 2, 0.86, false, 5},
		"at 107 %, but 86 % with one at its start":  {5, 5, 4, 0.86, false, 5},
		"at 150 % with two to come: 1.875 x 4":      {4, 2, 2, 1.2, false, 8},
		"at 20 %, three at their start: 0.25 x 2":   {5, 5, 2, 0.08, false, 1},
		"at 75 %, within a tenth, one at its start": {5, 5, 4, 0.6, false, 5},
	} {
		v := hpaObservation{request: 200, running: c.running, ready: c.ready, use: c.use, requested: 200 * cpu.Milli(c.ready), requestMissing: c.unasked}
		if got := desired(c.wanted, v); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// Of the workload a, the first pod is ready; the second began in the window of its metrics, and the
// third has none. One that ends and one that opted out do not count. One of the replicas of b has
// no request. The last pod is a replica of nothing.
func TestHPAViewsWorkloads(t *testing.T) {
	a, b := sim.PodSpec{Workload: "a", Request: 200, Limit: 600}, sim.PodSpec{Workload: "b", Limit: 600}
	out, asks, alone := a, b, a
	out.OptOut, asks.Request, alone.Workload = true, 100, ""
	w := simtest.NewNode(16, out, a, a, a, a, b, asks, alone)
	third := w.Pods[3]
	w.Pods = append(w.Pods[:3:3], w.Pods[4:]...)
	w.Pods[3].Terminating = true
	h := NewHPA()
	h.metrics.read(&w.Snapshot)
	w.Advance(15*time.Second, 1, 0.5, 1, 1, 0.25, 0.5, 1)
	w.Pods[2].Age = 14 * time.Second
	w.Pods = append(w.Pods, third)
	h.metrics.read(&w.Snapshot)
	want := []hpaObservation{
		{key: "/a", pod: 1, request: 200, running: 3, ready: 1, use: 0.5, requested: 200},
		{key: "/b", pod: 5, running: 2, ready: 2, use: 0.75, requested: 100, requestMissing: true},
	}
	if got := h.observe(&w.Snapshot); !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// Two idle replicas are wanted when they are first seen, so they stay for 300 s, and one goes at
// the sync after that.
func TestHPAKeepsWhatItFinds(t *testing.T) {
	spec := sim.PodSpec{Workload: "web", Request: 200, Limit: 600}
	w := simtest.NewNode(16, spec, spec)
	h := NewHPA()
	for {
		actions, _ := h.Decide(&w.Snapshot)
		if got := scaleTo(actions); got != 0 {
			if got != 1 || w.Now != 315*time.Second {
				t.Errorf("asked for %d at %v, want 1 at 5m15s", got, w.Now)
			}
			return
		}
		if w.Now > 10*time.Minute {
			t.Fatal("never shrinks")
		}
		w.Advance(15*time.Second, 0, 0)
	}
}

// Twelve are more than Max, but declared. One more that is declared to begin later is kept, too.
func TestHPAKeepsDeclaredReplicas(t *testing.T) {
	spec := sim.PodSpec{Workload: "web", Request: 200, Limit: 600}
	w := simtest.NewNode(16, slices.Repeat([]sim.PodSpec{spec}, 12)...)
	h := NewHPA()
	h.Decide(&w.Snapshot)
	if got := sync(h, w, slices.Repeat([]float64{0.4}, 12)...); got != 0 {
		t.Errorf("twelve at 200 %%: asked for %d, want nothing", got)
	}
	w = simtest.NewNode(16, spec, spec, spec)
	late := w.Pods[2]
	w.Pods = w.Pods[:2]
	h = NewHPA()
	h.Decide(&w.Snapshot)
	w.Pods = append(w.Pods, late)
	if got := sync(h, w, 0.16, 0.16, 0.16); got != 0 {
		t.Errorf("a third one at 80 %%: asked for %d, want nothing", got)
	}
}

// At 1000 % of the request each, 25 replicas are wanted of two, but no more than four are added in
// a period, and none above Max. Within a tenth of the target nothing happens.
func TestHPAKeepsItsRateAndBounds(t *testing.T) {
	spec := sim.PodSpec{Workload: "web", Request: 200, Limit: 4000}
	for use, want := range map[float64]int{2: 6, 0.175: 0, 0.179: 3} { // 87 % is within a tenth of 80 %, 89 % is not: ceil(1.1125 x 2) = 3
		w := simtest.NewNode(16, spec, spec)
		h := NewHPA()
		h.Decide(&w.Snapshot)
		if got := sync(h, w, use, use); got != want {
			t.Errorf("use %v: asked for %d, want %d", use, got, want)
		}
		if use == 2 {
			if got := sync(h, w, use, use); got != 10 {
				t.Errorf("asked for %d next, want 10", got)
			}
		}
	}
	if got := limit(&hpaWorkload{wanted: 8, max: 100}, 20); got != 16 {
		t.Errorf("%d replicas, want twice as many at most", got)
	}
	if got := limit(&hpaWorkload{wanted: 8, max: 10}, 20); got != 10 {
		t.Errorf("%d replicas, want 10 at most", got)
	}
	if got := limit(&hpaWorkload{wanted: 8, max: 10}, 0); got != 1 {
		t.Errorf("%d replicas, want 1 at least", got)
	}
}

// The request is 200m each, five are wanted. 300m are free: one more, and no other one while that
// is on its way. Then there is room, but two are enough: of the five recommended three were had,
// and these stay. Where 100m are free, or less than nothing, nothing is asked for.
func TestHPAWaitsForRoom(t *testing.T) {
	spec := sim.PodSpec{Workload: "web", Request: 200, Limit: 600}
	for allocatable, want := range map[cpu.Milli]int{700: 3, 500: 0, 100: 0} {
		w := simtest.NewNode(4, spec, spec)
		w.Allocatable = allocatable
		h := NewHPA()
		h.Decide(&w.Snapshot)
		for range 2 {
			if got := sync(h, w, 0.4, 0.4); got != want {
				t.Errorf("%v allocatable: asked for %d at %v, want %d", allocatable, got, w.Now, want)
			}
		}
		if want == 3 {
			w.Allocatable = 4000
			if got := sync(h, w, 0.04, 0.04); got != want {
				t.Errorf("idle: asked for %d, want %d", got, want)
			}
		}
	}
}

// Both workloads want three replicas, for 400m more each. 600m are free: the second gets one. When
// it wants one only, and 500m are free, there is none for it.
func TestHPASharesRoom(t *testing.T) {
	for _, c := range []struct {
		allocatable cpu.Milli
		second      float64
		want        []sim.Action
	}{
		{1000, 0.4, []sim.Action{{Pod: 0, Replicas: 3}, {Pod: 1, Replicas: 2}}},
		{900, 0.2, []sim.Action{{Pod: 0, Replicas: 3}}},
	} {
		w := simtest.NewNode(4, sim.PodSpec{Workload: "a", Request: 200, Limit: 600}, sim.PodSpec{Workload: "b", Request: 200, Limit: 600})
		w.Allocatable = c.allocatable
		h := NewHPA()
		h.Decide(&w.Snapshot)
		w.Advance(15*time.Second, 0.4, c.second)
		if actions, _ := h.Decide(&w.Snapshot); !slices.Equal(actions, c.want) {
			t.Errorf("%v allocatable: got %v, want %v", c.allocatable, actions, c.want)
		}
	}
}
