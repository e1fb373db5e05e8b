package agent

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/agent/objects"
	"github.com/mbcas/mbcas/internal/agent/recording"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/record"
	"github.com/mbcas/mbcas/internal/round"
	"github.com/mbcas/mbcas/internal/testing/podtest"
	"github.com/mbcas/mbcas/internal/testing/recordings"
)

func newNode() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "node-1", Labels: map[string]string{"a": "b"}},
		Status: corev1.NodeStatus{
			Capacity: podtest.CPU("4"), Allocatable: podtest.CPU("3500m"),
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
	status := func(name, id string, state corev1.ContainerState) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: name, ContainerID: "containerd://" + id, Ready: true, State: state}
	}
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
	app, first, side := podtest.Container("app", "100m", "500m"), podtest.Container("first", "100m", "500m"), podtest.Container("side", "100m", "500m")
	app.Image, side.RestartPolicy = "a:1", &always
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "shop", UID: types.UID("uid-" + name), Labels: map[string]string{"a": "b"},
			Annotations: map[string]string{
				kube.MaxCPUKey: "800m", "kubernetes.io/config.hash": "hash-" + name,
				corev1.MirrorPodAnnotationKey: "m", "other": "long",
			},
		},
		Spec: corev1.PodSpec{
			NodeName: "n1", Priority: &priority, Overhead: podtest.Amounts("cpu", "10m", "memory", "1Mi"), Volumes: []corev1.Volume{{Name: "v"}},
			Containers: []corev1.Container{app}, InitContainers: []corev1.Container{first, side},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, QOSClass: corev1.PodQOSBurstable, ObservedGeneration: 3,
			Conditions:        []corev1.PodCondition{{Type: corev1.PodResizeInProgress, Status: corev1.ConditionTrue}},
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
	pa.Status.Message = "long"
	return pa
}

// toldOf is what the agent is told about the pods of these PodAllocations.
func toldOf(list ...*v1alpha1.PodAllocation) *v1alpha1.NodeAllocation {
	floor, fair := cpu.Milli(250), int32(150)
	n := allocation.NewNode("n1", "node-1")
	n.Annotations = map[string]string{"long": "text"}
	for _, pa := range list {
		n.Spec.Pods = append(n.Spec.Pods, v1alpha1.NodePod{
			UID: pa.Spec.PodRef.UID, AllocationUID: pa.UID, DeclaredLimits: pa.Status.DeclaredLimits,
			Constraints: &v1alpha1.Constraints{
				Containers:          []v1alpha1.ContainerConstraints{{Name: "app", Floor: &floor}},
				CoordinationPercent: &fair,
			},
		})
	}
	return n
}

// TestTrimChangesNoSnapshot: a snapshot of trimmed objects is that of whole ones.
func TestTrimChangesNoSnapshot(t *testing.T) {
	pod, node := newPod("a"), newNode()
	pa := newAllocation(pod)
	told, published := toldOf(pa), map[types.UID]round.Published{pa.UID: allocation.Published(pa)}
	whole, _ := newSnapshot("n1", node, []*corev1.Pod{pod}, told, published)
	trimmed := make([]any, 3)
	for i, o := range []any{node, pod, told} {
		var err error
		if trimmed[i], err = objects.Trim(o); err != nil {
			t.Fatal(err)
		}
	}
	got, unread := newSnapshot("n1", trimmed[0].(*corev1.Node), []*corev1.Pod{trimmed[1].(*corev1.Pod)},
		trimmed[2].(*v1alpha1.NodeAllocation), published)
	if d := cmp.Diff(whole, got); d != "" || len(unread) != 0 {
		t.Errorf("snapshot of trimmed objects (-whole +trimmed), unread %v:\n%s", unread, d)
	}
	if q := got.Quotas[0]; q.CPU == 0 || q.Settled {
		t.Errorf("quota %+v, want one that a resize is about to change", q)
	}
	if p := got.Pods[0]; p.Unmanaged || p.Published.Limits["app"] != 400 || got.Node.Pressures != 1 ||
		p.Ceiling != 800 || p.Containers[0].Floor != 250 || !got.Told {
		t.Errorf("the objects say too little to show anything: %+v", got)
	}
	if p := trimmed[1].(*corev1.Pod); p.Labels != nil || p.Spec.Volumes != nil ||
		len(p.Spec.Containers[0].Resources.Limits) != 1 || trimmed[2].(*v1alpha1.NodeAllocation).Annotations != nil {
		t.Errorf("not trimmed: %+v", p)
	}
}

func TestSnapshot(t *testing.T) {
	deleted := metav1.NewTime(t0)
	for name, c := range map[string]struct {
		pod       func(*corev1.Pod)
		told      func(*v1alpha1.NodePod)
		absent    bool // it is no input of the round
		unmanaged bool
		unread    bool
	}{
		"managed":                                   {},
		"a pod that does not run has no cgroup":     {absent: true, pod: func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }},
		"neither has one that has ended":            {absent: true, pod: func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }},
		"a pod that is being deleted only uses CPU": {unmanaged: true, pod: func(p *corev1.Pod) { p.DeletionTimestamp = &deleted }},
		"so does one that the agent is not told of": {unmanaged: true, told: func(p *v1alpha1.NodePod) { p.UID = "other" }},
		"what is published is read first": {
			unmanaged: true, unread: true, told: func(p *v1alpha1.NodePod) { p.AllocationUID = "created again" },
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := newPod("a")
			pa := newAllocation(pod)
			told := toldOf(pa)
			if c.told != nil {
				c.told(&told.Spec.Pods[0])
			}
			if c.pod != nil {
				c.pod(pod)
			}
			published := map[types.UID]round.Published{pa.UID: allocation.Published(pa)}
			s, unread := newSnapshot("n1", newNode(), []*corev1.Pod{pod}, told, published)
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
			p := s.Pods[0]
			if p.Unmanaged != c.unmanaged || p.Published.At.Equal(t0) == c.unmanaged || (len(unread) == 1) != c.unread {
				t.Errorf("unmanaged %v, published %v, unread %v; want %v, %v", p.Unmanaged, p.Published.At, unread, c.unmanaged, c.unread)
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
	one, _ := newSnapshot("n1", newNode(), []*corev1.Pod{a, b, c}, nil, nil)
	two, _ := newSnapshot("n1", newNode(), []*corev1.Pod{b, c, a}, nil, nil)
	if d := cmp.Diff(one, two); d != "" || one.Refs[0].Name != "c" {
		t.Errorf("order of input shows (-one +two):\n%s", d)
	}
}

func TestSnapshotNotReady(t *testing.T) {
	bare := newNode()
	bare.Status.Allocatable = nil
	for reason, node := range map[string]*corev1.Node{"no node": nil, "no allocatable CPU": bare} {
		if v, _ := newSnapshot("n1", node, nil, nil, nil); v.NotReady == "" {
			t.Errorf("%s: a round would run with %v", reason, v.Node)
		}
	}
}

// TestStartingPodsAreRead: what is published about a managed pod is read before it runs, and once. It takes no
// part in a round yet.
func TestStartingPodsAreRead(t *testing.T) {
	pod := newPod("a")
	pod.Status.Phase = corev1.PodPending
	pa, other := newAllocation(pod), newPod("not-managed")
	other.Status.Phase = corev1.PodPending
	told := toldOf(pa)
	s, unread := newSnapshot("n1", newNode(), []*corev1.Pod{pod, other}, told, nil)
	if len(s.Refs)+len(s.Unread) != 0 || len(s.Starting) != 1 || len(unread) != 1 || unread[0].Allocation != pa.UID {
		t.Fatalf("snapshot %+v, unread %v: want one pod that starts, to be read", s, unread)
	}
	d := newPublishedDecisions(nil, func() {}, nil)
	d.record(pa.UID, round.Published{})
	s, unread = newSnapshot("n1", newNode(), []*corev1.Pod{pod, other}, told, d.current(t0))
	if d.follow(s, unread); len(unread) != 0 || len(d.current(t0)) != 1 {
		t.Errorf("unread %v, known %v: want what was read kept", unread, d.current(t0))
	}
	pod.DeletionTimestamp = &metav1.Time{Time: t0}
	if s, _ = newSnapshot("n1", newNode(), []*corev1.Pod{pod}, told, nil); len(s.Starting) != 0 {
		t.Errorf("%v is being deleted", s.Starting)
	}
}

// TestSnapshotHarmed: pods that a decrease has harmed, as the controller tells, are known to the recorder; those that are not
// lowered for another reason are not.
func TestSnapshotHarmed(t *testing.T) {
	pods := []*corev1.Pod{newPod("a"), newPod("b"), newPod("c")}
	told := &v1alpha1.NodeAllocation{}
	for i, why := range []reasons.Reason{reasons.UnhealthyAfterDecrease, reasons.ScaledByHPA} {
		told.Spec.Pods = append(told.Spec.Pods, v1alpha1.NodePod{
			UID: pods[i].UID, AllocationUID: "1", Constraints: &v1alpha1.Constraints{NoDecrease: string(why)},
		})
	}
	s, _ := newSnapshot("n1", newNode(), pods, told, nil)
	if want := []record.Name{{Namespace: "shop", Name: "a"}}; !slices.Equal(s.Harmed, want) {
		t.Errorf("harmed are %v, want %v", s.Harmed, want)
	}
}

// TestRoundPinsHarm: the loop hands them to its recorder.
func TestRoundPinsHarm(t *testing.T) {
	l, _ := newLoop(func(int) {})
	rec := record.NewRecorder(record.DefaultLimits)
	l.record = recording.Feed{To: rec, Log: l.log}
	s := smallNode()
	l.snapshot = func() *snapshot { return s }
	now := time.Now()
	l.tick(t.Context(), now)
	s = &snapshot{Node: s.Node, Harmed: []record.Name{{Namespace: "shop", Name: "a"}}}
	l.tick(t.Context(), now.Add(time.Second))
	if pins := recordings.Of(t, rec).About.Pins; len(pins) != 1 || !pins[0].Fault {
		t.Errorf("pins %+v", pins)
	}
}
