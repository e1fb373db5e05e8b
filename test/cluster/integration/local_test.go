package integration

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mbcas/mbcas/test/cluster/internal/clean"
)

// neighbour runs on the second node.
const neighbour = `
apiVersion: v1
kind: Pod
metadata: {name: neighbour}
spec:
  terminationGracePeriodSeconds: 0
  nodeSelector: {kubernetes.io/hostname: mbcas-node-2}
  containers:
  - name: neighbour
    image: mbcas.io/inside:dev
    imagePullPolicy: Never
    args: [burn]
    resources: {requests: {cpu: 10m}, limits: {cpu: 100m}}
`

// A second node of this machine is one like the first: it comes back after a crash with its pods untouched, goes alone without a trace
// and without harm to the first, is whole although its start was interrupted, and goes with the cluster.
func TestSecondNode(t *testing.T) {
	needNode(t)
	u := newUser(t)
	before := observeHost(t)
	u.run("up", "--require-node")
	u.loadInside() // before there is a second node
	u.run("node", "add", "--system-reserved-cpu=500m")
	if out, err := u.try("node", "add", "mbcas-node-2"); err == nil || !strings.Contains(out, "exists already") {
		t.Errorf("a node of a name that is taken: %v\n%s", err, out)
	}
	if out, err := u.kubectl(pods+"---"+neighbour, "apply", "--filename=-"); err != nil {
		t.Fatalf("apply: %v\n%s", err, out)
	}
	u.untilPhase("idle", "Running")
	first := u.untilPhase("neighbour", "Running")
	if have := observeHost(t).Addresses; !slices.Contains(have, "mbcas0 10.244.0.128/32") {
		t.Errorf("the second node has no address of its own: %q", have)
	}
	if !slices.ContainsFunc(u.cgroups(), func(dir string) bool { return strings.HasSuffix(dir, "/"+clean.LocalNodes+"/mbcas-node-2/kubepods") }) {
		t.Errorf("the pods of the second node have no cgroup of their own: %q", u.cgroups())
	}

	u.crash()
	u.run("up")
	u.run("status")
	if d := cmp.Diff(first, u.untilPhase("neighbour", "Running")); d != "" {
		t.Errorf("a pod noticed that the cluster crashed and came back (-before +after):\n%s", d)
	}

	idle := u.untilPhase("idle", "Running")
	u.run("node", "remove", "mbcas-node-2")
	if out, err := u.kubectl("", "get", "node", "mbcas-node-2"); err == nil {
		t.Errorf("the node is still there:\n%s", out)
	}
	if left := u.cgroups(); len(left) > 0 {
		t.Errorf("cgroups of the node that was removed: %q", left)
	}
	if have := observeHost(t).Addresses; slices.Contains(have, "mbcas0 10.244.0.128/32") {
		t.Errorf("the address of the node that was removed is still there: %q", have)
	}
	u.run("status")
	if d := cmp.Diff(idle, u.untilPhase("idle", "Running")); d != "" {
		t.Errorf("a pod of the first node noticed that the second went (-before +after):\n%s", d)
	}

	u.interruptedAdd("containerd-mbcas-node-2")
	u.run("up")
	if out, err := u.kubectl(strings.ReplaceAll(neighbour, "neighbour", "late"), "apply", "--filename=-"); err != nil {
		t.Fatalf("apply: %v\n%s", err, out)
	}
	u.untilPhase("late", "Running")
	u.crash()
	u.run("down")
	u.checkNothingLeft(before)
}

// cgroups are those of the nodes beside the first.
func (u user) cgroups() []string {
	u.t.Helper()
	mounts, err := clean.Mounts()
	if err != nil {
		u.t.Fatal(err)
	}
	var all []string
	for _, m := range mounts {
		if m.Type == "cgroup" || m.Type == "cgroup2" {
			for _, pattern := range []string{"", "*/kubepods"} {
				found, _ := filepath.Glob(filepath.Join(m.Point, clean.LocalNodes, pattern))
				all = append(all, found...)
			}
		}
	}
	return all
}
