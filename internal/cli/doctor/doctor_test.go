package doctor

import (
	"errors"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/podtest"
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

// TestPodQuotas: doctor names a pod of the node whose cgroup has a wrong quota at its generation, as the Lease says.
func TestPodQuotas(t *testing.T) {
	pod := func(name, node string, generation int64) (p corev1.Pod) {
		p.Namespace, p.Name, p.UID, p.Generation, p.Spec.NodeName = "shop", name, "web-uid", generation, node
		p.Spec.Containers = []corev1.Container{podtest.Container("app", "100m", "500m")}
		return p
	}
	node, lease := &corev1.Node{}, &coordinationv1.Lease{}
	node.Name = "n1"
	var m allocation.NodeMarket
	m.Quotas.Add("web-uid", allocation.Quota{Generation: 2, CPU: 200})
	lease.Annotations = map[string]string{kube.MarketKey: m.Text()}
	for name, c := range map[string]struct {
		pod  corev1.Pod
		want int
	}{"wrong": {pod("web", "n1", 2), 1}, "resized since": {pod("web", "n1", 3), 0}, "of another node": {pod("web", "n2", 2), 0}} {
		facts := &Facts{Leases: map[string]*coordinationv1.Lease{kube.AgentLease("n1"): lease}}
		facts.Pods = []corev1.Pod{c.pod}
		var f findings
		checkPodQuotas(&f, subject{Facts: facts, node: node})
		if len(f.list) != c.want || c.want == 1 && (f.list[0].Subject != "shop/web" ||
			f.list[0].Text != "the CPU quota of its cgroup: it is 200m, and the limits call for 500m") {
			t.Errorf("%s: %+v, want %d findings", name, f.list, c.want)
		}
	}
}
