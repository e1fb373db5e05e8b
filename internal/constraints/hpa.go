package constraints

import (
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kube"
)

// hpaHeadroom is the floor of a pod under an HPA, as a multiple of the HPA's target. The HPA
// controller adds replicas from 1.1 times the target on; a limit below that would hide the load
// from it.
const hpaHeadroom = 1.2

// hpaFloors are the limits, by container, below which the HPA would not see that its pods need more
// replicas: its target times hpaHeadroom. They are empty for an HPA that does not scale by the CPU
// usage of pods.
func hpaFloors(h *autoscalingv2.HorizontalPodAutoscaler, pod *corev1.Pod) map[string]cpu.Milli {
	floors := map[string]cpu.Milli{}
	for _, m := range h.Spec.Metrics {
		switch {
		case m.Type == autoscalingv2.ResourceMetricSourceType && m.Resource != nil && m.Resource.Name == corev1.ResourceCPU:
			addMetricFloors(floors, pod, m.Resource.Target, "")
		case m.Type == autoscalingv2.ContainerResourceMetricSourceType && m.ContainerResource != nil:
			if c := m.ContainerResource; c.Name == corev1.ResourceCPU {
				addMetricFloors(floors, pod, c.Target, c.Container)
			}
		}
	}
	return floors
}

// addMetricFloors raises the floors to what one metric needs, of the named container or of all. An
// average value for the whole pod is divided over its containers in proportion to their requests.
func addMetricFloors(floors map[string]cpu.Milli, pod *corev1.Pod, target autoscalingv2.MetricTarget, only string) {
	if only != "" && kube.SharesLimit(pod) {
		addSharedFloor(floors, pod, target, only)
		return
	}
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
		name := c.Spec.Name
		floors[name] = max(floors[name], metricFloor(target, c.Request(), requests))
	}
}

// addSharedFloor raises the floor of a limit that containers share to what a metric of one of them needs beside the
// requests of the others.
func addSharedFloor(floors map[string]cpu.Milli, pod *corev1.Pod, target autoscalingv2.MetricTarget, only string) {
	var floor, others cpu.Milli
	for _, c := range kube.EachContainer(pod) {
		if c.Spec.Name == only {
			floor = metricFloor(target, max(c.Request(), 1), max(c.Request(), 1)) // it may have none
		} else {
			others += c.Request()
		}
	}
	if floor > 0 {
		floors[v1alpha1.PodLevel] = max(floors[v1alpha1.PodLevel], (floor + others).RoundUp(cpu.Quantum))
	}
}

// metricFloor is the limit that a metric needs of a container with this part of the requests that the metric counts.
func metricFloor(target autoscalingv2.MetricTarget, request, requests cpu.Milli) cpu.Milli {
	value := 0.0
	switch {
	case target.Type == autoscalingv2.UtilizationMetricType && target.AverageUtilization != nil:
		value = request.Cores() * float64(*target.AverageUtilization) / 100
	case target.Type == autoscalingv2.AverageValueMetricType && target.AverageValue != nil && requests > 0:
		value = kube.Milli(*target.AverageValue).Cores() * request.Cores() / requests.Cores()
	}
	return cpu.FromCores(value * hpaHeadroom).RoundUp(cpu.Quantum)
}
