package e2e

import (
	"context"
	"os/exec"
	"regexp"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// virtual is the node that TestVirtualNode adds: an emulated machine with cgroup v2 and nothing else.
const virtual = "mbcas-vm"

// TestVirtualNode is TestPath on a kernel with cgroup v2. The node gets the images that were loaded before it was added.
func TestVirtualNode(t *testing.T) {
	s := start(t)
	s.install(t)
	s.addVirtualNode(t)
	// Emulated CPUs are ten times slower than real ones, so the agent needs a larger share of them while the pods spin.
	kubectl(t, "-n", system, "set", "resources", "daemonset/mbcas-agent", "--requests=cpu=400m")
	kubectl(t, "-n", system, "rollout", "status", "daemonset/mbcas-agent", "--timeout=300s")
	wait(t, 5*time.Minute, "the agent of "+virtual+" has played a round", func(ctx context.Context) (bool, string) {
		n, err := s.played(ctx)
		return n > 0, orError(err, "no round")
	})
	s.layoutIs(t, "v2")
	(&path{suite: s}).run(t)
}

// addVirtualNode adds the node, uses it for the pods of the test, and removes it after the test.
func (s *suite) addVirtualNode(t *testing.T) {
	t.Helper()
	program := cluster(t).Path
	t.Cleanup(func() {
		if out, err := exec.Command(program, "node", "remove", virtual).CombinedOutput(); err != nil {
			t.Errorf("remove the node: %v\n%s", err, out)
		}
	})
	if out, err := cluster(t, "node", "add", "--vm", virtual).CombinedOutput(); err != nil {
		t.Fatalf("add a virtual node: %v\n%s", err, out)
	}
	var node corev1.Node
	if err := s.Get(t.Context(), client.ObjectKey{Name: virtual}, &node); err != nil {
		t.Fatal(err)
	}
	s.use(node)
	s.remote = true
	info := node.Status.NodeInfo
	t.Logf("kernel %s, %s, kubelet %s", info.KernelVersion, info.ContainerRuntimeVersion, info.KubeletVersion)
}

var foundLayout = regexp.MustCompile(`"msg":"cgroup layout","version":"?(\w+)`)

// layoutIs asserts the version of cgroups that the node's agent has found.
func (s *suite) layoutIs(t *testing.T, want string) {
	t.Helper()
	var pods corev1.PodList
	if err := s.List(t.Context(), &pods, client.InNamespace(system), client.MatchingLabels{"app.kubernetes.io/component": "agent"}); err != nil {
		t.Fatal(err)
	}
	for _, pod := range pods.Items {
		if pod.Spec.NodeName != s.node {
			continue
		}
		log := kubectl(t, "-n", system, "logs", pod.Name)
		if found := foundLayout.FindStringSubmatch(log); found == nil || found[1] != want {
			t.Errorf("the agent of %s found the layout %q, want %s; its log:\n%s", s.node, found, want, log)
		}
		return
	}
	t.Errorf("no agent on %s", s.node)
}
