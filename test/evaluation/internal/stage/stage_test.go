//go:build linux

package stage

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mbcas/mbcas/test/evaluation/internal/objects"
	"github.com/mbcas/mbcas/test/evaluation/internal/plan"
	"github.com/mbcas/mbcas/test/evaluation/internal/results"
	"github.com/mbcas/mbcas/test/internal/audit"
)

func cell(t *testing.T, situation, policy string) plan.Cell {
	t.Helper()
	for _, c := range plan.Default(false, false).Cells() {
		if c.Situation.Name == situation && c.Policy.Name == policy {
			return c
		}
	}
	t.Fatalf("no cell %s, %s", situation, policy)
	return plan.Cell{}
}

var now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func TestTimeline(t *testing.T) {
	for name, tt := range map[string]struct {
		policy      string
		age, begins time.Duration
		load        time.Duration
	}{
		"young, MBCAS":       {plan.MBCAS, 3 * time.Second, plan.MinAge - plan.Warm - 8*time.Second, plan.Warm},
		"old, MBCAS":         {plan.MBCAS, time.Hour, 0, plan.Warm},
		"young, only kernel": {plan.Declared, 3 * time.Second, 0, plan.Warm},
		"learning":           {plan.VPATuned, 3 * time.Second, 0, 102 * time.Second},
	} {
		got := newTimeline(cell(t, "requests-mislead", tt.policy), now, now.Add(-tt.age))
		begins, event := got.begin.Sub(now), got.eventAt().Sub(got.start())
		if begins != tt.begins || got.offset() != tt.load || event != 5*time.Second {
			t.Errorf("%s: %+v, begins after %v", name, got, begins)
		}
	}
	young := newTimeline(cell(t, "requests-mislead", plan.MBCAS), now, now)
	if age := young.eventAt().Sub(now); age != plan.MinAge {
		t.Errorf("a new pod is %v old at the event, want %v", age, plan.MinAge)
	}
}

func TestArrivals(t *testing.T) {
	w := cell(t, "requests-mislead", plan.MBCAS).Situation.Workloads[0]
	measured := func(policy string, age time.Duration) (in []time.Duration, before int) {
		line := newTimeline(cell(t, "requests-mislead", policy), now, now.Add(-age))
		for _, at := range line.arrivals(w, 5, 3) {
			if at -= line.offset(); at >= 0 {
				in = append(in, at)
			} else {
				before++
			}
		}
		return in, before
	}
	want, warm := measured(plan.MBCAS, time.Hour)
	// 0.3 cores of requests of 3 ms are 100 a second.
	if len(want) < 2700 || len(want) > 3300 || warm < 1275 || warm > 1725 {
		t.Errorf("%d arrivals in 30 s, %d in the warm-up of 15 s; want about 3000 and 1500", len(want), warm)
	}
	if got, before := measured(plan.VPATuned, time.Minute); !slices.Equal(got, want) || before <= warm {
		t.Errorf("arrivals depend on the policy, or there is no load in the learning: %d, %d before", len(got), before)
	}
}

func TestPlans(t *testing.T) {
	learner := newTimeline(cell(t, "requests-mislead", plan.VPATuned), now, now.Add(-time.Hour))
	plans := learner.plans(4)
	if len(plans) != 3 || !plans[0].From.Equal(now) || !plans[0].Until.Equal(learner.start()) ||
		!plans[1].From.Equal(learner.eventAt()) || !plans[1].Until.Equal(learner.end()) ||
		!plans[2].From.Equal(learner.end()) || !plans[2].Uncounted || plans[1].Uncounted ||
		plans[2].Until.Sub(plans[2].From) < Timeout {
		t.Errorf("%+v", plans)
	}
	for want, at := range map[int]time.Time{
		3: now, 2: learner.start(), 1: learner.end(), 0: learner.end().Add(Timeout),
	} {
		if got := left(plans, at); len(got) != want {
			t.Errorf("at %v: %d plans are left, want %d", at.Sub(now), len(got), want)
		}
	}
	if got := newTimeline(cell(t, "requests-mislead", plan.MBCAS), now, now).plans(4); len(got) != 2 {
		t.Errorf("without learning: %+v, want one plan and its trail", got)
	}
}

// user is the account of a part of a policy.
func user(namespace, name string) string { return "system:serviceaccount:" + namespace + ":" + name }

func TestCount(t *testing.T) {
	event := func(name, verb, ns, resource, uri string, code int) (e audit.Event) {
		e.User.Username, e.Verb, e.RequestURI, e.ResponseStatus.Code = name, verb, uri, code
		resource, sub, _ := strings.Cut(resource, "/")
		e.ObjectRef.Namespace, e.ObjectRef.Resource, e.ObjectRef.Subresource = ns, resource, sub
		return e
	}
	ours, agent := user("mbcas-system", "mbcas-controller"), user("mbcas-system", "mbcas-agent")
	updater, hpa := user("kube-system", "vpa-updater"), user("kube-system", "horizontal-pod-autoscaler")
	var got results.Control
	for _, e := range []audit.Event{
		event(ours, "patch", "a", "pods/resize", "/x", 200),
		event(ours, "patch", "a", "pods/resize", "/x?dryRun=All", 200),
		event(ours, "patch", "a", "pods/resize", "/x", 409), event("admin", "patch", "b", "pods/resize", "/x", 200),
		event(agent, "patch", "", "podallocations", "/x", 200),
		event(agent, "update", "mbcas-system", "leases", "/x", 200),
		event(agent, "get", "", "podallocations", "/x", 200),
		event(updater, "create", "a", "pods/eviction", "/x", 201), event("scheduler", "create", "a", "pods", "/x", 201),
		event(hpa, "update", "a", "deployments/scale", "/x", 200),
		event("system:node:n", "patch", "a", "pods/status", "/x", 200),
		event("system:node:n", "patch", "", "nodes/status", "/x", 200),
	} {
		count(&got, "a", e)
	}
	want := results.Control{Resizes: 1, Evictions: 1, PodWrites: 3, Writes: map[string]map[string]int{
		"mbcas": {"pods/resize": 1, "podallocations": 1, "leases": 1}, "vpa": {"pods/eviction": 1},
		"hpa": {"deployments/scale": 1}, "cluster": {"pods": 1, "pods/status": 1},
	}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestCounters(t *testing.T) {
	busy, idle, steal, err := cpuTicks("cpu  10 1 20 1000 5 2 3 4 99 99\ncpu0 1 1 1 1 1 1 1 1 1 1\n")
	if err != nil || busy != 40 || idle != 1005 || steal != 4 {
		t.Errorf("busy %d, idle %d, steal %d, %v; want 40, 1005, 4", busy, idle, steal, err)
	}
	if _, _, _, err := cpuTicks("intr 1 2"); err == nil {
		t.Error("no line of a CPU is no error")
	}
	const averages = " avg10=0.00 avg60=0.00 avg300=0.00 total="
	got := pressureTotal("some" + averages + "1500000\nfull" + averages + "7\n")
	if got != 1500*time.Millisecond {
		t.Errorf("pressure %v, want 1.5 s", got)
	}
}

// TestWorkOfAGonePodIsLost: a policy that evicts a batch job at the end gets a figure, and no failed cell.
func TestWorkOfAGonePodIsLost(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	r := &run{stage: Stage{Pods: &Pods{all: map[string]Pod{}}}}
	done, err := r.ask(ctx, Pod{UID: "gone", IP: "127.0.0.1"})
	if err != nil || done.Units != 0 {
		t.Errorf("%+v, %v; want nothing done", done, err)
	}
}

func TestPodsInOrder(t *testing.T) {
	p := &Pods{all: map[string]Pod{}}
	see := func(name, ns string, age time.Duration, ready corev1.ConditionStatus) *corev1.Pod {
		x := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			UID: types.UID(name), Name: name, Namespace: ns, Labels: map[string]string{objects.App: "web"},
			CreationTimestamp: metav1.NewTime(now.Add(-age)),
		}}
		x.Status.PodIP = "10.0.0.1"
		x.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
		x.Status.ContainerStatuses = []corev1.ContainerStatus{{
			ContainerID: "containerd://c-" + name, RestartCount: 2,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		}}
		p.see(x)
		return x
	}
	see("young", "a", time.Second, corev1.ConditionTrue)
	old := see("old", "a", time.Hour, corev1.ConditionTrue)
	see("unready", "a", time.Minute, corev1.ConditionFalse)
	see("other", "b", time.Minute, corev1.ConditionTrue)
	uids := func(pods []Pod) (all []string) {
		for _, x := range pods {
			all = append(all, x.UID)
		}
		return all
	}
	if got := uids(p.In("a", "")); !slices.Equal(got, []string{"old", "unready", "young"}) {
		t.Errorf("pods %v", got)
	}
	if got := uids(p.Ready("a", "web")); !slices.Equal(got, []string{"old", "young"}) {
		t.Errorf("Ready %v", got)
	}
	if x := p.In("a", "web")[0]; x.ContainerID != "c-old" || x.Restarts != 2 {
		t.Errorf("%+v", x)
	}
	p.forget(old)
	if got := uids(p.Ready("a", "web")); !slices.Equal(got, []string{"young"}) || len(p.In("a", "nginx")) > 0 {
		t.Errorf("after one has gone: %v", got)
	}
}
