package kube

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/eligibility"
	"github.com/mbcas/mbcas/internal/testing/podtest"
)

func TestMilli(t *testing.T) {
	for q, want := range map[string]cpu.Milli{"100m": 100, "1": 1000, "1.5": 1500, "1u": 1, "0": 0, "9E": math.MaxInt32, "2147483": math.MaxInt32} {
		if got := Milli(resource.MustParse(q)); got != want {
			t.Errorf("Milli(%s) = %v, want %v", q, got, want)
		}
	}
	if q := Quantity(1500); q.String() != "1500m" || q.Cmp(resource.MustParse("1.5")) != 0 {
		t.Errorf("Quantity(1500) = %v", q.String())
	}
}

func TestLimitsAreOfWhatRuns(t *testing.T) {
	got := Limits(podtest.Shop())
	if diff := cmp.Diff(podtest.Limits("app", 500, "proxy", 200), got); diff != "" {
		t.Errorf("limits of the application and the sidecar, nothing else:\n%s", diff)
	}
	if Total(got) != 700 {
		t.Errorf("total %v, want 700m", Total(got))
	}
	if !SameLimits(got, podtest.Limits("proxy", 200, "app", 500)) || SameLimits(got, podtest.Limits("app", 500)) || SameLimits(got, podtest.Limits("app", 500, "proxy", 210)) {
		t.Error("limits are the same whatever their order, and only then")
	}
}

func TestFacts(t *testing.T) {
	if r, ok := eligibility.Eligible(EligibilityFacts(podtest.Shop(), ModeEnforce, SystemNamespace)); !ok {
		t.Fatalf("a plain pod is out: %v", r)
	}
	windows, class := &corev1.PodOS{Name: corev1.Windows}, "gvisor"
	for _, c := range []struct {
		want   reasons.Reason
		change func(*corev1.Pod)
	}{
		{reasons.OptedOut, func(p *corev1.Pod) { p.Labels[ManagedKey] = "false" }},
		{reasons.OptedOut, func(p *corev1.Pod) { p.Annotations[ManagedKey] = "false" }},
		{reasons.InvalidAnnotation, func(p *corev1.Pod) { p.Annotations[MaxCPUKey] = "two" }},
		{reasons.InvalidAnnotation, func(p *corev1.Pod) { p.Annotations[MaxCPUKey] = "-1" }},
		{reasons.NotRunning, func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }},
		{reasons.NotRunning, func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }},
		{reasons.StaticPod, func(p *corev1.Pod) { p.Annotations[corev1.MirrorPodAnnotationKey] = "x" }},
		{reasons.WindowsPod, func(p *corev1.Pod) { p.Spec.OS = windows }},
		{reasons.GuaranteedQoS, func(p *corev1.Pod) { p.Status.QOSClass = corev1.PodQOSGuaranteed }},
		{reasons.BestEffortQoS, func(p *corev1.Pod) { p.Status.QOSClass = corev1.PodQOSBestEffort }},
		{reasons.PodLevelResources, func(p *corev1.Pod) { p.Spec.Resources = &corev1.ResourceRequirements{} }},
		{reasons.RuntimeClass, func(p *corev1.Pod) { p.Spec.RuntimeClassName = &class }},
		{reasons.SystemNamespace, func(p *corev1.Pod) { p.Namespace = "kube-system" }},
		{reasons.SystemNamespace, func(p *corev1.Pod) { p.Namespace = SystemNamespace }},
		{reasons.NoCPULimit, func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Limits = nil
			p.Spec.InitContainers[1].Resources.Limits = nil
		}},
		{reasons.ResizeRestarts, func(p *corev1.Pod) {
			p.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceCPU, RestartPolicy: corev1.RestartContainer}}
		}},
		{reasons.NodeCannotResize, func(p *corev1.Pod) { p.Status.ContainerStatuses[1].Resources = nil }},
	} {
		p := podtest.Shop()
		c.change(p)
		if r, ok := eligibility.Eligible(EligibilityFacts(p, ModeEnforce, SystemNamespace)); ok || r != c.want {
			t.Errorf("want %v, got %v (eligible %v)", c.want, r, ok)
		}
	}
	if r, _ := eligibility.Eligible(EligibilityFacts(podtest.Shop(), ModeOff, SystemNamespace)); r != reasons.NamespaceOff {
		t.Errorf("mode off: %v", r)
	}
	memory := podtest.Shop()
	memory.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceMemory, RestartPolicy: corev1.RestartContainer}}
	if r, ok := eligibility.Eligible(EligibilityFacts(memory, ModeEnforce, SystemNamespace)); !ok {
		t.Errorf("a restart policy for memory keeps the pod out: %v", r)
	}
}

func TestModeOf(t *testing.T) {
	for _, c := range []struct {
		label string
		want  Mode
		ok    bool
	}{
		{"off", ModeOff, true}, {"recommend", ModeRecommend, true}, {"enforce", ModeEnforce, true}, {"restore", ModeRestore, true},
		{"Enforce", ModeRecommend, false}, {"", ModeRecommend, false},
	} {
		if m, ok := ModeOf(map[string]string{ModeLabel: c.label}, ModeEnforce); m != c.want || ok != c.ok {
			t.Errorf("label %q: %v %v, want %v %v", c.label, m, ok, c.want, c.ok)
		}
	}
	if m, ok := ModeOf(nil, ModeEnforce); m != ModeEnforce || !ok {
		t.Errorf("without a label: %v %v, want the default", m, ok)
	}
}

func TestCgroupPod(t *testing.T) {
	p := podtest.Shop()
	if CgroupUID(p) != "u-1" {
		t.Errorf("a pod's cgroup is named by its UID, not %q", CgroupUID(p))
	}
	p.Annotations["kubernetes.io/config.hash"] = "abc"
	if CgroupUID(p) != "u-1" {
		t.Errorf("an ordinary pod points at another's cgroup, %q", CgroupUID(p))
	}
	p.Annotations[corev1.MirrorPodAnnotationKey] = "abc"
	if CgroupUID(p) != "abc" {
		t.Errorf("a static pod's cgroup is named by its config hash, not %q", CgroupUID(p))
	}
}

func TestBadAnnotationNamesThePod(t *testing.T) {
	p := podtest.Shop()
	p.Annotations[MaxCPUKey] = "lots"
	if _, err := MaxCPU(p); err == nil || !strings.Contains(err.Error(), "shop/shop-1") || !strings.Contains(err.Error(), "lots") {
		t.Errorf("error %v: want the pod, the annotation and its value", err)
	}
}
