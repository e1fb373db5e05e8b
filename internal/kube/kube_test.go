package kube

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/testing/podtest"
)

func TestMilli(t *testing.T) {
	for q, want := range map[string]cpu.Milli{"100m": 100, "1": 1000, "1.5": 1500, "1u": 1, "0": 0, "-1": 0, "9E": math.MaxInt32, "2147483": math.MaxInt32, "1e1000000000": math.MaxInt32} {
		if got := Milli(resource.MustParse(q)); got != want {
			t.Errorf("Milli(%s) = %v, want %v", q, got, want)
		}
	}
	if q := Quantity(1500); q.String() != "1500m" || q.Cmp(resource.MustParse("1.5")) != 0 {
		t.Errorf("Quantity(1500) = %v", q.String())
	}
}

func TestLimits(t *testing.T) {
	got := Limits(podtest.Shop())
	if diff := cmp.Diff(podtest.Limits("app", 500, "proxy", 200), got); diff != "" {
		t.Errorf("limits of the application and the sidecar, nothing else:\n%s", diff)
	}
	if Total(got) != 700 || !SameLimits(got, podtest.Limits("proxy", 200, "app", 500)) || SameLimits(got, podtest.Limits("app", 500)) || SameLimits(got, podtest.Limits("app", 500, "proxy", 210)) {
		t.Errorf("total %v, want 700m; or limits are not the same whatever their order, and only then", Total(got))
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

func TestForbidsBelowDeclared(t *testing.T) {
	for text, c := range map[string]struct {
		labels, annotations map[string]string
		value               string
		forbids             bool
	}{
		"nothing":          {},
		"a label":          {labels: map[string]string{BelowDeclaredKey: "never"}, value: "never", forbids: true},
		"an annotation":    {annotations: map[string]string{BelowDeclaredKey: "never"}, value: "never", forbids: true},
		"an unknown value": {labels: map[string]string{BelowDeclaredKey: "Never"}, value: "Never", forbids: true},
		"an empty value":   {labels: map[string]string{BelowDeclaredKey: ""}, forbids: true},
		"both": {
			labels: map[string]string{BelowDeclaredKey: "no"}, annotations: map[string]string{BelowDeclaredKey: "never"},
			value: "never", forbids: true,
		},
	} {
		ns := &metav1.ObjectMeta{Labels: c.labels, Annotations: c.annotations}
		if value, forbids := ForbidsBelowDeclared(ns); value != c.value || forbids != c.forbids {
			t.Errorf("%s: %q %v, want %q %v", text, value, forbids, c.value, c.forbids)
		}
	}
}

func TestCgroupUID(t *testing.T) {
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

// TestTrimBoundsAmounts: no amount of a trimmed pod is one of which a sum takes long, and the pod that came keeps its own.
func TestTrimBoundsAmounts(t *testing.T) {
	const huge = "1e20000000"
	p := podtest.Shop()
	amounts := podtest.Amounts("cpu", huge, "ephemeral-storage", huge, "memory", "1Gi")
	p.Spec.Overhead = amounts
	for _, list := range [][]corev1.Container{p.Spec.Containers, p.Spec.InitContainers} {
		for i := range list {
			list[i].Resources.Limits, list[i].Resources.Requests = amounts, amounts
		}
	}
	TrimPod(p)
	lists := []corev1.ResourceList{p.Spec.Overhead}
	for _, c := range append(p.Spec.Containers, p.Spec.InitContainers...) {
		lists = append(lists, c.Resources.Limits, c.Resources.Requests)
	}
	for _, list := range lists {
		for name, q := range list {
			if v := q.AsApproximateFloat64(); v > largest || name == corev1.ResourceMemory && v != 1<<30 || name != corev1.ResourceMemory && v != largest {
				t.Errorf("%s: %v", name, v)
			}
		}
	}
	if q := amounts[corev1.ResourceCPU]; q.AsApproximateFloat64() <= largest || PodQuota(p) != math.MaxInt32 {
		t.Errorf("the amount that came is %v, the quota %v", q.AsApproximateFloat64(), PodQuota(p))
	}
	if a, b := resource.MustParse(huge), resource.MustParse("1e30"); Compare(a, b) != 0 || Compare(a, resource.MustParse("1")) != 1 {
		t.Error("a huge amount is compared otherwise than bounded ones")
	}
}

func TestBadAnnotationNamesThePod(t *testing.T) {
	p := podtest.Shop()
	for _, text := range []string{"lots", "-1", "1e1000000000", "1e-1000000000"} {
		p.Annotations[MaxCPUKey] = text
		if _, err := MaxCPU(p); err == nil || !strings.Contains(err.Error(), "shop/shop-1") || !strings.Contains(err.Error(), text) {
			t.Errorf("error %v: want the pod, the annotation and its value", err)
		}
	}
	for _, text := range []string{strings.Repeat("9", 30_000), "2." + strings.Repeat("0", 30_000)} {
		p.Annotations[MaxCPUKey], p.Annotations[StartupBoostKey] = text, text
		_, err := MaxCPU(p)
		if factor, fault := StartupBoost(p, p); err == nil || len(err.Error()) > 300 || factor != 0 || fault == "" || len(fault) > 300 {
			t.Errorf("a value of 30 kB is taken, or repeated whole: %.400s; a factor of %v: %.400s", err, factor, fault)
		}
	}
}

// TestMaxRaise: a whole number within its bounds is taken, of an annotation before a label; anything else names its fault,
// in a few words.
func TestMaxRaise(t *testing.T) {
	p := podtest.Shop()
	p.Labels[MaxRaiseKey] = "7"
	if raise, fault := MaxRaise(p, 8); raise != 7 || fault != "" {
		t.Errorf("of a label: %d (%s)", raise, fault)
	}
	for text, want := range map[string]int{"1": 1, "8": 8, "1000": 1000} {
		p.Annotations[MaxRaiseKey] = text
		if raise, fault := MaxRaise(p, 5); raise != want || fault != "" {
			t.Errorf("%q: %d (%s), want %d", text, raise, fault, want)
		}
	}
	for _, text := range []string{"", "0", "-3", "1001", "2.5", "eight", "0x8", strings.Repeat("9", 30_000)} {
		p.Annotations[MaxRaiseKey] = text
		if raise, fault := MaxRaise(p, 5); raise != 5 || !strings.Contains(fault, MaxRaiseKey) || len(fault) > 300 {
			t.Errorf("%.20q: %d (%.400s)", text, raise, fault)
		}
	}
}
