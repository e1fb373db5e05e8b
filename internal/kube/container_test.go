package kube

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/testing/podtest"
)

// TestContainerStates: what the kubelet reports of a container says whether it runs, has completed,
// or failed to start. TrimPod keeps what that depends on.
func TestContainerStates(t *testing.T) {
	const always, onFailure, never = corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	waits := func(reason string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
	}
	ended := func(code int32, reason string) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason}}
	}
	own := func(policy corev1.RestartPolicy) func(*corev1.Container) {
		return func(c *corev1.Container) { c.RestartPolicy = new(corev1.ContainerRestartPolicy(policy)) }
	}
	rule := func(o corev1.ContainerRestartRuleOnExitCodesOperator, code int32) func(*corev1.Container) {
		codes := &corev1.ContainerRestartRuleOnExitCodes{Operator: o, Values: []int32{code}}
		return func(c *corev1.Container) {
			c.RestartPolicyRules = []corev1.ContainerRestartRule{{Action: corev1.ContainerRestartRuleActionRestart, ExitCodes: codes}}
		}
	}
	for name, c := range map[string]struct {
		state, last             corev1.ContainerState
		started                 *bool
		policy                  corev1.RestartPolicy
		change                  func(*corev1.Container)
		sidecar                 bool
		runs, completed, failed bool
	}{
		"no status of a state":             {},
		"runs":                             {state: running, runs: true},
		"runs, its start-up probe fails":   {state: running, started: new(false), runs: true},
		"a sidecar runs":                   {state: running, started: new(true), sidecar: true, runs: true},
		"a sidecar has not started":        {state: running, started: new(false), sidecar: true},
		"a sidecar of which is not said":   {state: running, sidecar: true},
		"a back-off":                       {state: waits("CrashLoopBackOff"), last: ended(1, "Error"), policy: always},
		"an image pull":                    {state: waits("ImagePullBackOff")},
		"containerd cannot start it":       {state: waits("RunContainerError"), last: ended(128, "StartError"), failed: true},
		"the back-off after that":          {state: waits("CrashLoopBackOff"), last: ended(128, "StartError"), failed: true},
		"CRI-O cannot create it":           {state: waits("CreateContainerError"), failed: true},
		"its configuration is missing":     {state: waits("CreateContainerConfigError")},
		"it runs after that":               {state: running, last: ended(128, "StartError"), runs: true},
		"ended, and starts again":          {state: ended(0, "Completed"), policy: always},
		"completed":                        {state: ended(0, "Completed"), policy: onFailure, completed: true},
		"failed, and starts again":         {state: ended(1, "Error"), policy: onFailure},
		"failed for good":                  {state: ended(1, "Error"), policy: never, completed: true},
		"its own policy starts it again":   {state: ended(0, "Completed"), policy: never, change: own(always)},
		"its own policy does not":          {state: ended(1, "Error"), policy: always, change: own(never), completed: true},
		"a rule for its exit code":         {state: ended(42, "Error"), policy: never, change: rule("In", 42)},
		"a rule for another":               {state: ended(1, "Error"), policy: never, change: rule("In", 42), completed: true},
		"a rule for all but another":       {state: ended(1, "Error"), policy: never, change: rule("NotIn", 42)},
		"a rule for all but its exit code": {state: ended(42, "Error"), policy: never, change: rule("NotIn", 42), completed: true},
	} {
		pod := podtest.Shop()
		pod.Spec.RestartPolicy = c.policy
		spec, status := &pod.Spec.Containers[0], &pod.Status.ContainerStatuses[1]
		if c.sidecar {
			spec, status = &pod.Spec.InitContainers[1], &pod.Status.InitContainerStatuses[0]
		}
		status.State, status.LastTerminationState, status.Started = c.state, c.last, c.started
		if c.change != nil {
			c.change(spec)
		}
		for _, trimmed := range []bool{false, true} {
			if trimmed {
				TrimPod(pod)
			}
			got, found := Find(pod, spec.Name)
			if !found || got.Sidecar != c.sidecar || got.Runs() != c.runs || got.Completed(pod.Spec.RestartPolicy) != c.completed || got.FailedStart() != c.failed {
				t.Errorf("%s (trimmed %v): found %v, sidecar %v, runs %v, completed %v, failed %v", name, trimmed, found, got.Sidecar,
					got.Runs(), got.Completed(pod.Spec.RestartPolicy), got.FailedStart())
			}
		}
	}
}

// TestPodQuota: the quota of a pod's cgroup is the highest of its phases, and there is none where a
// container has no limit.
func TestPodQuota(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	c := func(name, limit string) corev1.Container { return podtest.Container(name, "10m", limit) }
	sidecar := func(name, limit string) corev1.Container {
		s := c(name, limit)
		s.RestartPolicy = &always
		return s
	}
	for name, tt := range map[string]struct {
		init, containers []corev1.Container
		change           func(*corev1.PodSpec)
		want             cpu.Milli
	}{
		"one container":                      {nil, []corev1.Container{c("a", "500m")}, nil, 500},
		"their sum":                          {nil, []corev1.Container{c("a", "500m"), c("b", "1")}, nil, 1500},
		"a sidecar counts":                   {[]corev1.Container{sidecar("s", "200m")}, []corev1.Container{c("a", "500m")}, nil, 700},
		"a lower init container":             {[]corev1.Container{c("i", "400m")}, []corev1.Container{c("a", "500m")}, nil, 500},
		"a higher init container":            {[]corev1.Container{c("i", "2")}, []corev1.Container{c("a", "500m")}, nil, 2000},
		"an init container beside a sidecar": {[]corev1.Container{sidecar("s", "200m"), c("i", "2")}, []corev1.Container{c("a", "500m")}, nil, 2200},
		"a container without a limit":        {nil, []corev1.Container{c("a", "500m"), c("b", "")}, nil, 0},
		"an init container without one":      {[]corev1.Container{c("i", "")}, []corev1.Container{c("a", "500m")}, nil, 0},
		"overhead":                           {nil, []corev1.Container{c("a", "500m")}, func(s *corev1.PodSpec) { s.Overhead = podtest.Amounts("cpu", "100m") }, 600},
		"claims": {nil, []corev1.Container{c("a", "500m")}, func(s *corev1.PodSpec) {
			s.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}}
		}, 0},
	} {
		pod := podtest.Shop()
		pod.Spec.InitContainers, pod.Spec.Containers = tt.init, tt.containers
		if tt.change != nil {
			tt.change(&pod.Spec)
		}
		whole := PodQuota(pod)
		TrimPod(pod)
		if got := PodQuota(pod); whole != tt.want || got != tt.want {
			t.Errorf("%s: %v, trimmed %v, want %v", name, whole, got, tt.want)
		}
	}
}
