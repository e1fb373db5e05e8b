package shop

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

func TestOnlyLimitsDiffer(t *testing.T) {
	for _, w := range Workloads() {
		with, without := w.Deployment("n", true), w.Deployment("n", false)
		limit, has := with.Spec.Template.Spec.Containers[0].Resources.Limits[corev1.ResourceCPU]
		if has != (w.Limit > 0) || limit.MilliValue() != w.Limit {
			t.Errorf("%s: limit %v, want %dm", w.Name, &limit, w.Limit)
		}
		if w.Managed() {
			delete(with.Spec.Template.Spec.Containers[0].Resources.Limits, corev1.ResourceCPU)
		}
		if diff := cmp.Diff(with, without); diff != "" {
			t.Errorf("%s differs in more than its CPU limit:\n%s", w.Name, diff)
		}
	}
}

func TestWitnesses(t *testing.T) {
	want := map[string]corev1.PodQOSClass{
		"guaranteed": corev1.PodQOSGuaranteed, "besteffort": corev1.PodQOSBestEffort,
		"unlimited": corev1.PodQOSBurstable, "opted-out": corev1.PodQOSBurstable,
	}
	sum := int64(0)
	for _, w := range Workloads() {
		sum += w.Request
		qos := qos(w.Deployment("n", true).Spec.Template.Spec.Containers[0].Resources)
		if w.Managed() {
			if qos != corev1.PodQOSBurstable || w.Limit <= w.Request {
				t.Errorf("%s is %s with limit %dm: the market cannot manage it", w.Name, qos, w.Limit)
			}
			continue
		}
		if qos != want[w.Name] {
			t.Errorf("witness %s is %s, want %s", w.Name, qos, want[w.Name])
		}
		delete(want, w.Name)
	}
	for name := range want {
		t.Errorf("witness %s is missing", name)
	}
	if sum > 1450 {
		t.Errorf("requests add up to %dm: beside MBCAS they do not fit 1600m", sum)
	}
	w, _ := Find("opted-out")
	if w.Deployment("n", true).Spec.Template.Labels["mbcas.io/managed"] != "false" {
		t.Error("opted-out is not opted out")
	}
}

// qos is the class of a pod of one container.
func qos(r corev1.ResourceRequirements) corev1.PodQOSClass {
	if len(r.Requests) == 0 && len(r.Limits) == 0 {
		return corev1.PodQOSBestEffort
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		request, limit := r.Requests[name], r.Limits[name]
		if limit.IsZero() || request.Cmp(limit) != 0 {
			return corev1.PodQOSBurstable
		}
	}
	return corev1.PodQOSGuaranteed
}
