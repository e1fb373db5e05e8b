package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/testing/must"
)

// openShapes starts a pod that has every kind of container there is, and one with limits below what the kernel can do.
func (p *platform) openShapes(t *testing.T) {
	p.deploy(t, shapes, "zoo", resources{"20m", "33m", "32Mi"}, func(t *corev1.PodTemplateSpec) {
		always := corev1.ContainerRestartPolicyAlways
		migrate := part("migrate", 0, resources{"20m", "200m", "32Mi"})
		migrate.Args = []string{"--once=10000000"}
		proxy := part("proxy", 8081, resources{"10m", "50m", "32Mi"})
		proxy.RestartPolicy = &always
		t.Spec.InitContainers = []corev1.Container{migrate, proxy}
		t.Spec.Containers = append(t.Spec.Containers, part("unlimited", 8082, resources{"5m", "", "32Mi"}))
	})
	p.deploy(t, shapes, "tiny", resources{"1m", "5m", "32Mi"})
}

// declaredShapes are the CPU limits in force as they were declared. The kernel takes no quota below
// 1 ms, which is 10m.
var declaredShapes = map[string]map[string]cpu.Milli{
	"zoo":  {"load": 33, "proxy": 50},
	"tiny": {"load": 10},
}

// everyKindOfContainer: on the real kubelet, every limited container that runs is raised, sidecars too,
// and in the kernel; nothing else of the pod changes, and nothing restarts.
func (p *platform) everyKindOfContainer(t *testing.T) {
	p.shapes = p.pods(t, shapes)
	for _, pod := range p.shapes {
		p.raise(t, 90*time.Second, pod)
	}
	// A container that demands nothing may stay as it is, where the others have all that the node has left.
	p.setLoad(t, p.shapes["zoo"], 8081, map[string]any{"threads": 1})
	p.shapesReach(t, "more than was declared", func(pod, container string, q cpu.Milli) bool {
		return q > 2*declaredShapes[pod][container]
	})
	p.setLoad(t, p.shapes["zoo"], 8081, map[string]any{"threads": 0})

	zoo := p.pod(t, p.shapes["zoo"])
	if q := quotaOf(t, zoo, "unlimited"); q != 0 {
		t.Errorf("the container without a limit has a quota of %v", q)
	}
	if s := zoo.Status.InitContainerStatuses[0]; s.State.Terminated == nil {
		t.Errorf("the init container has not finished: %+v", s.State)
	}
	want := []v1alpha1.ContainerLimit{{Name: "load", CPULimit: 33}, {Name: "proxy", CPULimit: 50}}
	if got := p.inPhase(t, zoo, v1alpha1.PhaseApplied).Status.DeclaredLimits; !slices.Equal(got, want) {
		t.Errorf("declared limits %v, want %v", got, want)
	}

	before := p.atRest(t, shapes, 12)
	p.debug(t, zoo)
	p.rounds(t, 12) // more than a new container is watched for
	if now := p.count(t, shapes); now != before {
		t.Errorf("%d resizes after an ephemeral container came", now-before)
	}
	for name, pod := range p.shapes {
		if now, was := untouched(p.pod(t, pod)), untouched(pod); now != was {
			t.Errorf("%s: more than CPU limits changed:\n%s\nwas\n%s", name, now, was)
		}
	}
}

// shapesReach waits until the kernel enforces what is wanted of every container with a declared limit.
func (p *platform) shapesReach(t *testing.T, want string, is func(pod, container string, q cpu.Milli) bool) {
	t.Helper()
	for name, containers := range declaredShapes {
		p.wait(t, 90*time.Second, name+" has its limits in the kernel", func() (bool, string) {
			pa, err := p.allocation(t, p.shapes[name])
			for c := range containers {
				if q := quotaOf(t, p.shapes[name], c); !is(name, c, q) {
					return false, orError(err, "%s has %v, want %s; %s", c, q, want, summary(pa))
				}
			}
			return true, ""
		})
	}
}

// debug adds an ephemeral container, as kubectl debug does, and waits until it runs.
func (p *platform) debug(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	pod = p.pod(t, pod)
	c := part("debug", 8083, resources{})
	common := corev1.EphemeralContainerCommon{
		Name: c.Name, Image: c.Image, ImagePullPolicy: c.ImagePullPolicy, Args: c.Args,
	}
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: common}}
	must.Succeed(t, p.SubResource("ephemeralcontainers").Update(t.Context(), pod))
	p.wait(t, time.Minute, "the ephemeral container runs", func() (bool, string) {
		s := p.pod(t, pod).Status.EphemeralContainerStatuses
		return len(s) == 1 && s[0].State.Running != nil, fmt.Sprintf("%+v", s)
	})
}

// restoreShapes: every container gets back exactly what was declared.
func (p *platform) restoreShapes(t *testing.T) {
	p.setMode(t, shapes, "restore")
	p.shapesReach(t, "what was declared", func(pod, container string, q cpu.Milli) bool {
		return q == declaredShapes[pod][container]
	})
	for name, want := range map[string]cpu.Milli{"zoo": 33, "tiny": 5} {
		p.inPhase(t, p.shapes[name], v1alpha1.PhaseRestored)
		if got := limit(p.pod(t, p.shapes[name])); got != want {
			t.Errorf("%s has a limit of %v, declared %v", name, got, want)
		}
	}
}
