package integration

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mbcas/mbcas/test/cluster/internal/clean"
	"github.com/mbcas/mbcas/test/cluster/internal/config"
	"github.com/mbcas/mbcas/test/cluster/internal/proc"
)

// pods are one that stays and one that sends a request to the API server and ends.
const pods = `
apiVersion: v1
kind: Pod
metadata: {name: idle}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: idle
    image: mbcas.io/pause:dev
    imagePullPolicy: Never
    resources: {requests: {cpu: 10m}, limits: {cpu: 100m}}
---
apiVersion: v1
kind: Pod
metadata: {name: inside}
spec:
  restartPolicy: Never
  containers:
  - name: inside
    image: mbcas.io/inside:dev
    imagePullPolicy: Never
`

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

// The whole life of a cluster with two nodes and two crashes: both come back with their pods untouched,
// the second one is removed without a trace and without harm to the first, is complete although its start
// was interrupted, and is removed with the cluster.
func TestClusterLifecycle(t *testing.T) {
	needNode(t)
	u := newUser(t)
	before := observeHost(t)
	u.run("up")
	u.loadInside() // before there is a second node
	u.run("node", "add", "--system-reserved-cpu=500m")
	if out, err := u.try("node", "add", "mbcas-node-2"); err == nil || !strings.Contains(out, "exists already") {
		t.Errorf("a node of a name that is taken: %v\n%s", err, out)
	}
	if out, err := u.kubectl(pods+"---"+neighbour, "apply", "--filename=-"); err != nil {
		t.Fatalf("apply: %v\n%s", err, out)
	}
	u.untilPhase("inside", "Succeeded")
	u.untilPhase("idle", "Running")
	first := u.untilPhase("neighbour", "Running")
	if have := observeHost(t).Addresses; !slices.Contains(have, "mbcas0 10.244.0.128/32") {
		t.Errorf("the second node has no address of its own: %q", have)
	}
	ofSecond := func(dir string) bool { return strings.HasSuffix(dir, "/mbcas-nodes/mbcas-node-2/kubepods") }
	if !slices.ContainsFunc(u.cgroups(), ofSecond) {
		t.Errorf("the pods of the second node have no cgroup of their own: %q", u.cgroups())
	}

	u.run("status")

	u.crash()
	if out, err := u.try("status"); err == nil || !strings.Contains(out, "kubelet") {
		t.Errorf("status after a crash: %v, want a failure that names what is down\n%s", err, out)
	}
	u.run("up")
	u.run("status")
	if out := u.run("up"); !strings.Contains(out, "already running") {
		t.Error("up of a running cluster does something")
	}
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

// checkNothingLeft compares the machine with what it was like before the cluster.
func (u user) checkNothingLeft(before hostState) {
	t := u.t
	t.Helper()
	if d := cmp.Diff(before, observeHost(t).withSettingsOf(before)); d != "" {
		t.Errorf("down left something, or took something that was there before (-before +after):\n%s", d)
	}
	left, err := proc.All(u.state)
	if err != nil || len(left) > 0 {
		t.Errorf("processes after down: %v, %v", left, err)
	}
	if _, err := os.Stat(u.state); !os.IsNotExist(err) {
		t.Errorf("the state folder after down: %v", err)
	}
}

func (u user) loadInside() {
	u.t.Helper()
	dir := u.t.TempDir()
	program, archive := filepath.Join(dir, "inside"), filepath.Join(dir, "inside.tar")
	u.goBuild(program, "./inside")
	u.run("image", "--name=mbcas.io/inside:dev", "--output="+archive, program)
	u.run("load", archive)
}

// cgroups are those of the nodes beside the first.
func (u user) cgroups() []string {
	u.t.Helper()
	all, err := clean.Cgroups(config.AddedNodes)
	if err != nil {
		u.t.Fatal(err)
	}
	for _, dir := range slices.Clone(all) {
		found, _ := filepath.Glob(filepath.Join(dir, "*/kubepods"))
		all = append(all, found...)
	}
	return all
}
