package allocation

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/testing/podtest"
	"github.com/mbcas/mbcas/market"
)

// TestSharedLimit: a pod with a limit of its own is one container to the market and to the lifecycle, and its containers tell
// when they started and failed. Once a container has a limit, too, the agent counts the containers, and the pod's own limit
// can still be restored.
func TestSharedLimit(t *testing.T) {
	pod := podtest.ShareLimit(podtest.Shop(), "200m", "1")
	start := metav1.Unix(1_700_000_000, 0)
	pod.Status.ContainerStatuses[0].State.Running.StartedAt, pod.Status.ContainerStatuses[0].RestartCount = start, 2
	pod.Status.ContainerStatuses[1].State.Running.StartedAt = start
	declared := recorded(pod).Status.DeclaredLimits
	c := demand.Container{Name: v1alpha1.PodLevel, ID: "u-1", Request: 200, Declared: 1000, Limit: 1000}
	want := demand.Pod{
		UID: "u-1", Budget: market.Budget(400), Weights: demand.Weights{PriorityPercent: 200},
		Containers: []demand.Container{c.Within(0, 2000)},
	}
	if diff := cmp.Diff(want, DemandPod(pod, told(pod, v1alpha1.Constraints{}), 2000)); diff != "" {
		t.Errorf("to the market:\n%s", diff)
	}
	if got := BaseBudget(pod, declared); got != 400 {
		t.Errorf("budget %v, want 400", got)
	}
	facts := Facts(pod, declared, 2000, nil)
	f := facts.Containers[0]
	if f.Name != v1alpha1.PodLevel || f.Limit != 1000 || f.InForce != 1000 || f.Settable != 210 || !f.StartedAt.Equal(start.Time) {
		t.Errorf("to the lifecycle: %+v", f)
	}
	restarts, started := 0, 0
	for _, c := range facts.Containers[1:] {
		if c.StartedAt.Equal(start.Time) {
			started++
		}
		if restarts += c.Restarts; c.Limit != 0 {
			t.Errorf("a container has a limit: %+v", c)
		}
	}
	if len(facts.Containers) != 4 || restarts != 2 || started != 2 {
		t.Errorf("the containers that restart are lost: %+v", facts.Containers)
	}

	pod.Spec.Containers[0].Resources.Limits = podtest.CPU("500m")
	agent := DemandPod(pod, told(pod, v1alpha1.Constraints{}), 2000)
	if len(agent.Containers) != 3 || agent.Containers[0].Name != "app" {
		t.Errorf("with a limit of app, the agent counts %+v", agent.Containers)
	}
	facts = Facts(pod, declared, 2000, nil)
	if limits := facts.Containers[len(facts.Containers)-1]; limits.Name != v1alpha1.PodLevel || limits.Limit != 1000 {
		t.Errorf("with a limit of app, the lifecycle has %+v", facts.Containers)
	}
}
