package constraints

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/testing/podtest"
)

func utilization(percent int32) autoscalingv2.MetricTarget {
	return autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &percent}
}

func average(q string) autoscalingv2.MetricTarget {
	v := resource.MustParse(q)
	return autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: &v}
}

func ofPod(name corev1.ResourceName, target autoscalingv2.MetricTarget) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{Name: name, Target: target}}
}

func ofContainer(container string, target autoscalingv2.MetricTarget) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{Type: autoscalingv2.ContainerResourceMetricSourceType, ContainerResource: &autoscalingv2.ContainerResourceMetricSource{
		Name: corev1.ResourceCPU, Container: container, Target: target,
	}}
}

// TestHPAFloors: containers app (100m), exporter (20m, no limit) and proxy (50m).
func TestHPAFloors(t *testing.T) {
	type floors = map[string]cpu.Milli
	for name, c := range map[string]struct {
		metrics []autoscalingv2.MetricSpec
		want    floors
	}{
		"utilization":       {[]autoscalingv2.MetricSpec{ofPod(corev1.ResourceCPU, utilization(80))}, floors{"app": 100, "exporter": 20, "proxy": 50}},  // 96, 19.2, 48
		"average value":     {[]autoscalingv2.MetricSpec{ofPod(corev1.ResourceCPU, average("500m"))}, floors{"app": 360, "exporter": 80, "proxy": 180}}, // 600m as 100:20:50
		"one container":     {[]autoscalingv2.MetricSpec{ofContainer("proxy", utilization(200))}, floors{"proxy": 120}},
		"its average value": {[]autoscalingv2.MetricSpec{ofContainer("proxy", average("500m"))}, floors{"proxy": 600}},
		"the higher of two": {[]autoscalingv2.MetricSpec{ofContainer("proxy", utilization(200)), ofPod(corev1.ResourceCPU, utilization(80))}, floors{"app": 100, "exporter": 20, "proxy": 120}},
		"memory":            {[]autoscalingv2.MetricSpec{ofPod(corev1.ResourceMemory, utilization(80))}, floors{}},
		"external":          {[]autoscalingv2.MetricSpec{{Type: autoscalingv2.ExternalMetricSourceType}}, floors{}},
		"no such container": {[]autoscalingv2.MetricSpec{ofContainer("none", utilization(80))}, floors{}},
		"none":              {nil, floors{}},
	} {
		h := &autoscalingv2.HorizontalPodAutoscaler{Spec: autoscalingv2.HorizontalPodAutoscalerSpec{Metrics: c.metrics}}
		if diff := cmp.Diff(c.want, hpaFloors(h, podtest.Shop())); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
	bare := podtest.Shop()
	for i := range bare.Spec.Containers {
		bare.Spec.Containers[i].Resources.Requests = nil
	}
	bare.Spec.InitContainers = nil
	h := &autoscalingv2.HorizontalPodAutoscaler{Spec: autoscalingv2.HorizontalPodAutoscalerSpec{Metrics: []autoscalingv2.MetricSpec{ofPod(corev1.ResourceCPU, average("1"))}}}
	if got := hpaFloors(h, bare); len(got) != 0 {
		t.Errorf("floors without requests: %v", got)
	}
}
