package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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

// The whole life of a cluster, with two crashes in it.
func TestClusterLifecycle(t *testing.T) {
	needNode(t)
	u := newUser(t)
	before := observeHost(t)

	u.run("up", "--require-node")
	u.loadInside()
	if out, err := u.kubectl(pods, "apply", "--filename=-"); err != nil {
		t.Fatalf("apply: %v\n%s", err, out)
	}
	first := u.untilPhase("idle", "Running")
	u.untilPhase("inside", "Succeeded")
	u.run("status")

	u.crash()
	if out, err := u.try("status"); err == nil || !strings.Contains(out, "kubelet") {
		t.Errorf("status after a crash: %v, want a failure that names what is down\n%s", err, out)
	}

	u.run("up")
	u.run("status")
	again := u.untilPhase("idle", "Running")
	if d := cmp.Diff(first, again); d != "" {
		t.Errorf("a pod noticed that the cluster crashed and came back (-before +after):\n%s", d)
	}
	if out := u.run("up"); !strings.Contains(out, "already running") {
		t.Error("up of a running cluster does something")
	}

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
	left, err := proc.Records{State: u.state}.Strays()
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
	image := u.command(u.bin)
	image.Args = []string{u.bin, "image", "--name=mbcas.io/inside:dev", "--output=" + archive, program}
	if out, err := image.CombinedOutput(); err != nil {
		u.t.Fatalf("image: %v\n%s", err, out)
	}
	u.run("load", archive)
}
