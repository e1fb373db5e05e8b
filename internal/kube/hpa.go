package kube

import (
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"

	"github.com/mbcas/mbcas/cpu"
)

// AllowDecreaseKey as annotation of a HorizontalPodAutoscaler or a PodDisruptionBudget with the value "true" lets the pods be lowered
// that the object would otherwise keep from it. The floor that an HPA asks for stands.
const AllowDecreaseKey = "mbcas.io/allow-decrease"

// scaleTolerance is how far above the target of an HPA a pod must be able to go. The HPA controller scales out from 1.1 times
// the target on; a limit below that would hide the load from it.
const scaleTolerance = 1.2

// HPATarget is what an HPA scales.
func HPATarget(h *autoscalingv2.HorizontalPodAutoscaler) Target {
	ref := h.Spec.ScaleTargetRef
	return Target{APIVersion: ref.APIVersion, Kind: ref.Kind, Name: ref.Name}
}

// hpaFloors are the limits, by container, below which an HPA could not see that its pods need company: what it aims at, times
// scaleTolerance. Empty for one that does not look at the CPU use of pods.
func hpaFloors(h *autoscalingv2.HorizontalPodAutoscaler, pod *corev1.Pod) map[string]cpu.Milli {
	floors := map[string]cpu.Milli{}
	for _, m := range h.Spec.Metrics {
		switch {
		case m.Type == autoscalingv2.ResourceMetricSourceType && m.Resource != nil && m.Resource.Name == corev1.ResourceCPU:
			addFloors(floors, pod, m.Resource.Target, "")
		case m.Type == autoscalingv2.ContainerResourceMetricSourceType && m.ContainerResource != nil && m.ContainerResource.Name == corev1.ResourceCPU:
			addFloors(floors, pod, m.ContainerResource.Target, m.ContainerResource.Container)
		}
	}
	return floors
}

// addFloors raises the floors to what one metric needs: of one container, or of all of them. An average value for the whole pod is
// divided over its containers as their requests are.
func addFloors(floors map[string]cpu.Milli, pod *corev1.Pod, target autoscalingv2.MetricTarget, only string) {
	var requests cpu.Milli
	for _, c := range containers(pod) {
		if only == "" || c.spec.Name == only {
			requests += c.request()
		}
	}
	for _, c := range containers(pod) {
		if only != "" && c.spec.Name != only || requests == 0 {
			continue
		}
		aim := 0.0
		switch {
		case target.Type == autoscalingv2.UtilizationMetricType && target.AverageUtilization != nil:
			aim = c.request().Cores() * float64(*target.AverageUtilization) / 100
		case target.Type == autoscalingv2.AverageValueMetricType && target.AverageValue != nil:
			aim = Milli(*target.AverageValue).Cores() * c.request().Cores() / requests.Cores()
		}
		name := c.spec.Name
		floors[name] = max(floors[name], cpu.FromCores(aim*scaleTolerance).RoundUp(cpu.Quantum))
	}
}
