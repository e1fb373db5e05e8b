package e2e

import (
	"fmt"
	"os/exec"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/cpu"
)

const (
	unlimited     = "e2e-unlimited"
	defaultLimit  = "mbcas.io/default-limit"
	defaultPolicy = root + "/config/components/default-limits/policy.yaml"
)

// defaultLimits is a namespace of pods without CPU limits, with the component default-limits.
type defaultLimits struct {
	*suite
	size cpu.Milli // the default limit: the CPUs of the node
	pods map[string]*corev1.Pod
}

// TestDefaultLimits: in a namespace of pods without CPU limits, a pod that saturates is capped for a service, and when
// the policy and MBCAS are gone, nothing about the pods has changed but that they have limits that bind nothing.
func TestDefaultLimits(t *testing.T) {
	s := &defaultLimits{suite: start(t)}
	s.open(t)
	for _, step := range []struct {
		name string
		run  func(*defaultLimits, *testing.T)
	}{
		{"NewPodsGetTheLimit", (*defaultLimits).newPodsGetTheLimit},
		{"ASaturatingPodIsCapped", (*defaultLimits).aSaturatingPodIsCapped},
		{"NothingElseIsLeft", (*defaultLimits).nothingElseIsLeft},
	} {
		if !t.Run(step.name, func(t *testing.T) { step.run(s, t) }) {
			t.Fatalf("the test ends at %s; allocations:%s", step.name, s.allocations(t, unlimited))
		}
	}
}

// open installs the policy, labels the namespace and starts its pods.
func (s *defaultLimits) open(t *testing.T) {
	var node corev1.Node
	if err := s.Get(t.Context(), client.ObjectKey{Name: s.node}, &node); err != nil {
		t.Fatal(err)
	}
	s.size = cpu.Milli(node.Status.Capacity.Cpu().MilliValue())
	s.namespace(t, unlimited, "enforce")
	kubectl(t, "label", "namespace", unlimited, fmt.Sprintf("%s=%d", defaultLimit, s.size/cpu.Core))
	kubectl(t, "apply", "-f", defaultPolicy)
	t.Cleanup(func() {
		out, err := exec.Command("kubectl", "delete", "--ignore-not-found", "-f", defaultPolicy).CombinedOutput()
		if err != nil {
			t.Errorf("delete the policy: %v: %s", err, out)
		}
	})
	wait(t, time.Minute, "the policy is in force", func() (bool, string) {
		p, err := s.dry(t)
		return err == nil && limit(p) == s.size, orError(err, "a new pod has the limit %v", limit(p))
	})
	s.deploy(t, unlimited, "web", resources{"400m", "", "32Mi"})
	s.deploy(t, unlimited, "hog", resources{"100m", "", "32Mi"})
	s.bare(t, unlimited, "besteffort", resources{}, nil)
	s.bare(t, unlimited, "no-request", resources{"", "", "32Mi"}, nil)
	s.pods = s.suite.pods(t, unlimited)
}

// dry is a new pod with a CPU request, as the API server would store it. Right after its namespace is made, it refuses
// pods.
func (s *defaultLimits) dry(t *testing.T) (*corev1.Pod, error) {
	t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: unlimited, Name: "dry"}}
	p.Spec = s.template("dry", resources{"10m", "", "32Mi"}).Spec
	return p, s.Create(t.Context(), p, client.DryRunAll)
}

// newPodsGetTheLimit: pods with a CPU request have the limit, also in the kernel, and no other pod has one.
func (s *defaultLimits) newPodsGetTheLimit(t *testing.T) {
	for name, want := range map[string]cpu.Milli{"web": s.size, "hog": s.size, "besteffort": 0, "no-request": 0} {
		p := s.pods[name]
		if q := s.quota(t, p); limit(p) != want || q != want {
			t.Errorf("%s has a limit of %v and a quota of %v, want %v", name, limit(p), q, want)
		}
		if label := p.Labels[defaultLimit]; (label != "") != (want > 0) {
			t.Errorf("%s has the label %q", name, label)
		}
		class := corev1.PodQOSBurstable
		if name == "besteffort" {
			class = corev1.PodQOSBestEffort
		}
		if p.Status.QOSClass != class {
			t.Errorf("%s is %s, want %s", name, p.Status.QOSClass, class)
		}
	}
}

// aSaturatingPodIsCapped: beside a service that uses a CPU, a pod with a quarter of its request that would use all is
// capped, and the service keeps what it uses.
func (s *defaultLimits) aSaturatingPodIsCapped(t *testing.T) {
	spin(t, s.pods["web"], 1)
	spin(t, s.pods["hog"], 2)
	s.reaches(t, 4*time.Minute, s.pods["hog"], "is capped at less than half of the node", func(q cpu.Milli) bool {
		return q < s.ceiling/2
	})
	if q := s.quota(t, s.pods["web"]); q < 900 {
		t.Errorf("the service has a quota of %v, less than the CPU that it uses", q)
	}
	for _, p := range s.pods {
		if p.Labels[defaultLimit] != "" {
			spin(t, p, 0)
		}
	}
}

// nothingElseIsLeft: with the policy and MBCAS removed, the pods are those that they were, with the limits from their
// creation, and a new pod has none.
func (s *defaultLimits) nothingElseIsLeft(t *testing.T) {
	uninstall(t)
	for name, before := range s.pods {
		now := s.pod(t, before)
		if q := s.quota(t, now); limit(now) != limit(before) || q != limit(before) {
			t.Errorf("%s has a limit of %v and a quota of %v, want %v", name, limit(now), q, limit(before))
		}
		if untouched(now) != untouched(before) {
			t.Errorf("%s has changed:\n%s\nbefore:\n%s", name, untouched(now), untouched(before))
		}
		for _, c := range now.Status.ContainerStatuses {
			if c.RestartCount > 0 {
				t.Errorf("%s, container %s has restarted", name, c.Name)
			}
		}
	}
	wait(t, time.Minute, "new pods have no limit", func() (bool, string) {
		p, err := s.dry(t)
		return err == nil && limit(p) == 0 && p.Labels[defaultLimit] == "", orError(err, "%v", limit(p))
	})
}
