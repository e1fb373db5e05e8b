package constraints

import (
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kube"
)

// scaleTolerance is how far above the target of an HPA a pod must be able to go. The HPA controller scales out from 1.1 times
// the target on; a limit below that would hide the load from it.
const hpaHeadroom = 1.2

// hpaFloors are the limits, by container, below which an HPA could not see that its pods need company: what it aims at, times
// scaleTolerance. Empty for one that does not look at the CPU use of pods.
func hpaFloors(h *autoscalingv2.HorizontalPodAutoscaler, pod *corev1.Pod) map[string]cpu.Milli {
	floors := map[string]cpu.Milli{}
	for _, m := range h.Spec.Metrics {
		switch {
		case m.Type == autoscalingv2.ResourceMetricSourceType && m.Resource != nil && m.Resource.Name == corev1.ResourceCPU:
			addMetricFloors(floors, pod, m.Resource.Target, "")
		case m.Type == autoscalingv2.ContainerResourceMetricSourceType && m.ContainerResource != nil && m.ContainerResource.Name == corev1.ResourceCPU:
			addMetricFloors(floors, pod, m.ContainerResource.Target, m.ContainerResource.Container)
		}
	}
	return floors
}

// addFloors raises the floors to what one metric needs: of one container, or of all of them. An average value for the whole pod is
// divided over its containers as their requests are.
func addMetricFloors(floors map[string]cpu.Milli, pod *corev1.Pod, target autoscalingv2.MetricTarget, only string) {
	var requests cpu.Milli
	for _, c := range kube.Containers(pod) {
		if only == "" || c.Spec.Name == only {
			requests += c.Request()
		}
	}
	for _, c := range kube.Containers(pod) {
		if only != "" && c.Spec.Name != only || requests == 0 {
			continue
		}
		aim := 0.0
		switch {
		case target.Type == autoscalingv2.UtilizationMetricType && target.AverageUtilization != nil:
			aim = c.Request().Cores() * float64(*target.AverageUtilization) / 100
		case target.Type == autoscalingv2.AverageValueMetricType && target.AverageValue != nil:
			aim = kube.Milli(*target.AverageValue).Cores() * c.Request().Cores() / requests.Cores()
		}
		name := c.Spec.Name
		floors[name] = max(floors[name], cpu.FromCores(aim*hpaHeadroom).RoundUp(cpu.Quantum))
	}
}
