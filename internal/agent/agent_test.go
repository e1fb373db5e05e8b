package agent

import (
	"encoding/json"
	"errors"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/must"
)

// TestOddLimits: the real API server takes what is decided for pods whose limits are odd, and for one whose burst keeps
// its limit up; and the pressures where they are read. That is under the agent's own role, which is enough for its Lease
// and for the watches that show it what it is told, and what it is not told any more.
func TestOddLimits(t *testing.T) {
	w := newWorld(t)
	w.stalls = true
	pod, burst := w.start("burst", "50m", "500m", 0.01, 0)
	w.mu.Lock()
	err := w.tree.Update(string(pod.UID), w.loads[0].id, func(g *kernel.Group) { g.Quota.Burst = 35 * time.Millisecond })
	w.mu.Unlock()
	must.Succeed(t, err)
	throttled, raised := w.start("throttled", "500m", "1", 1, 0.9)
	url, _ := w.agent()
	w.decided(burst, raised)
	// The agent knows the node from here on, so it decides for new pods before they are warm.
	all := map[string]*v1alpha1.PodAllocation{"burst": burst, "throttled": raised}
	for name, limit := range map[string]string{"tiny": "5m", "least": "1m", "odd": "10.5m", "tenth": "0.1", "huge": "1e3"} {
		request := "1m"
		if name == "huge" {
			request = "100m"
		}
		_, all[name] = w.start(name, request, limit, 0.01, 0)
	}
	floors := map[string]cpu.Milli{"tiny": 20, "least": 20, "odd": 20, "tenth": 100, "huge": 4000, "burst": 500, "throttled": 1000}
	ceilings := map[string]cpu.Milli{"tiny": 80, "least": 80, "odd": 80, "tenth": 800, "huge": 4000, "burst": 4000, "throttled": 4000}
	for name, pa := range all {
		w.decided(pa)
		s := w.allocation(pa).Spec
		if d := s.Decision; d.Floor != floors[name] || d.Ceiling != ceilings[name] || *s.DesiredCPULimit < d.Floor ||
			*s.DesiredCPULimit > d.Ceiling || d.MemoryPressurePercent == nil || d.IOPressurePercent == nil {
			t.Errorf("%s: desired %v, decision %+v; want from %v to %v", name, *s.DesiredCPULimit, d, floors[name], ceilings[name])
		}
	}
	got := w.allocation(raised)
	if *got.Spec.DesiredCPULimit <= 1000 || len(got.Status.DeclaredLimits) != 0 || got.Spec.PodRef.UID != throttled.UID {
		t.Errorf("want a raise and nothing else written: %+v", got)
	}
	if n := w.metric(url, `mbcas_agent_publishes_total{result="invalid"}`); n != 0 {
		t.Errorf("the API server refused %v decisions", n)
	}
	w.eventually("a Lease", func() bool {
		l := w.lease()
		m, err := allocation.ParseNodeMarket(l.Annotations[kube.MarketKey])
		return err == nil && l.Spec.RenewTime != nil && *l.Spec.HolderIdentity == "agent-pod" &&
			len(l.OwnerReferences) == 1 && m.Round > 0
	})
	w.eventually("readiness", func() bool { code, _ := w.get(url + "/readyz"); return code == http.StatusOK })
	must.Succeed(t, w.client.Delete(t.Context(), allocation.NewNode(w.node, "node")))
	w.eventually("no pod is managed", func() bool { return w.metric(url, `mbcas_node_pods{part="bidding"}`) == 0 })
}

// lease is the Lease of the node; empty where there is none.
func (w *world) lease() *coordinationv1.Lease {
	w.t.Helper()
	var l coordinationv1.Lease
	name := types.NamespacedName{Namespace: kube.SystemNamespace, Name: kube.AgentLease(w.node)}
	if err := w.client.Get(w.t.Context(), name, &l); err != nil {
		return &coordinationv1.Lease{}
	}
	return &l
}

// TestAgent: a throttled pod on a node with idle CPU gets a higher limit; probes,
// metrics and /debug/round agree; and nothing names a pod to the cluster.
func TestAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBubble(t)
		pod, pa := w.start("throttled", "500m", "1", 1, 0.9)
		w.start("unlimited", "500m", "", 0.5, 0)
		url, _ := w.agent()
		w.decided(pa)
		got, unpressed := w.allocation(pa).Spec, int32(0)
		want := &v1alpha1.Decision{
			Demand: 1800, Usage: 1000, ThrottledPercent: 90, CPUPressurePercent: &unpressed,
			Budget: 500, PriorityPercent: 100, Floor: 1000, Ceiling: 4000, BoundBy: v1alpha1.BoundByNothing, ObservedAt: got.Decision.ObservedAt,
		}
		if d := cmp.Diff(want, got.Decision); *got.DesiredCPULimit != 3100 || d != "" {
			t.Errorf("desired %v, want 3100m, what the other pod leaves of 3600m; decision (-want +got):\n%s",
				*got.DesiredCPULimit, d)
		}
		w.rounds(url, 40)
		m, err := allocation.ParseNodeMarket(w.lease().Annotations[kube.MarketKey])
		if err != nil || m.Round == 0 || m.Supply != 3600 || m.Demand != 2300 {
			t.Errorf("the Lease says %+v (%v)", m, err)
		}
		for _, path := range []string{"/readyz", "/healthz"} {
			if code, body := w.get(url + path); code != http.StatusOK {
				t.Errorf("%s: %d %s", path, code, body)
			}
		}
		for line, want := range map[string]float64{
			`mbcas_node_pods{part="bidding"}`: 1, `mbcas_node_pods{part="unmanaged"}`: 1, `mbcas_node_price`: 0,
			`mbcas_agent_publishes_total{result="written"}`: 1, `mbcas_agent_rounds_total{result="panicked"}`: 0,
			`mbcas_node_supply_cores`: 3.6,
		} {
			if v := w.metric(url, line); v != want {
				t.Errorf("%s is %v, want %v", line, v, want)
			}
		}
		w.checkNames(url, string(pod.UID), pod.Name)
		if r := w.report(); len(r.Pods) != 1 || r.Pods[0].Name != pod.Name || r.Pods[0].Limit != 1000 ||
			r.Pods[0].Desired != 3100 || r.Pods[0].Throttled != 0.9 {
			t.Errorf("debug/round: %+v", r)
		}
	})
}

// checkNames: no metric names a pod, and what names pods is not on the port of the metrics.
func (w *world) checkNames(url string, names ...string) {
	w.t.Helper()
	_, text := w.get(url + "/metrics")
	if lines := series(text); len(lines) > maxSeries {
		w.t.Errorf("%d series, want at most %d:\n%s", len(lines), maxSeries, strings.Join(lines, ""))
	}
	for _, label := range regexp.MustCompile(`="([^"]*)"`).FindAllStringSubmatch(text, -1) {
		for _, name := range append(names, w.ns) {
			if strings.Contains(label[1], name) {
				w.t.Errorf("a label has the value %q, which is of a pod", label[1])
			}
		}
	}
	if code, body := w.get(url + "/debug/round"); code != http.StatusNotFound || strings.Contains(body, names[0]) {
		w.t.Errorf("the port of the metrics answers /debug/round: %d %s", code, body)
	}
}

// report is the last round.
func (w *world) report() (r allocation.RoundReport) {
	w.t.Helper()
	_, body := w.get(w.debug + "/debug/round")
	if err := json.Unmarshal([]byte(body), &r); err != nil {
		w.t.Fatalf("%v: %s", err, body)
	}
	return r
}

// TestNothingIsPublishedTwice: neither steady load nor a restart writes a decision again.
func TestNothingIsPublishedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBubble(t)
		_, pa, url, stop := w.throttled()
		w.rounds(url, 40)
		w.checkWritten(pa, 3600, 1)
		stop()
		url, _ = w.agent()
		w.rounds(url, 40)
		w.checkWritten(pa, 3600, 1)
		if n := w.metric(url, `mbcas_node_pods{part="bidding"}`); n != 1 {
			t.Errorf("%v bids after the restart, want 1", n)
		}
	})
}

// TestWatchesByIndex: the agent watches its node, its pods and its NodeAllocation, each by an index of the
// API server, and no PodAllocations: it reads each of these once.
func TestWatchesByIndex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBubble(t)
		_, one := w.start("one", "500m", "1", 1, 0.9)
		_, two := w.start("two", "500m", "1", 1, 0.9)
		url, _ := w.agent()
		w.decided(one, two)
		w.rounds(url, 20)
		if n := w.sent.count(http.MethodGet, "/podallocations?"); n != 0 {
			t.Errorf("%d lists or watches of PodAllocations, want none", n)
		}
		if n := w.sent.count(http.MethodGet, "/podallocations/"); n != 2 {
			t.Errorf("%d PodAllocations were read, want each once", n)
		}
		for resource, field := range map[string]string{
			"/nodes": "metadata.name%3D" + w.node, "/pods": "spec.nodeName%3D" + w.node,
			"/nodeallocations": "metadata.name%3D" + w.node,
		} {
			of := func(parts ...string) int { return w.sent.count(http.MethodGet, append(parts, resource+"?")...) }
			all, own, watches := of(), of("fieldSelector="+field), of("fieldSelector="+field, "watch=true")
			if watches == 0 || own != all {
				t.Errorf("%s: %d requests, %d of that node's alone, %d watches", resource, all, own, watches)
			}
		}
	})
}

// TestFollowsItsNodeAllocation: what the agent is told takes effect; a PodAllocation that was created again
// counts as never published, and a pod of which it is not told any more is left alone.
func TestFollowsItsNodeAllocation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBubble(t)
		pod, pa, url, _ := w.throttled()
		check := func(limit cpu.Milli, writes int) {
			t.Helper()
			w.rounds(url, 20)
			w.checkWritten(pa, limit, writes)
		}
		check(3600, 1)
		ceiling := cpu.Milli(1500)
		w.tell(pa, kube.Limits(pod), &v1alpha1.Constraints{Ceiling: &ceiling})
		check(1500, 2)
		again := allocation.New(pod)
		must.Succeed(t, errors.Join(w.client.Delete(t.Context(), pa), w.client.Create(t.Context(), again)))
		w.tell(again, kube.Limits(pod), &v1alpha1.Constraints{Ceiling: &ceiling})
		check(1500, 3)
		must.Succeed(t, w.client.Delete(t.Context(), allocation.NewNode(w.node, "node")))
		check(1500, 3)
		if n := w.metric(url, `mbcas_node_pods{part="bidding"}`); n != 0 {
			t.Errorf("%v pods bid, want none", n)
		}
	})
}

// TestALostAnswerIsWrittenAgain: a decision whose answer was lost may have been written, so the next one is
// published whatever it is, even one that was published before.
func TestALostAnswerIsWrittenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBubble(t)
		writes := 0
		w.sent.lose = func(r *http.Request) bool {
			if r.Method == http.MethodPatch {
				writes++
			}
			return r.Method == http.MethodPatch && (writes == 1 || writes == 3)
		}
		pod, pa, url, _ := w.throttled()
		w.rounds(url, 20)
		w.checkWritten(pa, 3600, 2)
		ceiling := cpu.Milli(1500)
		w.tell(pa, kube.Limits(pod), &v1alpha1.Constraints{Ceiling: &ceiling})
		w.rounds(url, 1)
		w.checkWritten(pa, 1500, 3)
		w.tell(pa, kube.Limits(pod), nil)
		w.rounds(url, 20)
		w.checkWritten(pa, 3600, 4)
	})
}

// TestStallSignals: what a container waits for beside CPU is in its decision, where the agent is
// told to look, and its throttling is not taken for need.
func TestStallSignals(t *testing.T) {
	for name, asked := range map[string]bool{"default": false, "memory-io-pressure": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newBubble(t)
				w.stalls, w.stalled = asked, 0.95
				_, pa := w.start("thrashing", "500m", "1", 0.4, 0.9)
				url, _ := w.agent()
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
