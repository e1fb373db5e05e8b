package doctor

import (
	"errors"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mbcas/mbcas/internal/cli/cluster"
	"github.com/mbcas/mbcas/internal/cli/snapshot"
	"github.com/mbcas/mbcas/internal/kube"
)

// TestChecks: every check has a name of its own within its area, and the areas are in order.
func TestChecks(t *testing.T) {
	seen, areas := map[[2]string]bool{}, map[string]bool{}
	for i, c := range checks {
		key := [2]string{c.area, c.name}
		if c.area == "" || c.name == "" || c.judge == nil && c.reads == nil || seen[key] {
			t.Errorf("check %d, %q: want an area, a name of its own and a judgement", i, key)
		}
		if i > 0 && checks[i-1].area != c.area && areas[c.area] {
			t.Errorf("check %q stands apart from its area", key)
		}
		seen[key], areas[c.area] = true, true
	}
}

// TestUnreachable: if the API server does not respond, doctor judges nothing else.
func TestUnreachable(t *testing.T) {
	list := Judge(&Facts{Unreadable: map[string]error{"version": errors.New("connection refused")}})
	if len(list) != 1 || list[0].Level != Fail || list[0].Check != "cluster" || list[0].Name != "API server" {
		t.Errorf("findings %+v", list)
	}
}

// TestWarmingPods: right after the start of an agent its pods have too few samples, and are not told as none.
func TestWarmingPods(t *testing.T) {
	node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
	for warming, want := range map[int]string{
		0: "usage 0m of a supply of 3000m, price 0.000, 0 managed pods",
		2: "usage 0m of a supply of 3000m, price 0.000, 0 managed pods, 2 pods with too few samples yet",
	} {
		f := &findings{}
		facts := &Facts{Rounds: map[string]snapshot.Market{"node-1": {Supply: 3000, Warming: warming}}}
		checkRound(f, subject{Facts: facts, node: &node})
		if len(f.list) == 0 || f.list[0].Text != want {
			t.Errorf("%d pods warm up: %+v, want %q", warming, f.list, want)
		}
	}
}

// TestNewAgent: an agent renews its Lease half a minute after its start. Until then an old Lease, as one that an earlier
// installation has left, or none, is no fault of it; later it is.
func TestNewAgent(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
	leased := func(age time.Duration) *coordinationv1.Lease {
		return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: now.Add(-age)}}}
	}
	for _, tt := range []struct {
		lease   *coordinationv1.Lease
		started time.Duration
		level   Level
		text    string
	}{
		{leased(10 * time.Minute), 5 * time.Second, Warn, "its agent was created 5s ago, and has not renewed its Lease yet: no limit is changed there until it does"},
		{nil, 5 * time.Second, Warn, "its agent was created 5s ago, and has not renewed its Lease yet: no limit is changed there until it does"},
		{leased(10 * time.Minute), time.Minute, Fail, "its agent renewed its Lease 10m ago: limits there are frozen; declared limits return after the controller's --restore-after"},
		{nil, time.Minute, Fail, "its agent has never renewed its Lease: nothing is decided there"},
		{leased(20 * time.Second), 5 * time.Second, OK, "its agent renews its Lease"},
		{leased(20 * time.Second), time.Hour, OK, "its agent renews its Lease"},
	} {
		agent := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: cluster.AgentName + "-abcde", CreationTimestamp: metav1.NewTime(now.Add(-tt.started))}}
		agent.Spec.NodeName = node.Name
		facts := &Facts{SystemPods: []corev1.Pod{agent}, Leases: map[string]*coordinationv1.Lease{}}
		facts.Now = now
		if tt.lease != nil {
			facts.Leases[kube.AgentLease(node.Name)] = tt.lease
		}
		f := &findings{}
		checkAgent(f, subject{Facts: facts, node: &node})
		if len(f.list) != 1 || f.list[0].Level != tt.level || f.list[0].Text != tt.text {
			t.Errorf("an agent of %v with a Lease of %v: %+v, want %v %q", tt.started, tt.lease, f.list, tt.level, tt.text)
		}
	}
}
