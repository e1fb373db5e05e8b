package e2e

import (
	"regexp"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/internal/testing/must"
)

// virtual is the node that TestVirtualNode adds: an emulated machine with cgroup v2 and nothing else.
const virtual = "mbcas-vm"

// TestVirtualNode is TestPath on a kernel with cgroup v2, after containers were killed while they were
// raised. The node gets the images that were loaded before it was added.
func TestVirtualNode(t *testing.T) {
	s := start(t, func(s *suite) { s.useVirtualNode(t) })
	// Its CPUs are slower than real ones, so the agent needs a larger share of them while the pods
	// spin.
	kubectl(t, "-n", system, "set", "resources", "daemonset/mbcas-agent", "--requests=cpu=400m")
	s.rolledOut(t, "daemonset/mbcas-agent")
	s.wait(t, time.Minute, "the agent of "+virtual+" has played a round", func() (bool, string) {
		n, err := s.played(t)
		return n > 0, orError(err, "no round")
	})
	s.layoutIs(t, "v2")
	if !t.Run("KilledAfterAResize", s.killedAfterAResize) {
		t.Fatalf("allocations:%s", s.allocations(t, starting+"-0"))
	}
	(&path{suite: s}).run(t)
}

// useVirtualNode adds the node and uses it for the pods of the test.
func (s *suite) useVirtualNode(t *testing.T) {
	t.Helper()
	s.slower = 5 // its CPUs are emulated at a tenth of the speed, and part of the work runs elsewhere
	s.addNode(t, virtual, "--vm")
	var node corev1.Node
	must.Succeed(t, s.Get(t.Context(), client.ObjectKey{Name: virtual}, &node))
	s.use(node)
	s.remote = true
	info := node.Status.NodeInfo
	t.Logf("kernel %s, %s, kubelet %s", info.KernelVersion, info.ContainerRuntimeVersion, info.KubeletVersion)
}

var foundLayout = regexp.MustCompile(`"msg":"cgroup layout","version":"?(\w+)`)

// layoutIs asserts the version of cgroups that the node's agent has found.
func (s *suite) layoutIs(t *testing.T, want string) {
	t.Helper()
	agent := s.agent(t)
	if agent == nil {
		t.Fatalf("no agent on %s", s.node)
	}
	log := kubectl(t, "-n", system, "logs", agent.Name)
	if found := foundLayout.FindStringSubmatch(log); found == nil || found[1] != want {
		t.Errorf("the agent of %s found the layout %q, want %s; its log:\n%s", s.node, found, want, log)
	}
}
