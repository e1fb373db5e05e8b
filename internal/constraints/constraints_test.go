package constraints

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/podtest"
)

type item = corev1.LimitRangeItem

var amounts = podtest.Amounts

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

// TestFailedLookup: an autoscaler that would change a pod's CPU may manage the pod if the selector of
// its target could not be read.
func TestFailedLookup(t *testing.T) {
	custom := kube.Target{APIVersion: "example.org/v1", Kind: "Rollout", Name: "shop"}
	hpa := func(m autoscalingv2.MetricSpec) autoscalingv2.HorizontalPodAutoscaler {
		h := autoscalingv2.HorizontalPodAutoscaler{}
		h.Name, h.Spec.Metrics = "h", []autoscalingv2.MetricSpec{m}
		h.Spec.ScaleTargetRef = autoscalingv2.CrossVersionObjectReference{APIVersion: custom.APIVersion, Kind: custom.Kind, Name: custom.Name}
		return h
	}
	onCPU, onMemory := hpa(ofPod(corev1.ResourceCPU, utilization(80))), hpa(ofPod(corev1.ResourceMemory, utilization(80)))
	writes := VPA{Name: "v", Target: custom, Mode: "Recreate", CPU: map[string]bool{"*": true}}
	off := writes
	off.Mode = "Off"
	failed := map[kube.Target]string{custom: "no answer"}
	for reason, c := range map[string]struct {
		n    NamespaceObjects
		want string
	}{
		"an HPA on CPU":         {NamespaceObjects{HPAs: []autoscalingv2.HorizontalPodAutoscaler{onCPU}, LookupErrors: failed}, "the pods of HorizontalPodAutoscaler h, by its target Rollout/shop: no answer"},
		"a VPA":                 {NamespaceObjects{VPAs: []VPA{writes}, LookupErrors: failed}, "the pods of VerticalPodAutoscaler v, by its target Rollout/shop: no answer"},
		"an HPA on memory":      {NamespaceObjects{HPAs: []autoscalingv2.HorizontalPodAutoscaler{onMemory}, LookupErrors: failed}, ""},
		"a VPA that is off":     {NamespaceObjects{VPAs: []VPA{off}, LookupErrors: failed}, ""},
		"both were read":        {NamespaceObjects{HPAs: []autoscalingv2.HorizontalPodAutoscaler{onCPU}, VPAs: []VPA{writes}}, ""},
		"only a DemandSignal's": {NamespaceObjects{Signals: []Signal{{Target: custom}}, LookupErrors: failed}, ""},
		"another target":        {NamespaceObjects{VPAs: []VPA{writes}, LookupErrors: map[kube.Target]string{kube.Target{APIVersion: "example.org/v1", Kind: "Rollout", Name: "x"}: "no answer"}}, ""},
	} {
		if got := c.n.FailedLookup(podtest.Shop()); got != c.want {
			t.Errorf("%s: %q, want %q", reason, got, c.want)
		}
	}
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

func TestVPAWritesCPU(t *testing.T) {
	policies := func(list ...any) map[string]any {
		return map[string]any{"resourcePolicy": map[string]any{"containerPolicies": list}}
	}
	policy := func(name string, more ...any) map[string]any {
		p := map[string]any{"containerName": name}
		for i := 0; i < len(more); i += 2 {
			p[more[i].(string)] = more[i+1]
		}
		return p
	}
	for name, c := range map[string]struct {
		spec map[string]any
		want bool
	}{
		"by default":              {map[string]any{}, true},
		"off":                     {map[string]any{"updatePolicy": map[string]any{"updateMode": "Off"}}, false},
		"at creation":             {map[string]any{"updatePolicy": map[string]any{"updateMode": "Initial"}}, true},
		"in place":                {map[string]any{"updatePolicy": map[string]any{"updateMode": "InPlaceOrRecreate"}}, true},
		"a mode of the future":    {map[string]any{"updatePolicy": map[string]any{"updateMode": "Quantum"}}, true},
		"memory alone":            {policies(policy("*", "controlledResources", []any{"memory"})), false},
		"memory alone of one":     {policies(policy("app", "controlledResources", []any{"memory"})), true},
		"one container, by name":  {policies(policy("*", "mode", "Off"), policy("proxy", "mode", "Auto")), true},
		"all containers off":      {policies(policy("*", "mode", "Off")), false},
		"all of them off by name": {policies(policy("app", "mode", "Off"), policy("exporter", "mode", "Off"), policy("proxy", "mode", "Off")), false},
		"requests only":           {policies(policy("*", "controlledValues", "RequestsOnly")), true},
		"off, with a boost":       {map[string]any{"updatePolicy": map[string]any{"updateMode": "Off"}, "startupBoost": map[string]any{"cpu": map[string]any{"type": "Factor"}}}, true},
		"a boost of one":          {policies(policy("*", "mode", "Off"), policy("app", "mode", "Off", "startupBoost", map[string]any{"cpu": map[string]any{"type": "Factor"}})), true},
		"cannot be read":          {map[string]any{"resourcePolicy": "what"}, true},
	} {
		c.spec["targetRef"] = map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
		v := VPAOf(&unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "v", "namespace": "shop"}, "spec": c.spec}})
		if got := v.WritesCPU(podtest.Shop()); got != c.want {
			t.Errorf("%s: writes %v, want %v (%+v)", name, got, c.want, v)
		}
		if v.Name != "v" || v.Target != (kube.Target{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}) {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

func TestVPAGoesByTheKind(t *testing.T) {
	for version, want := range map[string]string{"": "apps/v1", "extensions/v1beta1": "apps/v1", "apps/v1": "apps/v1"} {
		ref := map[string]any{"kind": "Deployment", "name": "web", "apiVersion": version}
		v := VPAOf(&unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"targetRef": ref}}})
		if v.Target.APIVersion != want {
			t.Errorf("a Deployment of %q counts as %q", version, v.Target.APIVersion)
		}
	}
	for kind, want := range map[string]string{"CronJob": "batch/v1", "ReplicationController": "v1", "Rollout": "argoproj.io/v1alpha1"} {
		ref := map[string]any{"kind": kind, "name": "web", "apiVersion": "argoproj.io/v1alpha1"}
		if v := VPAOf(&unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"targetRef": ref}}}); v.Target.APIVersion != want {
			t.Errorf("a %s counts as of %q, want %q", kind, v.Target.APIVersion, want)
		}
	}
}

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
		"a limit that the most asks for":        {item{Max: amounts("cpu", "8")}, reasons.LimitRangeRefused, "container exporter: it has no cpu limit"},
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
	// With limits on every container, so that the others are looked at, too.
	pod := podtest.Shop()
	pod.Spec.Containers[1] = podtest.Container("exporter", "20m", "30m")
	for name, c := range map[string]struct {
		item    item
		message string
	}{
		"an init container's limit is never changed": {item{Max: amounts("cpu", "1500m")}, "container migrate: its cpu limit is above the maximum 1500m of LimitRange limits"},
		"nor is its ratio":                           {item{MaxLimitRequestRatio: amounts("cpu", "1900m")}, "container migrate: its cpu limit is above the maximum ratio 1900m of LimitRange limits"},
		"what can be lowered is not refused":         {item{Max: amounts("cpu", "2"), MaxLimitRequestRatio: amounts("cpu", "2")}, ""},
		"no ratio lets it be above its request":      {item{MaxLimitRequestRatio: amounts("cpu", "1")}, "container app: its cpu limit is above the maximum ratio 1 of LimitRange limits"},
	} {
		if _, message := LimitRangeRefusal(pod, podtest.LimitRanges(c.item)); message != c.message {
			t.Errorf("%s: %q, want %q", name, message, c.message)
		}
	}
}

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

// budgets are those that allow no disruption.
func budgets(list ...policyv1.PodDisruptionBudget) []PDB {
	binding, _ := PDBsOf(list, time.Now())
	return binding
}

// TestPDBsOf: a budget that allows a disruption allows decreases once it has for five minutes, or where
// its controller does not say since when.
func TestPDBsOf(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		allowed int32
		since   time.Duration // of its condition; 0: there is none
		status  metav1.ConditionStatus
		binds   bool
		changes time.Duration // from now; 0: it does not by itself
	}{
		"none":                  {0, time.Hour, metav1.ConditionFalse, true, 0},
		"not counted":           {0, 0, "", true, 0},
		"just now":              {1, time.Second, metav1.ConditionTrue, true, 299 * time.Second},
		"for long":              {1, 5 * time.Minute, metav1.ConditionTrue, false, 0},
		"since an unknown time": {1, 0, "", false, 0},
		"the condition is late": {1, time.Second, metav1.ConditionFalse, false, 0},
		"a clock that is ahead": {1, -time.Minute, metav1.ConditionTrue, true, 6 * time.Minute},
	} {
		b := policyv1.PodDisruptionBudget{Status: policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: c.allowed}}
		b.Spec.Selector = &metav1.LabelSelector{}
		if c.since != 0 {
			b.Status.Conditions = []metav1.Condition{{
				Type: policyv1.DisruptionAllowedCondition, Status: c.status, LastTransitionTime: metav1.NewTime(now.Add(-c.since)),
			}}
		}
		want := time.Time{}
		if c.changes != 0 {
			want = now.Add(c.changes)
		}
		list, changes := PDBsOf([]policyv1.PodDisruptionBudget{b}, now)
		if len(list) == 1 != c.binds || !changes.Equal(want) {
			t.Errorf("%s: %d budgets bind until %v, want %v until %v", name, len(list), changes, c.binds, want)
		}
	}
}

// TestConstraintsOf puts together the constraints of several objects.
func TestConstraintsOf(t *testing.T) {
	pod := podtest.Owned("apps/v1", "StatefulSet", "db", map[string]string{"app": "db"})
	target := autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db"}
	hpa := func(name string, metrics ...autoscalingv2.MetricSpec) autoscalingv2.HorizontalPodAutoscaler {
		return autoscalingv2.HorizontalPodAutoscaler{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: autoscalingv2.HorizontalPodAutoscalerSpec{ScaleTargetRef: target, Metrics: metrics},
		}
	}
	pdb := policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "db"},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}},
	}
	allowing, withoutSelector := pdb, pdb
	allowing.Status.DisruptionsAllowed, withoutSelector.Spec.Selector = 1, nil
	lenient, lenientHPA := pdb, hpa("b", ofPod(corev1.ResourceCPU, utilization(100)))
	lenient.Annotations = map[string]string{kube.AllowDecreaseKey: "true"}
	lenientHPA.Annotations = lenient.Annotations
	m := func(m cpu.Milli) *cpu.Milli { return &m }
	floors := []v1alpha1.ContainerConstraints{{Name: "app", Floor: m(120)}, {Name: "proxy", Floor: m(60)}}
	for name, c := range map[string]struct {
		n           NamespaceObjects
		want        v1alpha1.Constraints
		scaledByHPA bool
	}{
		"nothing": {},
		"hpa on memory": {
			n: NamespaceObjects{HPAs: []autoscalingv2.HorizontalPodAutoscaler{hpa("a", ofPod(corev1.ResourceMemory, utilization(80)))}},
		},
		"hpa": {
			NamespaceObjects{HPAs: []autoscalingv2.HorizontalPodAutoscaler{hpa("a", ofPod(corev1.ResourceCPU, utilization(100)))}, PDBs: budgets(pdb)},
			v1alpha1.Constraints{Containers: floors, FloorBy: "HorizontalPodAutoscaler/a", NoDecrease: "ScaledByHPA"}, true,
		},
		"hpa that allows decreases": {
			NamespaceObjects{HPAs: []autoscalingv2.HorizontalPodAutoscaler{lenientHPA}},
			v1alpha1.Constraints{Containers: floors, FloorBy: "HorizontalPodAutoscaler/b"}, true,
		},
		"hpa and a budget": {
			NamespaceObjects{HPAs: []autoscalingv2.HorizontalPodAutoscaler{lenientHPA}, PDBs: budgets(pdb)},
			v1alpha1.Constraints{Containers: floors, FloorBy: "HorizontalPodAutoscaler/b", NoDecrease: "NoDisruptionAllowed"}, true,
		},
		"a namespace that keeps declared limits": {
			NamespaceObjects{KeepsDeclared: "shop", HPAs: []autoscalingv2.HorizontalPodAutoscaler{lenientHPA}},
			v1alpha1.Constraints{
				Containers: []v1alpha1.ContainerConstraints{{Name: "app", Floor: m(500)}, {Name: "proxy", Floor: m(200)}},
				FloorBy:    "HorizontalPodAutoscaler/b, Namespace/shop",
			}, true,
		},
		"budgets that do not matter": {n: NamespaceObjects{PDBs: budgets(allowing, withoutSelector, lenient)}},
		"limit ranges": {
			NamespaceObjects{LimitRanges: append(
				podtest.LimitRanges(item{Min: amounts("cpu", "45m"), Max: amounts("cpu", "1.5"), MaxLimitRequestRatio: amounts("cpu", "12.5")}),
				corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "pods"}, Spec: corev1.LimitRangeSpec{Limits: []item{
					{Type: corev1.LimitTypePod, Min: amounts("cpu", "300m"), Max: amounts("cpu", "4"), MaxLimitRequestRatio: amounts("cpu", "10")},
					{Type: corev1.LimitTypePersistentVolumeClaim, Max: amounts("storage", "1Gi")},
				}}},
			)},
			v1alpha1.Constraints{
				// Of the 300m that the pod has at least, 5/7 and 2/7, in whole quanta.
				Containers: []v1alpha1.ContainerConstraints{{Name: "app", Floor: m(220), Ceiling: m(1250)}, {Name: "proxy", Floor: m(90), Ceiling: m(625)}},
				// Ten times what the init container requests is more than the most.
				Ceiling: m(4000), FloorBy: "LimitRange/limits, LimitRange/pods", CeilingBy: "LimitRange/limits, LimitRange/pods",
			}, false,
		},
	} {
		got, scaledByHPA := c.n.ConstraintsOf(pod, kube.Limits(pod))
		if diff := cmp.Diff(c.want, got); diff != "" || scaledByHPA != c.scaledByHPA {
			t.Errorf("%s: scaledByHPA %v\n%s", name, scaledByHPA, diff)
		}
	}
}

func TestRefusal(t *testing.T) {
	n := NamespaceObjects{Quotas: []corev1.ResourceQuota{{ObjectMeta: metav1.ObjectMeta{Name: "compute"}, Spec: corev1.ResourceQuotaSpec{Hard: amounts("limits.cpu", "9")}}}}
	if r, message := n.Refusal(podtest.Shop()); r != reasons.QuotaNeedsLimits || message != "ResourceQuota compute requires limits.cpu of container exporter" {
		t.Errorf("%v %q", r, message)
	}
	n.Quotas[0].Spec.Scopes = []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeTerminating}
	if r, message := n.Refusal(podtest.Shop()); r != "" {
		t.Errorf("a quota that does not select the pod refuses it: %v %q", r, message)
	}
	n.LimitRanges = podtest.LimitRanges(item{Default: amounts("cpu", "1")})
	if r, _ := n.Refusal(podtest.Shop()); r != reasons.AdmissionWouldMutate {
		t.Errorf("%v", r)
	}
}

func TestVPAFor(t *testing.T) {
	vpa := VPA{Name: "db", Mode: "Recreate", CPU: map[string]bool{"*": true}, Target: kube.Target{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db"}}
	n := NamespaceObjects{VPAs: []VPA{vpa}}
	if name, ok := n.VPAFor(podtest.Owned("apps/v1", "StatefulSet", "db", nil)); !ok || name != "db" {
		t.Errorf("%q %v", name, ok)
	}
	if name, ok := n.VPAFor(podtest.Shop()); ok {
		t.Errorf("a pod without an owner is written by VPA %s", name)
	}
}

// TestSignalsMultiplyDemand: a pod of web with labels app=shop.
func TestSignalsMultiplyDemand(t *testing.T) {
	web, rollout := kube.Target{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}, kube.Target{APIVersion: "example.com/v1", Kind: "Rollout", Name: "shop"}
	yes := true
	pod := podtest.Shop()
	pod.Labels = map[string]string{"app": "shop", "pod-template-hash": "abc"}
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-abc", Controller: &yes}}
	for name, tt := range map[string]struct {
		asks    []Signal
		percent int32 // 0: none
		by      string
	}{
		"no match":          {nil, 0, ""},
		"one":               {[]Signal{{"a", web, 150}}, 150, "DemandSignal/a"},
		"for as much as is": {[]Signal{{"a", web, 100}}, 0, ""},
		"without a say":     {[]Signal{{"a", web, 0}}, 0, ""},
		"the most of three": {[]Signal{{"a", web, 150}, {"b", web, 300}, {"c", web, 120}}, 300, "DemandSignal/b"},
		"two as much":       {[]Signal{{"b", web, 150}, {"a", web, 150}, {"c", web, 120}}, 150, "DemandSignal/a, DemandSignal/b"},
		"for another":       {[]Signal{{"a", kube.Target{APIVersion: "apps/v1", Kind: "Deployment", Name: "other"}, 150}}, 0, ""},
		"by its labels":     {[]Signal{{"a", rollout, 170}}, 170, "DemandSignal/a"},
		"by labels of none": {[]Signal{{"a", kube.Target{APIVersion: "example.com/v1", Kind: "Rollout", Name: "none"}, 170}}, 0, ""},
		"beside another's":  {[]Signal{{"a", kube.Target{APIVersion: "apps/v1", Kind: "Deployment", Name: "other"}, 300}, {"b", web, 110}}, 110, "DemandSignal/b"},
	} {
		n := NamespaceObjects{Signals: tt.asks, Selectors: map[kube.Target]labels.Selector{rollout: labels.SelectorFromSet(labels.Set{"app": "shop"})}}
		constraints, scaledByHPA := n.ConstraintsOf(pod, []v1alpha1.ContainerLimit{{Name: "app", CPULimit: 500}})
		if ptr.Deref(constraints.DemandPercent, 0) != tt.percent || constraints.DemandBy != tt.by || scaledByHPA {
			t.Errorf("%s: %d %% by %q", name, ptr.Deref(constraints.DemandPercent, 0), constraints.DemandBy)
		}
	}
	if n := (NamespaceObjects{Signals: []Signal{{"a", web, 150}}}); true {
		if constraints, _ := n.ConstraintsOf(&corev1.Pod{}, nil); constraints.DemandPercent != nil {
			t.Errorf("an unmatched pod: %+v", constraints)
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
