package e2e

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kube"
)

// The fleet is a workload of four replicas, each of which is to be lowered from its declared limit
// to its ceiling. In its namespace a quarter of them, one, is resized first.
const (
	fleet         = "e2e-canary"
	fleetReplicas = 4
	fleetDeclared = cpu.Milli(200)
	fleetCeiling  = cpu.Milli(150) // one step from the declared limit
)

// startFleet starts the fleet, and waits until every replica is Ready. Their ceilings are there from the start, so the
// first resize is the decrease that the step harms, and no earlier one has begun a trial.
func (p *platform) startFleet(t *testing.T) (replicas []corev1.Pod) {
	t.Helper()
	kubectl(t, "annotate", "namespace", fleet, kube.CanaryKey+"=25")
	needs := resources{"20m", fleetDeclared.String(), "32Mi"}
	d := p.deployment(fleet, "fleet", needs, func(t *corev1.PodTemplateSpec) {
		t.Annotations = map[string]string{kube.MaxCPUKey: fleetCeiling.String()}
		probe := t.Spec.Containers[0].ReadinessProbe
		probe.FailureThreshold, probe.TimeoutSeconds = 2, 10 // a slow answer is no failure
	})
	d.Spec.Replicas = new(int32(fleetReplicas))
	p.create(t, d)
	wait(t, 2*time.Minute, "every replica of the fleet is Ready", func() (bool, string) {
		replicas = p.list(t, fleet, nil)
		ready := 0
		for i := range replicas {
			if isReady(&replicas[i]) {
				ready++
			}
		}
		return ready == fleetReplicas && len(replicas) == fleetReplicas, fmt.Sprintf("%d of %d", ready, len(replicas))
	})
	return replicas
}

// canaryOf waits until one replica is lowered, and returns it and the others, of which none may be.
func (p *platform) canaryOf(t *testing.T, replicas []corev1.Pod) (canary *corev1.Pod, others []*corev1.Pod) {
	t.Helper()
	wait(t, 3*time.Minute, "one replica is lowered", func() (bool, string) {
		canary, others = nil, nil
		for i := range replicas {
			switch pod := &replicas[i]; {
			case p.quota(t, pod) == fleetDeclared:
				others = append(others, pod)
			case canary != nil:
				t.Fatalf("%s and %s are both lowered; allocations:%s", canary.Name, pod.Name, p.allocations(t, fleet))
			default:
				canary = pod
			}
		}
		return canary != nil, p.allocations(t, fleet)
	})
	return canary, others
}

// fleetIs asserts that the kernel enforces the declared limit of these replicas.
func (p *platform) fleetIs(t *testing.T, when string, replicas []*corev1.Pod) {
	t.Helper()
	for _, pod := range replicas {
		if q := p.quota(t, pod); q != fleetDeclared {
			t.Errorf("%s: %s has %v, want its declared %v", when, pod.Name, q, fleetDeclared)
		}
	}
}

// onlyTheCanaryIsHarmed: of four replicas that are to be lowered one is, and the others wait for
// it. When it ceases to be Ready it has its limit from before again, the workload stops, and no
// other replica has ever been resized.
func (p *platform) onlyTheCanaryIsHarmed(t *testing.T) {
	replicas := p.startFleet(t)
	defer kubectl(t, "-n", fleet, "delete", "deployment", "fleet")
	for i := range replicas {
		spin(t, &replicas[i], 1) // each demands more than it has
	}
	canary, others := p.canaryOf(t, replicas)
	for _, pod := range others {
		p.waitAllocation(t, time.Minute, pod, "waits for the canary", func(pa *v1alpha1.PodAllocation) bool {
			return pa.Status.Phase == v1alpha1.PhaseNotApplied && pa.Status.Reason == string(reasons.WaitingForCanary)
		})
	}
	p.fleetIs(t, "while the canary is watched", others)

	setLoad(t, canary, map[string]any{"threads": 1, "unhealthy": true})
	p.has(t, time.Minute, canary, fleetDeclared)
	for i := range replicas {
		p.waitAllocation(t, time.Minute, &replicas[i], "its workload stopped", func(pa *v1alpha1.PodAllocation) bool {
			return pa.Status.Phase == v1alpha1.PhaseRestored && pa.Status.Reason == string(reasons.CanaryStopped) &&
				!pa.Status.CanaryStoppedTime.IsZero()
		})
	}
	spin(t, canary, 1) // healthy again
	p.rounds(t, 15)
	p.fleetIs(t, "after the stop", append(others, canary))

	resizes := p.resizes(t, fleet)
	for _, pod := range others {
		if len(resizes[pod.Name]) > 0 {
			t.Errorf("%s, which is no canary, was resized: %+v", pod.Name, resizes[pod.Name])
		}
	}
	all := resizes[canary.Name]
	if len(all) < 2 || all[0].to > fleetCeiling || all[len(all)-1].to != fleetDeclared {
		t.Errorf("resizes of the canary: %+v; want it lowered to %v or less, and at last at its declared %v",
			all, fleetCeiling, fleetDeclared)
	}
}
