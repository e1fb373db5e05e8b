package agent

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kernel"
)

// TestStallSignals: what a container waits for beside CPU is in its decision, where the agent is
// told to look, and its throttling is not taken for need.
func TestStallSignals(t *testing.T) {
	for name, asked := range map[string]bool{"default": false, "memory-io-pressure": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newBubble(t)
				w.stalls, w.stalled = asked, 0.95
				_, pa := w.start("thrashing", "500m", "1", 0.4, 0.9)
				url, _ := w.agent(w.access)
				w.decided(pa)
				d := w.allocation(pa).Spec.Decision
				if (d.MemoryPressurePercent != nil) != asked || (d.IOPressurePercent != nil) != asked || d.ThrottledPercent != 90 {
					t.Errorf("%+v: want it throttled, and a word of stalls only if asked", d)
				}
				w.rounds(url, 20)
				p := w.report().Pods[0]
				// It uses 400m, and throttling alone makes 720m of that.
				if !asked && (p.MemoryPressure != nil || p.IOPressure != nil || p.Demand != 720) {
					t.Errorf("%+v: want its throttling taken for need, and no word of stalls", p)
				}
				if asked && (*p.MemoryPressure != 0.95 || *p.IOPressure != 0 || p.Demand != 400) {
					t.Errorf("%+v: want its throttling not taken for need", p)
				}
			})
		})
	}
}

// TestOddLimits: the API server takes what is decided for pods whose limits are odd, and for one
// whose burst keeps its limit up; and the pressures where they are read.
func TestOddLimits(t *testing.T) {
	w := newWorld(t)
	w.stalls = true
	pod, burst := w.start("burst", "50m", "500m", 0.01, 0)
	w.mu.Lock()
	err := w.tree.Update(string(pod.UID), w.loads[0].id, func(g *kernel.Group) { g.Quota.Burst = 35 * time.Millisecond })
	w.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	url, _ := w.agent(w.access)
	w.decided(burst)
	// The agent knows the node from here on, so it decides for new pods before they are warm.
	odd := map[string]*v1alpha1.PodAllocation{"burst": burst}
	for name, limit := range map[string]string{"tiny": "5m", "least": "1m", "odd": "10.5m", "tenth": "0.1", "huge": "1e3"} {
		request := "1m"
		if name == "huge" {
			request = "100m"
		}
		_, odd[name] = w.start(name, request, limit, 0.01, 0)
	}
	floors := map[string]cpu.Milli{"tiny": 20, "least": 20, "odd": 11, "tenth": 100, "huge": 110, "burst": 350}
	for name, pa := range odd {
		w.decided(pa)
		s := w.allocation(pa).Spec
		if d := s.Decision; d.Floor != floors[name] || d.Ceiling != 4000 || *s.DesiredCPULimit < d.Floor ||
			*s.DesiredCPULimit > d.Ceiling || d.MemoryPressurePercent == nil || d.IOPressurePercent == nil {
			t.Errorf("%s: desired %v, decision %+v; want a floor of %v", name, *s.DesiredCPULimit, d, floors[name])
		}
	}
	if n := w.metric(url, `mbcas_agent_publishes_total{result="invalid"}`); n != 0 {
		t.Errorf("the API server refused %v decisions", n)
	}
}
