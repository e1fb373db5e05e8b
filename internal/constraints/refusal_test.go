package constraints

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/testing/podtest"
)

type item = corev1.LimitRangeItem

// TestLimitRangeRefusal: the pod has the containers app (100m to 500m), exporter (20m, without
// limits), the sidecar proxy (50m to 200m) and the init container migrate (1 to 2), each of 64Mi.
func TestLimitRangeRefusal(t *testing.T) {
	pods := func(i item) item {
		i.Type = corev1.LimitTypePod
		return i
	}
	for name, c := range map[string]struct {
		item    item
		want    reasons.Reason
		message string
	}{
		"nothing":                               {item{}, "", ""},
		"a limit that exporter lacks":           {item{Default: amounts("cpu", "1")}, reasons.AdmissionWouldMutate, "give container exporter a cpu limit"},
		"a request without a container":         {item{DefaultRequest: amounts("ephemeral-storage", "1Gi")}, reasons.AdmissionWouldMutate, "container app a ephemeral-storage request"},
		"what every container has":              {item{DefaultRequest: amounts("cpu", "1", "memory", "1Gi")}, "", ""},
		"least memory":                          {item{Min: amounts("memory", "65Mi")}, reasons.LimitRangeRefused, "container app: its memory request is below the minimum 65Mi"},
		"least request":                         {item{Min: amounts("cpu", "30m")}, reasons.LimitRangeRefused, "container exporter: its cpu request is below the minimum 30m"},
		"least limit is a floor":                {item{Min: amounts("cpu", "20m")}, "", ""},
		"a request above the most":              {item{Max: amounts("cpu", "90m")}, reasons.LimitRangeRefused, "container app: its cpu request is above the maximum 90m"},
		"a limit that the most asks for":        {item{Max: amounts("cpu", "1e1000000000")}, reasons.LimitRangeRefused, "container exporter: it has no cpu limit"},
		"most memory":                           {item{Max: amounts("memory", "63Mi")}, reasons.LimitRangeRefused, "container app: its memory request is above"},
		"a ratio of a container without":        {item{MaxLimitRequestRatio: amounts("cpu", "20")}, reasons.LimitRangeRefused, "container exporter: it has no cpu limit"},
		"a ratio of memory":                     {item{MaxLimitRequestRatio: amounts("memory", "2")}, reasons.LimitRangeRefused, "container exporter: it has no memory limit"},
		"most of a limit that cannot come down": {item{Max: amounts("cpu", "104m")}, reasons.LimitRangeRefused, "container app: its cpu limit is above the maximum 104m"},
		"of pods, which bounds and refuses not": {pods(item{Max: amounts("cpu", "2"), Min: amounts("cpu", "1"), MaxLimitRequestRatio: amounts("cpu", "2")}), "", ""},
		"a pod's memory request below":          {pods(item{Min: amounts("memory", "193Mi")}), reasons.LimitRangeRefused, "the whole pod: its memory request is below the minimum 193Mi"},
		"a pod's memory request above":          {pods(item{Max: amounts("memory", "191Mi")}), reasons.LimitRangeRefused, "the whole pod: its memory request is above the maximum 191Mi"},
		"a pod's memory limit above":            {pods(item{MaxLimitRequestRatio: amounts("memory", "500m")}), reasons.LimitRangeRefused, "the whole pod: its memory limit is above the maximum ratio"},
		"a pod's storage":                       {pods(item{Max: amounts("ephemeral-storage", "1Gi")}), reasons.LimitRangeRefused, "the whole pod: it has no ephemeral-storage limit"},
		"a pod's init container":                {pods(item{Max: amounts("cpu", "1900m")}), reasons.LimitRangeRefused, "the whole pod: its cpu limit is above the maximum 1900m"},
		"the ratio of a pod's init container":   {pods(item{MaxLimitRequestRatio: amounts("cpu", "1900m")}), reasons.LimitRangeRefused, "the whole pod: its cpu limit is above the maximum ratio 1900m"},
	} {
		got, message := LimitRangeRefusal(podtest.Shop(), podtest.LimitRanges(c.item))
		if got != c.want || !strings.Contains(message, c.message) {
			t.Errorf("%s: %v %q, want %v %q", name, got, message, c.want, c.message)
		}
	}
	large := podtest.Shop()
	large.Spec.Containers, large.Spec.InitContainers = large.Spec.Containers[:1], nil
	pib := amounts("cpu", "1", "memory", "1Pi")
	large.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: pib, Limits: pib}
	if _, message := LimitRangeRefusal(large, podtest.LimitRanges(item{MaxLimitRequestRatio: amounts("memory", "2")})); message != "" {
		t.Errorf("a limit of 1Pi as the request is: %q", message)
	}
	large.Spec.Containers[0].Resources = corev1.ResourceRequirements{
		Requests: amounts("cpu", "1", "memory", "100Mi"), Limits: amounts("cpu", "1", "memory", "104960Ki"),
	}
	if _, message := LimitRangeRefusal(large, podtest.LimitRanges(item{MaxLimitRequestRatio: amounts("memory", "1025m")})); message != "" {
		t.Errorf("a limit at the ratio: %q", message)
	}
	// With limits on every container, so that the others are looked at, too.
	pod := podtest.Shop()
	pod.Spec.Containers[1] = podtest.Container("exporter", "20m", "30m")
	for name, c := range map[string]struct {
		item    item
		message string
	}{
		"an init container's limit is never changed": {item{Max: amounts("cpu", "1500m")}, "container migrate: its cpu limit is above the maximum 1500m of LimitRange limits"},
		"nor is its ratio":                           {item{MaxLimitRequestRatio: amounts("cpu", "1900m")}, "container migrate: its cpu limit is above the maximum ratio 1900m of LimitRange limits"},
		"a huge maximum refuses nothing":             {item{Max: amounts("cpu", "1e1000000000")}, ""},
		"what can be lowered is not refused":         {item{Max: amounts("cpu", "2"), MaxLimitRequestRatio: amounts("cpu", "2")}, ""},
		"no ratio lets it be above its request":      {item{MaxLimitRequestRatio: amounts("cpu", "1")}, "container app: its cpu limit is above the maximum ratio 1 of LimitRange limits"},
	} {
		if _, message := LimitRangeRefusal(pod, podtest.LimitRanges(c.item)); message != c.message {
			t.Errorf("%s: %q, want %q", name, message, c.message)
		}
	}
}

// TestCheckLeavesTheCachedPod: amounts beyond 64 bits are kept behind a pointer, which a copy of a
// Quantity shares with the cache.
func TestCheckLeavesTheCachedPod(t *testing.T) {
	pod := podtest.Shop()
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].Resources.Requests = amounts("cpu", "100m", "memory", "100000000000000000001")
	}
	before := pod.DeepCopy()
	LimitRangeRefusal(pod, podtest.LimitRanges(item{Type: corev1.LimitTypePod, Max: amounts("memory", "1Gi")}))
	if !equality.Semantic.DeepEqual(before, pod) {
		t.Errorf("requests of %v became %v", before.Spec.Containers, pod.Spec.Containers)
	}
}
