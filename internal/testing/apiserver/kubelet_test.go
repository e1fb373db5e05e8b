package apiserver_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

// TestKubelet tells one pod's life: it starts, is resized, is deferred, and goes.
func TestKubelet(t *testing.T) {
	s := apiserver.Start(t)
	k := s.Kubelet(t, "kubelet")
	pod := k.Run(t, apiserver.Pod(s.Namespace(t), "web", apiserver.Container("app", "100m", "200m")))
	if pod.Status.QOSClass != corev1.PodQOSBurstable {
		t.Errorf("QoS class %q, want Burstable", pod.Status.QOSClass)
	}
	resize(t, s, pod, "300m")
	pod = apiserver.WaitFor(t, s.Client, pod, "at 300m", at("300m"))

	k.Answer(pod, apiserver.Defer)
	resize(t, s, pod, "400m")
	pod = apiserver.WaitFor(t, s.Client, pod, "deferred", func(p *corev1.Pod) bool {
		c := resizeCondition(p)
		return c != nil && c.Reason == corev1.PodReasonDeferred && c.ObservedGeneration == p.Generation
	})
	if got := pod.Status.ContainerStatuses[0].Resources.Limits.Cpu().String(); got != "300m" {
		t.Errorf("while deferred the status says %s, want the old 300m", got)
	}

	k.Answer(pod, apiserver.Obey)
	pod = apiserver.WaitFor(t, s.Client, pod, "at 400m without a resize condition", func(p *corev1.Pod) bool {
		return at("400m")(p) && resizeCondition(p) == nil
	})
	if err := s.Client.Delete(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	apiserver.WaitGone(t, s.Client, pod)
}

func resize(t *testing.T, s *apiserver.Server, pod *corev1.Pod, limit string) {
	t.Helper()
	patch := []byte(`{"spec":{"containers":[{"name":"app","resources":{"limits":{"cpu":"` + limit + `"}}}]}}`)
	if err := s.Client.SubResource("resize").Patch(t.Context(), pod, client.RawPatch(types.StrategicMergePatchType, patch)); err != nil {
		t.Fatal(err)
	}
}

func at(limit string) func(*corev1.Pod) bool {
	return func(p *corev1.Pod) bool {
		return p.Status.ContainerStatuses[0].Resources.Limits.Cpu().String() == limit && p.Status.ObservedGeneration == p.Generation
	}
}

func resizeCondition(p *corev1.Pod) *corev1.PodCondition {
	for i, c := range p.Status.Conditions {
		if c.Type == corev1.PodResizePending || c.Type == corev1.PodResizeInProgress {
			return &p.Status.Conditions[i]
		}
	}
	return nil
}
