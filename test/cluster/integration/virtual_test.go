package integration

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/mbcas/mbcas/test/cluster/internal/must"
)

// busy runs on the virtual node.
const busy = `
apiVersion: v1
kind: Pod
metadata: {name: busy}
spec:
  terminationGracePeriodSeconds: 0
  nodeSelector: {mbcas.io/virtual: "true"}
  tolerations: [{key: mbcas.io/virtual, operator: Exists}]
  containers:
  - name: busy
    image: mbcas.io/inside:dev
    imagePullPolicy: Never
    args: [burn]
    resources: {requests: {cpu: 100m}, limits: {cpu: 200m}}
`

// A virtual node comes back after a crash, and is removed alone, with the cluster, and when its start was
// interrupted. The end-to-end tests show that its kernel follows resizes.
func TestVirtualNode(t *testing.T) {
	needNode(t)
	for _, program := range []string{"qemu-system-x86_64", "mmdebstrap", "mke2fs"} {
		if _, err := exec.LookPath(program); err != nil {
			skipOrFail(t, "no virtual node: "+err.Error())
		}
	}
	u := newUser(t)
	before := observeHost(t)
	u.run("up")
	u.loadInside() // before there is a virtual node
	u.run("node", "add", "--vm")
	if out, err := u.kubectl(pods+"---"+busy, "apply", "--filename=-"); err != nil {
		t.Fatalf("apply: %v\n%s", err, out)
	}
	u.untilPhase("inside", "Succeeded")
	u.untilPhase("busy", "Running")

	u.crash()
	u.run("up")
	u.run("status")
	u.untilPhase("busy", "Running")

	u.run("node", "remove", "mbcas-vm-1")
	if out, err := u.kubectl("", "get", "node", "mbcas-vm-1"); err == nil {
		t.Errorf("the node is still there:\n%s", out)
	}

	u.interruptedAdd("start mbcas-vm-1", "--vm")
	u.crash()
	u.run("down")
	u.checkNothingLeft(before)
}

// interruptedAdd adds a node and presses Ctrl-C as soon as a step is done.
func (u user) interruptedAdd(step string, flags ...string) {
	u.t.Helper()
	cmd := u.command(u.bin, append([]string{"node", "add"}, flags...)...)
	out, err := cmd.StdoutPipe()
	must.Succeed(u.t, err)
	must.Succeed(u.t, cmd.Start())
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), step) {
			if err := cmd.Process.Signal(os.Interrupt); err != nil {
				u.t.Error(err)
			}
		}
	}
	if err := cmd.Wait(); err == nil {
		u.t.Error("node add says that all is well although it was interrupted")
	}
}
