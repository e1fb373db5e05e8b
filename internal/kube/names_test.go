package kube

import (
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// TestNameOfNode: every node name gives a valid name of its own, and the object says which node it is.
func TestNameOfNode(t *testing.T) {
	long := strings.Repeat("a", 62) + "."
	names := map[string]bool{}
	for _, node := range []string{
		"node-1", strings.Repeat(long, 3) + strings.Repeat("a", 52), strings.Repeat(long, 4) + "b", strings.Repeat(long, 4) + "c",
		strings.Repeat(long, 3) + strings.Repeat("-", 30) + strings.Repeat("a", 30) + ".b",
	} {
		for _, prefix := range []string{LedgerPrefix, "mbcas-"} {
			name := NameOfNode(prefix, node)
			if why := validation.IsDNS1123Subdomain(name); len(name) > maxName || names[name] || len(why) > 0 && !strings.Contains(node, "---") {
				t.Errorf("node %s (%d characters): name %s (%d): %v", node, len(node), name, len(name), why)
			}
			names[name] = true
			lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}
			lease.OwnerReferences = []metav1.OwnerReference{{Kind: "Node", Name: node}}
			if got, ok := NodeOfName(prefix, lease); !ok || got != node {
				t.Errorf("%s is of node %s, want %s", name, got, node)
			}
			lease.OwnerReferences[0].Name = "another"
			if got, _ := NodeOfName(prefix, lease); got == "another" {
				t.Errorf("%s claims to be of another node", name)
			}
		}
	}
}

// TestAgentLease: the Lease of every node has a name of its own, which says the node.
func TestAgentLease(t *testing.T) {
	for _, node := range []string{"n", strings.Repeat("a", 241), strings.Repeat("a", 242), strings.Repeat("a", 253)} {
		name := AgentLease(node)
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if got, ok := AgentLeaseNode(lease); !ok || got != node || len(name) > maxName {
			t.Errorf("node of %d characters: Lease of %d characters is of the node %s, %v", len(node), len(name), got, ok)
		}
	}
	for _, name := range []string{LeaderLease, "", agentLease, "kube-scheduler"} {
		if node, ok := AgentLeaseNode(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}); ok {
			t.Errorf("Lease %q is of the agent of node %q", name, node)
		}
	}
}
