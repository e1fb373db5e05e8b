package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
)

const (
	wholes        = "e2e-wholes"
	declaredWhole = cpu.Milli(300)
)

// TestPodLevelLimits: on a real kubelet, a pod of two containers that share its own limit is raised by it, in the
// quotas of its cgroup and of its containers, while nothing else of it changes; and returns to it exactly. A pod with
// limits of both kinds is left alone.
func TestPodLevelLimits(t *testing.T) {
	s := start(t)
	controllerFlag(t, "--pod-level-resources")
	s.namespace(t, wholes, "enforce")
	share := func(p *corev1.PodTemplateSpec) {
		own := resources{"", declaredWhole.String(), ""}.kubernetes()
		own.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("60m")}
		p.Spec.Resources = &own
	}
	second := func(limit string) func(*corev1.PodTemplateSpec) {
		return func(p *corev1.PodTemplateSpec) {
			c := part("second", 8081, resources{"20m", "", "32Mi"})
			if limit != "" {
				c.Resources.Limits[corev1.ResourceCPU] = resource.MustParse(limit)
			}
			p.Spec.Containers = append(p.Spec.Containers, c)
		}
	}
	s.deploy(t, wholes, "shared", resources{"20m", "", "32Mi"}, share, second(""))
	s.deploy(t, wholes, "both", resources{"20m", "", "32Mi"}, share, second("100m"))
	pods := s.pods(t, wholes)
	shared, both := pods["shared"], pods["both"]
	if shared.Status.Resources == nil {
		t.Fatal("the kubelet reports no resources of the pod: it needs Kubernetes 1.36 or later")
	}
	if q := quotaOfPod(t, shared); q != declaredWhole {
		t.Fatalf("the pod's cgroup has a quota of %v, want %v", q, declaredWhole)
	}

	s.raise(t, 90*time.Second, shared) // in the quota of its first container
	wait(t, time.Minute, "the quota of the pod is that of its containers", func() (bool, string) {
		pod, first, other := quotaOfPod(t, shared), quotaOf(t, shared, "load"), quotaOf(t, shared, "second")
		return pod == first && pod == other, orError(nil, "pod %v, containers %v and %v", pod, first, other)
	})
	pa := s.inPhase(t, shared, v1alpha1.PhaseApplied)
	want := []v1alpha1.ContainerLimit{{Name: v1alpha1.PodLevel, CPULimit: declaredWhole}}
	if got := pa.Status.DeclaredLimits; !slices.Equal(got, want) {
		t.Errorf("declared limits %v, want %v", got, want)
	}
	if now, was := untouched(s.pod(t, shared)), untouched(shared); now != was {
		t.Errorf("more than its own CPU limit changed:\n%s\nwas\n%s", now, was)
	}
	if pa, err := s.allocation(t, both); err == nil {
		t.Errorf("managed with limits of both kinds: %s; want %s", summary(pa), reasons.PodLevelAndContainerLimits)
	}

	s.setMode(t, wholes, "off")
	s.has(t, time.Minute, shared, declaredWhole)
	wait(t, time.Minute, "the pod has its declared limit", func() (bool, string) {
		q, now := quotaOfPod(t, shared), s.pod(t, shared).Spec.Resources.Limits.Cpu()
		return q == declaredWhole && now.MilliValue() == int64(declaredWhole),
			orError(nil, "quota %v, limit %s", q, now)
	})
	uninstall(t)
}

// quotaOfPod is the CPU limit that the kernel enforces on the pod's own cgroup, which is above that of its containers.
func quotaOfPod(t *testing.T, pod *corev1.Pod) cpu.Milli {
	t.Helper()
	file := cgroupOf(t, pod, pod.Spec.Containers[0].Name).QuotaFile()
	text, err := os.ReadFile(filepath.Join(filepath.Dir(filepath.Dir(file)), filepath.Base(file)))
	if err != nil {
		t.Fatalf("pod %s: %v", pod.Name, err)
	}
	return quotaIn(t, string(text))
}
