package constraints

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/testing/podtest"
)

// whole has a CPU limit of its own of 1 and requests 200m, and the containers app (100m), exporter (20m) and proxy (50m)
// without limits, and the init container migrate (1).
func whole() *corev1.Pod { return podtest.ShareLimit(podtest.Shop(), "200m", "1") }

// TestHPAFloorsOfASharedLimit: an HPA counts the pod's own request. That of one container needs room beside the requests of
// the others.
func TestHPAFloorsOfASharedLimit(t *testing.T) {
	for name, c := range map[string]struct {
		metric autoscalingv2.MetricSpec
		want   cpu.Milli
	}{
		"utilization":                    {ofPod(corev1.ResourceCPU, utilization(80)), 200}, // 1.2 x 160
		"average value":                  {ofPod(corev1.ResourceCPU, average("500m")), 600}, // 1.2 x 500
		"of a container":                 {ofContainer("proxy", utilization(200)), 240},     // 1.2 x 100 + 120
		"an average value of one":        {ofContainer("proxy", average("500m")), 720},      // 1.2 x 500 + 120
		"of a container without request": {ofContainer("bare", average("500m")), 600 + 170}, // and all others
	} {
		pod := whole()
		pod.Spec.Containers = append(pod.Spec.Containers, podtest.Container("bare", "", ""))
		h := &autoscalingv2.HorizontalPodAutoscaler{}
		h.Spec.Metrics = []autoscalingv2.MetricSpec{c.metric}
		if diff := cmp.Diff(map[string]cpu.Milli{v1alpha1.PodLevel: c.want}, hpaFloors(h, pod)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestLimitRangeOfASharedLimit: one for pods is about the pod's own resources, one for containers about each container.
func TestLimitRangeOfASharedLimit(t *testing.T) {
	pod := whole()
	pod.Spec.InitContainers = pod.Spec.InitContainers[1:]
	r := podtest.LimitRanges(item{Type: corev1.LimitTypePod, Max: amounts("cpu", "800m"), Min: amounts("cpu", "150m"), MaxLimitRequestRatio: amounts("cpu", "3")})
	if b := limitRangeBoundsOf(pod, &r[0]); b.ceiling != 600 || b.floor != 150 || len(b.ceilings)+len(b.floors) != 0 {
		t.Errorf("of pods: %+v, want 150m to 600m, three times its own request", b)
	}
	r = podtest.LimitRanges(item{Max: amounts("cpu", "800m"), Min: amounts("cpu", "10m")})
	if b := limitRangeBoundsOf(pod, &r[0]); b.ceiling != 0 || len(b.ceilings)+len(b.floors) != 0 {
		t.Errorf("of containers: %+v, want nothing about the pod's limit", b)
	}
	for name, c := range map[string]struct {
		item    item
		message string
	}{
		"a limit that the containers lack":   {item{Default: amounts("cpu", "1")}, "give container app a cpu limit"},
		"a request of the pod below":         {item{Type: corev1.LimitTypePod, Min: amounts("cpu", "250m")}, "the whole pod: its cpu request is below the minimum 250m"},
		"what can be lowered is not refused": {item{Type: corev1.LimitTypePod, Max: amounts("cpu", "300m")}, ""},
		"its request is above":               {item{Type: corev1.LimitTypePod, Max: amounts("cpu", "190m")}, "its cpu request is above the maximum 190m"},
	} {
		if _, message := LimitRangeRefusal(pod, podtest.LimitRanges(c.item)); !strings.Contains(message, c.message) || (c.message == "") != (message == "") {
			t.Errorf("%s: %q, want %q", name, message, c.message)
		}
	}
}

// TestQuotaOfASharedLimit: a quota counts the pod's own limit, and requires nothing of its containers.
func TestQuotaOfASharedLimit(t *testing.T) {
	pod := whole()
	pod.Status.Resources.Limits = podtest.CPU("1500m")
	if got := QuotaUsage(pod); got != 1500 {
		t.Errorf("counted %v, want 1500m: the kubelet has yet to lower it", got)
	}
	pod.Spec.Containers[0].Resources.Limits = podtest.CPU("500m")
	if got := QuotaUsage(pod); got != 1500 {
		t.Errorf("counted %v with a limit of a container beside it, want 1500m", got)
	}
	q := &corev1.ResourceQuota{Spec: corev1.ResourceQuotaSpec{Hard: amounts("limits.cpu", "9")}}
	if c, value := MissingValue(q, pod); c != "" {
		t.Errorf("it wants %s of %s", value, c)
	}
}

// TestVPAOfASharedLimit: a VPA writes the CPU of a container that it names, also where the pod has the limit.
func TestVPAOfASharedLimit(t *testing.T) {
	spec := map[string]any{"resourcePolicy": map[string]any{"containerPolicies": []any{
		map[string]any{"containerName": "*", "mode": "Off"}, map[string]any{"containerName": "proxy", "mode": "Auto"},
	}}}
	if !VPAOf(&unstructured.Unstructured{Object: map[string]any{"spec": spec}}).WritesCPU(whole()) {
		t.Error("it writes the CPU of proxy")
	}
}
