package kube

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/eligibility"
	"github.com/mbcas/mbcas/internal/round"
	"github.com/mbcas/mbcas/market"
)

func cpuList(q string) corev1.ResourceList {
	if q == "" {
		return nil
	}
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(q), corev1.ResourceMemory: resource.MustParse("64Mi")}
}

func newContainer(name, request, limit string) corev1.Container {
	return corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Requests: cpuList(request), Limits: cpuList(limit)}}
}

func status(name string) corev1.ContainerStatus {
	return corev1.ContainerStatus{
		Name: name, ContainerID: "containerd://" + name + "-id", Resources: &corev1.ResourceRequirements{},
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
	}
}

// shopPod has a limited application, an unlimited exporter, a limited sidecar, and an init container that is done.
func shopPod() *corev1.Pod {
	always := corev1.ContainerRestartPolicyAlways
	sidecar := newContainer("proxy", "50m", "200m")
	sidecar.RestartPolicy = &always
	priority := int32(4000)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "shop-1", Namespace: "shop", UID: "u-1", Annotations: map[string]string{}, Labels: map[string]string{}},
		Spec: corev1.PodSpec{
			NodeName: "n", Priority: &priority,
			InitContainers: []corev1.Container{newContainer("migrate", "1", "2"), sidecar},
			Containers:     []corev1.Container{newContainer("app", "100m", "500m"), newContainer("exporter", "20m", "")},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, QOSClass: corev1.PodQOSBurstable,
			ContainerStatuses:     []corev1.ContainerStatus{status("exporter"), status("app")},
			InitContainerStatuses: []corev1.ContainerStatus{status("proxy")},
		},
	}
}

func limits(pairs ...any) (l []v1alpha1.ContainerLimit) {
	for i := 0; i < len(pairs); i += 2 {
		l = append(l, v1alpha1.ContainerLimit{Name: pairs[i].(string), CPULimit: cpu.Milli(pairs[i+1].(int))})
	}
	return l
}

func recorded(pod *corev1.Pod) *v1alpha1.PodAllocation {
	pa := NewAllocation(pod)
	pa.Status.DeclaredLimits = Limits(pod)
	return pa
}

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
	got := Limits(shopPod())
	if diff := cmp.Diff(limits("app", 500, "proxy", 200), got); diff != "" {
		t.Errorf("limits of the application and the sidecar, nothing else:\n%s", diff)
	}
	if Total(got) != 700 {
		t.Errorf("total %v, want 700m", Total(got))
	}
	if !SameLimits(got, limits("proxy", 200, "app", 500)) || SameLimits(got, limits("app", 500)) || SameLimits(got, limits("app", 500, "proxy", 210)) {
		t.Error("limits are the same whatever their order, and only then")
	}
}

func TestFacts(t *testing.T) {
	if r, ok := eligibility.Eligible(Facts(shopPod(), ModeEnforce, SystemNamespace)); !ok {
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
		p := shopPod()
		c.change(p)
		if r, ok := eligibility.Eligible(Facts(p, ModeEnforce, SystemNamespace)); ok || r != c.want {
			t.Errorf("want %v, got %v (eligible %v)", c.want, r, ok)
		}
	}
	if r, _ := eligibility.Eligible(Facts(shopPod(), ModeOff, SystemNamespace)); r != reasons.NamespaceOff {
		t.Errorf("mode off: %v", r)
	}
	memory := shopPod()
	memory.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceMemory, RestartPolicy: corev1.RestartContainer}}
	if r, ok := eligibility.Eligible(Facts(memory, ModeEnforce, SystemNamespace)); !ok {
		t.Errorf("a restart policy for memory keeps the pod out: %v", r)
	}
}

func TestBounds(t *testing.T) {
	p := shopPod()
	declared := Limits(p)
	m := func(m cpu.Milli) *cpu.Milli { return &m }
	for name, c := range map[string]struct {
		own         string // mbcas.io/max-cpu
		app         string // its limit
		allocatable cpu.Milli
		terms       *v1alpha1.Terms
		want        Bounds
	}{
		"the node's": {"", "500m", 2005, nil, Bounds{Containers: map[string]Bound{"app": {110, 2000}, "proxy": {100, 2000}}}},
		"max-cpu":    {"1.005", "500m", 2000, nil, Bounds{Containers: map[string]Bound{"app": {110, 2000}, "proxy": {100, 2000}}, Ceiling: 1000}},
		"no ceiling is below the floors": {
			"10m", "500m", 2000, nil,
			Bounds{Containers: map[string]Bound{"app": {110, 2000}, "proxy": {100, 2000}}, Ceiling: 210},
		},
		"terms": {
			"1", "500m", 2000,
			&v1alpha1.Terms{Containers: []v1alpha1.ContainerTerms{{Name: "app", Floor: m(333), Ceiling: m(777)}, {Name: "proxy", Ceiling: m(105)}}, Ceiling: m(904)},
			Bounds{Containers: map[string]Bound{"app": {340, 770}, "proxy": {100, 100}}, Ceiling: 900},
		},
		"a ceiling caps what is asked for": {
			"", "500m", 2000,
			&v1alpha1.Terms{Containers: []v1alpha1.ContainerTerms{{Name: "app", Floor: m(3000), Ceiling: m(777)}, {Name: "proxy", Floor: m(3000)}}},
			Bounds{Containers: map[string]Bound{"app": {770, 770}, "proxy": {2000, 2000}}},
		},
		"so does that of the pod": {
			"", "500m", 2000,
			&v1alpha1.Terms{Containers: []v1alpha1.ContainerTerms{{Name: "app", Floor: m(500)}, {Name: "proxy", Floor: m(300)}}, Ceiling: m(490)},
			// 390 and 240 above what they request and 10m share the 320 that 490 leaves above these.
			Bounds{Containers: map[string]Bound{"app": {300, 2000}, "proxy": {180, 2000}}, Ceiling: 490},
		},
		"but not the pod's own": {
			"300m", "500m", 2000, &v1alpha1.Terms{Containers: []v1alpha1.ContainerTerms{{Name: "app", Floor: m(600)}}},
			Bounds{Containers: map[string]Bound{"app": {600, 2000}, "proxy": {100, 2000}}, Ceiling: 700},
		},
		"nothing fits a container's ceiling": {
			"", "500m", 2000, &v1alpha1.Terms{Containers: []v1alpha1.ContainerTerms{{Name: "app", Floor: m(600), Ceiling: m(105)}}},
			Bounds{Containers: map[string]Bound{"app": {500, 500}, "proxy": {100, 2000}}},
		},
		"nothing fits the pod's ceiling": {
			"", "500m", 2000, &v1alpha1.Terms{Ceiling: m(160)}, // 110 and 60 at least
			Bounds{Containers: map[string]Bound{"app": {500, 500}, "proxy": {200, 200}}, Ceiling: 700},
		},
		"a pod's own ceiling below that of its terms": {"800m", "500m", 2000, &v1alpha1.Terms{Ceiling: m(900)}, Bounds{Containers: map[string]Bound{"app": {110, 2000}, "proxy": {100, 2000}}, Ceiling: 800}},
		"not to be lowered": {
			"", "453m", 2000, &v1alpha1.Terms{NoDecrease: "ScaledByHPA"},
			Bounds{Containers: map[string]Bound{"app": {453, 2000}, "proxy": {200, 2000}}}, // nor raised to a whole quantum
		},
		"not to be lowered, save to its ceiling": {
			"", "1500m", 2000, &v1alpha1.Terms{NoDecrease: "ScaledByHPA", Ceiling: m(600)},
			// 390 and 100 above the floors share the 390 that 600 leaves above them.
			Bounds{Containers: map[string]Bound{"app": {420, 2000}, "proxy": {180, 2000}}, Ceiling: 600},
		},
		"not to be lowered, save to a container's ceiling": {
			"", "1500m", 2000, &v1alpha1.Terms{NoDecrease: "ScaledByHPA", Containers: []v1alpha1.ContainerTerms{{Name: "app", Ceiling: m(400)}}},
			Bounds{Containers: map[string]Bound{"app": {400, 400}, "proxy": {200, 2000}}},
		},
	} {
		delete(p.Annotations, MaxCPUKey)
		if c.own != "" {
			p.Annotations[MaxCPUKey] = c.own
		}
		p.Spec.Containers[0].Resources.Limits[corev1.ResourceCPU] = resource.MustParse(c.app)
		if diff := cmp.Diff(c.want, BoundsOf(p, declared, c.allocatable, c.terms)); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}

func TestBidder(t *testing.T) {
	p := shopPod()
	budget := market.Budget(340) // requests of 170m at the weight 1 + log2(4)/2
	containers := func(declared ...cpu.Milli) []demand.Container {
		c := []demand.Container{
			{Name: "app", ID: "app-id", Request: 100, Limit: 500},
			{Name: "exporter", ID: "exporter-id", Request: 20},
			{Name: "proxy", ID: "proxy-id", Request: 50, Limit: 200},
		}
		if declared != nil {
			c[0].Declared, c[0].Floor, c[0].Ceiling = declared[0], 110, 2000
			c[2].Declared, c[2].Floor, c[2].Ceiling = declared[1], 100, 2000
		}
		return c
	}
	weights := demand.Weights{PriorityPercent: 200}
	shadow := demand.Pod{UID: "u-1", Budget: budget, Weights: weights, Unmanaged: true, Containers: containers()}
	if diff := cmp.Diff(shadow, Bidder(p, nil, 2000)); diff != "" {
		t.Errorf("without an allocation:\n%s", diff)
	}
	if diff := cmp.Diff(shadow, Bidder(p, NewAllocation(p), 2000)); diff != "" {
		t.Errorf("before its declared limits are recorded:\n%s", diff)
	}
	stranger := recorded(p)
	stranger.Spec.PodRef.UID = "u-0"
	if diff := cmp.Diff(shadow, Bidder(p, stranger, 2000)); diff != "" {
		t.Errorf("with the allocation of an earlier pod of its name:\n%s", diff)
	}
	want := demand.Pod{UID: "u-1", Budget: budget, Weights: weights, Containers: containers(500, 200)}
	if diff := cmp.Diff(want, Bidder(p, recorded(p), 2000)); diff != "" {
		t.Errorf("managed:\n%s", diff)
	}
	bent, fair, slo, most := recorded(p), int32(150), int32(120), cpu.Milli(1500)
	bent.Status.Terms = &v1alpha1.Terms{FairnessPercent: &fair, DemandPercent: &slo, Ceiling: &most, RaiseOnNeed: true, NoDecrease: "ScaledByHPA"}
	want.FairnessPercent, want.Budget, want.DemandPercent = 150, 510, 120
	want.Ceiling, want.RaiseOnNeed = 1500, true
	want.Containers[0].Floor, want.Containers[2].Floor = 500, 200
	if diff := cmp.Diff(want, Bidder(p, bent, 2000)); diff != "" {
		t.Errorf("under terms:\n%s", diff)
	}
	p.Status.ContainerStatuses[1].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}
	if id := Bidder(p, recorded(p), 2000).Containers[0].ID; id != "" {
		t.Errorf("a container that waits has the ID %q", id)
	}
}

func TestStateAndSpecAgree(t *testing.T) {
	p := shopPod()
	pa := recorded(p)
	at := time.Date(2026, 1, 1, 0, 0, 0, 123456000, time.UTC)
	d := round.Decision{
		UID: "u-1", Limit: 1000, Containers: []round.ContainerLimit{{Name: "app", Limit: 800}, {Name: "proxy", Limit: 200}},
		Demand: 700, Usage: 650, ThrottleRatio: 0.256, Pressure: 1.7, PressureKnown: true, Budget: 340, Price: 0.34, Floor: 210, Ceiling: 4000,
		Bound: market.ByPrice,
	}
	spec := Spec(d, demand.Weights{PriorityPercent: 200, FairnessPercent: 120}, round.NodeDecision{}, at)
	if spec.Decision.PriorityPercent != 200 || *spec.Decision.FairnessPercent != 120 || Spec(d, demand.Weights{}, round.NodeDecision{}, at).Decision.FairnessPercent != nil {
		t.Errorf("weights of the budget: %+v", spec.Decision)
	}
	if *spec.DesiredCPULimit != 1000 || spec.Decision.Throttled != 26 || *spec.Decision.Pressure != 100 || spec.Decision.Price != "0.340" || spec.Decision.BoundBy != v1alpha1.BoundByPrice {
		t.Errorf("spec %+v, decision %+v", spec, spec.Decision)
	}
	pa.Spec.DesiredCPULimit, pa.Spec.Containers, pa.Spec.Decision = spec.DesiredCPULimit, spec.Containers, spec.Decision
	want := round.Published{At: at, Limits: map[string]cpu.Milli{"app": 800, "proxy": 200}, Demand: 700, Price: 0.34}
	if diff := cmp.Diff(want, Published(pa)); diff != "" {
		t.Errorf("what was written reads otherwise:\n%s", diff)
	}
	pa.Generation, pa.Status.ObservedGeneration, pa.Status.Reason = 7, 7, string(reasons.DecisionTooOld)
	want.At = time.Time{}
	if diff := cmp.Diff(want, Published(pa)); diff != "" {
		t.Errorf("a decision that the controller finds too old is not to be published anew:\n%s", diff)
	}
	pa.Generation++
	if got := Published(pa).At; !got.Equal(at) {
		t.Errorf("published at %v, want %v: it was published anew, and the controller has yet to look", got, at)
	}
	d.Price = 2.0 / 57_600 // budgets of 2 on a node of 64 cores
	if got := Published(&v1alpha1.PodAllocation{Spec: Spec(d, demand.Weights{}, round.NodeDecision{}, at)}).Price; got == 0 {
		t.Error("a small price that holds a pod reads as none")
	}
	if !Published(nil).At.IsZero() || !Published(recorded(p)).At.IsZero() {
		t.Error("an allocation without a decision counts as published")
	}

	lowered := metav1.NewMicroTime(at)
	pa.Status.LastDecreaseTime = &lowered
	state := actuator.Pod{UID: "u-1", LastDecrease: at, Containers: []actuator.Container{
		{Name: "app", Limit: 500, Declared: 500, Floor: 110, Ceiling: 2000, Desired: 800},
		{Name: "proxy", Limit: 200, Declared: 200, Floor: 100, Ceiling: 2000, Desired: 200},
	}}
	if diff := cmp.Diff(state, State(p, pa, 2000)); diff != "" {
		t.Error(diff)
	}
	most := cpu.Milli(800)
	pa.Status.Terms = &v1alpha1.Terms{Ceiling: &most}
	capped := state
	capped.Containers = slices.Clone(state.Containers)
	capped.Containers[0].Desired, capped.Containers[1].Desired = 620, 170 // 690 and 100 above the floors, of which 590 are left
	if diff := cmp.Diff(capped, State(p, pa, 2000)); diff != "" {
		t.Errorf("wanted is more than the pod's ceiling:\n%s", diff)
	}
	p.Spec.Containers[0].Resources.Limits = cpuList("700m")
	capped.Containers[0].Limit, capped.Containers[0].Ceiling, capped.Containers[1].Ceiling = 700, 620, 170
	if diff := cmp.Diff(capped, State(p, pa, 2000)); diff != "" {
		t.Errorf("the pod is above its ceiling:\n%s", diff)
	}
	p.Spec.Containers[0].Resources.Limits = cpuList("500m")
	pa.Status.Terms = nil
	// A container that was given a limit after the record is nobody's to move.
	p.Spec.Containers[1].Resources.Limits = cpuList("1")
	if diff := cmp.Diff(state, State(p, pa, 2000)); diff != "" {
		t.Error(diff)
	}
}

func TestNode(t *testing.T) {
	n := &corev1.Node{Status: corev1.NodeStatus{
		Capacity: cpuList("2"), Allocatable: cpuList("1600m"),
		Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
			{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionTrue},
			{Type: corev1.NodeDiskPressure, Status: corev1.ConditionUnknown},
			{Type: corev1.NodePIDPressure, Status: corev1.ConditionTrue},
		},
	}}
	if got, want := Node(n), (round.Node{Capacity: 2000, Allocatable: 1600, Pressures: 2}); got != want {
		t.Errorf("Node = %+v, want %+v", got, want)
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
	p := shopPod()
	if CgroupPod(p) != "u-1" {
		t.Errorf("a pod's cgroup is named by its UID, not %q", CgroupPod(p))
	}
	p.Annotations["kubernetes.io/config.hash"] = "abc"
	if CgroupPod(p) != "u-1" {
		t.Errorf("an ordinary pod points at another's cgroup, %q", CgroupPod(p))
	}
	p.Annotations[corev1.MirrorPodAnnotationKey] = "abc"
	if CgroupPod(p) != "abc" {
		t.Errorf("a static pod's cgroup is named by its config hash, not %q", CgroupPod(p))
	}
}

func TestBadAnnotationNamesThePod(t *testing.T) {
	p := shopPod()
	p.Annotations[MaxCPUKey] = "lots"
	if _, err := maxCPU(p); err == nil || !strings.Contains(err.Error(), "shop/shop-1") || !strings.Contains(err.Error(), "lots") {
		t.Errorf("error %v: want the pod, the annotation and its value", err)
	}
}
