package constraints

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/podtest"
)

var amounts = podtest.Amounts

func TestQuotaSelects(t *testing.T) {
	scopes := func(s ...corev1.ResourceQuotaScope) corev1.ResourceQuotaSpec {
		return corev1.ResourceQuotaSpec{Scopes: s}
	}
	class := func(op corev1.ScopeSelectorOperator, values ...string) corev1.ResourceQuotaSpec {
		return corev1.ResourceQuotaSpec{ScopeSelector: &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{{
			ScopeName: corev1.ResourceQuotaScopePriorityClass, Operator: op, Values: values,
		}}}}
	}
	plain, gold := podtest.Shop(), podtest.Shop()
	gold.Spec.PriorityClassName = "gold"
	ending, far := podtest.Shop(), podtest.Shop()
	deadline := int64(60)
	ending.Spec.ActiveDeadlineSeconds = &deadline
	far.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{
		{PodAffinityTerm: corev1.PodAffinityTerm{Namespaces: []string{"other"}}},
	}}}
	for name, c := range map[string]struct {
		spec corev1.ResourceQuotaSpec
		pod  *corev1.Pod
		want bool
	}{
		"no scope":               {corev1.ResourceQuotaSpec{}, plain, true},
		"terminating":            {scopes(corev1.ResourceQuotaScopeTerminating), ending, true},
		"terminating, another":   {scopes(corev1.ResourceQuotaScopeTerminating), plain, false},
		"not terminating":        {scopes(corev1.ResourceQuotaScopeNotTerminating), ending, false},
		"best effort":            {scopes(corev1.ResourceQuotaScopeBestEffort), plain, false},
		"not best effort":        {scopes(corev1.ResourceQuotaScopeNotBestEffort), plain, true},
		"both scopes":            {scopes(corev1.ResourceQuotaScopeNotBestEffort, corev1.ResourceQuotaScopeTerminating), plain, false},
		"cross namespace":        {scopes(corev1.ResourceQuotaScopeCrossNamespacePodAffinity), far, true},
		"cross namespace, other": {scopes(corev1.ResourceQuotaScopeCrossNamespacePodAffinity), plain, false},
		"any class":              {scopes(corev1.ResourceQuotaScopePriorityClass), gold, true},
		"any class, none":        {scopes(corev1.ResourceQuotaScopePriorityClass), plain, false},
		"in":                     {class(corev1.ScopeSelectorOpIn, "gold", "silver"), gold, true},
		"in, another":            {class(corev1.ScopeSelectorOpIn, "silver"), gold, false},
		"not in":                 {class(corev1.ScopeSelectorOpNotIn, "silver"), gold, true},
		"not in, no class":       {class(corev1.ScopeSelectorOpNotIn, "silver"), plain, true},
		"not in, it is":          {class(corev1.ScopeSelectorOpNotIn, "gold"), gold, false},
		"does not exist":         {class(corev1.ScopeSelectorOpDoesNotExist), plain, true},
		"does not exist, it is":  {class(corev1.ScopeSelectorOpDoesNotExist), gold, false},
		"a scope of the future":  {scopes("Quantum"), plain, true},
	} {
		for what, pod := range map[string]*corev1.Pod{"whole": c.pod, "trimmed": trimmed(c.pod)} {
			if got := QuotaSelects(&corev1.ResourceQuota{Spec: c.spec}, pod); got != c.want {
				t.Errorf("%s, %s: %v, want %v", name, what, got, c.want)
			}
		}
	}
}

func trimmed(pod *corev1.Pod) *corev1.Pod {
	p := pod.DeepCopy()
	p.Spec.Affinity = kube.TrimAffinity(p.Spec.Affinity)
	return p
}

func TestCPUQuotaOf(t *testing.T) {
	q := &corev1.ResourceQuota{Spec: corev1.ResourceQuotaSpec{Hard: amounts("requests.cpu", "4")}}
	if _, bounds := CPUQuotaOf(q); bounds {
		t.Error("a quota on requests bounds limits")
	}
	q.Spec.Hard = amounts("limits.cpu", "4")
	if room, bounds := CPUQuotaOf(q); !bounds || room.Known {
		t.Errorf("not counted yet: %+v", room)
	}
	q.Status.Hard, q.Status.Used = amounts("limits.cpu", "3500m"), amounts("limits.cpu", "1")
	if room, _ := CPUQuotaOf(q); !room.Known || room.Hard != 3500 || room.Used != 1000 {
		t.Errorf("room %+v, want what is enforced", room)
	}
	q.Spec.Hard = amounts("limits.cpu", "2")
	if room, _ := CPUQuotaOf(q); room.Hard != 2000 {
		t.Errorf("room %+v, want what will be enforced", room)
	}
}

func TestMissingValue(t *testing.T) {
	for hard, want := range map[string]string{"limits.cpu": "exporter", "limits.memory": "exporter", "requests.cpu": "", "memory": "", "pods": ""} {
		if got, _ := MissingValue(&corev1.ResourceQuota{Spec: corev1.ResourceQuotaSpec{Hard: amounts(hard, "9")}}, podtest.Shop()); got != want {
			t.Errorf("a quota on %s wants it of %q, want %q", hard, got, want)
		}
	}
}

// TestQuotaUsage: the higher of spec and status counts, so that nothing is given back before the
// kubelet has followed.
func TestQuotaUsage(t *testing.T) {
	pod := podtest.Shop()
	pod.Spec.Overhead = podtest.CPU("50m")
	pod.Status.ContainerStatuses[1].Resources.Limits = podtest.CPU("900m") // app, which is on its way to 500m
	pod.Status.InitContainerStatuses[0].Resources.Limits = podtest.CPU("100m")
	if got := QuotaUsage(pod); got != 50+900+200 {
		t.Errorf("charged %v", got)
	}
}
