package agent

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/round"
)

func cpus(s string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(s), corev1.ResourceMemory: resource.MustParse("1Gi")}
}

func newNode() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "node-1", Labels: map[string]string{"a": "b"}},
		Status: corev1.NodeStatus{
			Capacity: cpus("4"), Allocatable: cpus("3500m"),
			Conditions: []corev1.NodeCondition{
				{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
				{Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue, Message: "full"},
			},
			Images: []corev1.ContainerImage{{Names: []string{"a:1"}}},
		},
	}
}

// newPod is a running pod with a container, a sidecar and an init container that has ended.
func newPod(name string) *corev1.Pod {
	always, priority := corev1.ContainerRestartPolicyAlways, int32(2000)
	container := func(name string) corev1.Container {
		resources := corev1.ResourceRequirements{Requests: cpus("100m"), Limits: cpus("500m")}
		return corev1.Container{Name: name, Image: "a:1", Resources: resources}
	}
	status := func(name, id string, state corev1.ContainerState) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: name, ContainerID: "containerd://" + id, Ready: true, State: state}
	}
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
	side := container("side")
	side.RestartPolicy = &always
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "shop", UID: types.UID("uid-" + name), Labels: map[string]string{"a": "b"},
			Annotations: map[string]string{
				kube.MaxCPUKey: "800m", "kubernetes.io/config.hash": "hash-" + name,
				corev1.MirrorPodAnnotationKey: "m", "other": "long",
			},
		},
		Spec: corev1.PodSpec{
			NodeName: "n1", Priority: &priority, Volumes: []corev1.Volume{{Name: "v"}},
			Containers: []corev1.Container{container("app")}, InitContainers: []corev1.Container{container("first"), side},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, QOSClass: corev1.PodQOSBurstable,
			ContainerStatuses: []corev1.ContainerStatus{status("app", name+"-app", running)},
			InitContainerStatuses: []corev1.ContainerStatus{
				status("first", "ended", ended), status("side", name+"-side", running),
			},
		},
	}
}

func newAllocation(pod *corev1.Pod) *v1alpha1.PodAllocation {
	pa := allocation.New(pod)
	pa.UID, pa.Generation = types.UID("pa-"+pod.Name), 3
	d := round.Decision{
		Limit: 700, Containers: []round.ContainerLimit{{Name: "app", Limit: 400}, {Name: "side", Limit: 300}},
		Demand: 250, Price: 0.5, Floor: 220, Ceiling: 800,
	}
	spec := allocation.DecisionSpec(d, demand.Weights{}, round.NodeDecision{}, t0)
	pa.Spec.DesiredCPULimit, pa.Spec.Containers, pa.Spec.Decision = spec.DesiredCPULimit, spec.Containers, spec.Decision
	pa.Status.DeclaredLimits = kube.Limits(pod)
	floor, fair := cpu.Milli(250), int32(150)
	pa.Status.Constraints = &v1alpha1.Constraints{
		Containers:          []v1alpha1.ContainerConstraints{{Name: "app", Floor: &floor}},
		CoordinationPercent: &fair,
	}
	pa.Status.Message = "long"
	return pa
}

// TestTrimChangesNoSnapshot: a snapshot of trimmed objects is that of whole ones.
func TestTrimChangesNoSnapshot(t *testing.T) {
	pod, node := newPod("a"), newNode()
	pa := newAllocation(pod)
	whole := newSnapshot("n1", node, []*corev1.Pod{pod}, map[string]*v1alpha1.PodAllocation{pa.Name: pa}, t0)
	trimmed := make([]any, 3)
	for i, o := range []any{node, pod, pa} {
		var err error
		if trimmed[i], err = trim(o); err != nil {
			t.Fatal(err)
		}
	}
	small := trimmed[2].(*v1alpha1.PodAllocation)
	got := newSnapshot("n1", trimmed[0].(*corev1.Node), []*corev1.Pod{trimmed[1].(*corev1.Pod)},
		map[string]*v1alpha1.PodAllocation{small.Name: small}, t0)
	if d := cmp.Diff(whole, got); d != "" {
		t.Errorf("snapshot of trimmed objects (-whole +trimmed):\n%s", d)
	}
	if p := got.Pods[0]; p.Unmanaged || p.Published.Limits["app"] != 400 || got.Node.Pressures != 1 ||
		p.Ceiling != 800 || p.Containers[0].Floor != 250 {
		t.Errorf("the objects say too little to show anything: %+v", got)
	}
	if p := trimmed[1].(*corev1.Pod); p.Labels != nil || p.Spec.Volumes != nil ||
		len(p.Spec.Containers[0].Resources.Limits) != 1 {
		t.Errorf("not trimmed: %+v", p)
	}
}

func TestSnapshot(t *testing.T) {
	deleted := metav1.NewTime(t0)
	for name, c := range map[string]struct {
		pod       func(*corev1.Pod)
		pa        func(*v1alpha1.PodAllocation)
		absent    bool // it is no input of the round
		unmanaged bool
		published time.Time
	}{
		"managed":                                   {published: t0},
		"a pod that does not run has no cgroup":     {absent: true, pod: func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }},
		"neither has one that has ended":            {absent: true, pod: func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }},
		"a pod that is being deleted only uses CPU": {unmanaged: true, pod: func(p *corev1.Pod) { p.DeletionTimestamp = &deleted }},
		"without declared limits nothing is decided": {
			unmanaged: true, published: t0, pa: func(pa *v1alpha1.PodAllocation) { pa.Status.DeclaredLimits = nil },
		},
		"an object in another namespace is not that of this pod": {
			unmanaged: true, pa: func(pa *v1alpha1.PodAllocation) { pa.Namespace = "other" },
		},
		"a decision from the future counts as old": {
			published: time.Unix(0, 0),
			pa:        func(pa *v1alpha1.PodAllocation) { pa.Spec.Decision.ObservedAt = metav1.NewMicroTime(t0.Add(time.Hour)) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := newPod("a")
			pa := newAllocation(pod)
			if c.pa != nil {
				c.pa(pa)
			}
			if c.pod != nil {
				c.pod(pod)
			}
			all := map[string]*v1alpha1.PodAllocation{pa.Name: pa}
			s := newSnapshot("n1", newNode(), []*corev1.Pod{pod}, all, t0.Add(time.Second))
			want := 1
			if c.absent {
				want = 0
			}
			if s.NotReady != "" || len(s.Pods) != want || len(s.Refs) != want || len(s.Targets) != want {
				t.Fatalf("%+v", s)
			}
			if c.absent {
				return
			}
			if p := s.Pods[0]; p.Unmanaged != c.unmanaged || !p.Published.At.Equal(c.published) {
				t.Errorf("unmanaged %v, published %v; want %v, %v", p.Unmanaged, p.Published.At, c.unmanaged, c.published)
			}
			if d := cmp.Diff([]string{"a-app", "a-side"}, s.Targets[0].Containers); d != "" || s.Targets[0].Pod != "hash-a" {
				t.Errorf("target %+v: want the hash of the static pod, and its running containers", s.Targets[0])
			}
		})
	}
}

// TestSnapshotOrder: the order of the objects makes no difference.
func TestSnapshotOrder(t *testing.T) {
	a, b, c := newPod("a"), newPod("b"), newPod("c")
	c.Namespace = "alpha"
	one := newSnapshot("n1", newNode(), []*corev1.Pod{a, b, c}, nil, t0)
	two := newSnapshot("n1", newNode(), []*corev1.Pod{b, c, a}, nil, t0)
	if d := cmp.Diff(one, two); d != "" || one.Refs[0].Name != "c" {
		t.Errorf("order of input shows (-one +two):\n%s", d)
	}
}

func TestSnapshotNotReady(t *testing.T) {
	bare := newNode()
	bare.Status.Allocatable = nil
	for reason, node := range map[string]*corev1.Node{"no node": nil, "no allocatable CPU": bare} {
		if v := newSnapshot("n1", node, nil, nil, t0); v.NotReady == "" {
			t.Errorf("%s: a round would run with %v", reason, v.Node)
		}
	}
}

// TestOwnWritesCountAtOnce: what the API server answered is believed until the watch has caught up.
func TestOwnWritesCountAtOnce(t *testing.T) {
	pod := newPod("a")
	seen := newAllocation(pod)
	limit := func(f *informers, pa *v1alpha1.PodAllocation) cpu.Milli {
		all := map[string]*v1alpha1.PodAllocation{pa.Name: pa}
		f.mergeWritten(all)
		return all[pa.Name].Spec.Containers[0].CPULimit
	}
	own := seen.DeepCopy()
	own.Generation++
	own.Spec.Containers[0].CPULimit = 450
	f := newInformers(clients{}, "n1", nil)
	if got := limit(f, seen); got != 400 {
		t.Errorf("before the write: %v", got)
	}
	f.recordWrite(own)
	if got := limit(f, seen); got != 450 {
		t.Errorf("while the watch is behind: %v, want what was written", got)
	}
	later := own.DeepCopy()
	later.Spec.Containers[0].CPULimit = 500
	if got := limit(f, later); got != 500 || len(f.written) != 0 {
		t.Errorf("after the watch caught up: %v with %d writes remembered, want what it says", got, len(f.written))
	}
	f.recordWrite(own)
	anew := seen.DeepCopy()
	anew.UID, anew.Generation = "another", 1
	if got := limit(f, anew); got != 400 || len(f.written) != 0 {
		t.Errorf("an object made anew: %v, want what it says", got)
	}
}
