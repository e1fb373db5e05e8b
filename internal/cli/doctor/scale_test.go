package doctor

import (
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mbcas/mbcas/internal/cli/cluster"
	"github.com/mbcas/mbcas/internal/cli/snapshot"
	"github.com/mbcas/mbcas/internal/kube"
)

// BenchmarkJudge is what all checks of a large cluster cost beside its requests: 5,000 nodes with an agent and 30 pods
// each, in 1,000 namespaces.
func BenchmarkJudge(b *testing.B) {
	c := &Facts{Unreadable: map[string]error{}, Leases: map[string]*coordinationv1.Lease{}}
	c.Now, c.System = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), kube.SystemNamespace
	c.Version, c.Agent = "v1.36.3", &appsv1.DaemonSet{}
	c.Modes, c.Objects = map[string]kube.Mode{}, snapshot.ObjectsByNamespace{}
	pod := func(namespace, name, node string) corev1.Pod {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}}
		p.Spec.NodeName = node
		return p
	}
	for i := range 1000 {
		c.Namespaces = append(c.Namespaces, corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("shop-", i)}})
	}
	for n := range 5000 {
		node := fmt.Sprint("node-", n)
		c.Nodes = append(c.Nodes, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}})
		c.Leases[kube.AgentLease(node)] = &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: c.Now}}}
		c.SystemPods = append(c.SystemPods, pod(c.System, fmt.Sprint(cluster.AgentName, "-", n), node))
		for p := range 30 {
			c.Pods = append(c.Pods, pod(fmt.Sprint("shop-", (30*n+p)%1000), fmt.Sprintf("pod-%d-%d", n, p), node))
		}
	}
	c.Pods = append(c.Pods, c.SystemPods...)
	for b.Loop() {
		if found := Judge(c); len(found) < len(c.Nodes) {
			b.Fatalf("%d findings of %d nodes", len(found), len(c.Nodes))
		}
	}
}
