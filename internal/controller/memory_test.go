package controller

import (
	"reflect"
	"runtime"
	"testing"
	"time"
	"weak"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/dispatch"
	"github.com/mbcas/mbcas/internal/events"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/lifecycle"
	"github.com/mbcas/mbcas/internal/nodeallocation"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// running is a pod of one Ready container that requests 100m.
func running(uid string, limit cpu.Milli, mine bool) *corev1.Pod {
	start := metav1.NewTime(noon.Add(-time.Hour))
	resources := corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: kube.Quantity(100)},
		Limits:   corev1.ResourceList{corev1.ResourceCPU: kube.Quantity(limit)},
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: uid, Namespace: "shop", UID: types.UID(uid), Generation: 2, Labels: map[string]string{}},
		Spec:       corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "app", Resources: resources}}},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, QOSClass: corev1.PodQOSBurstable,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			ContainerStatuses: []corev1.ContainerStatus{{
				Name: "app", Resources: &resources, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: start}},
			}},
		},
	}
	pod.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kube-controller-manager", Operation: metav1.ManagedFieldsOperationUpdate}}
	if mine { // as the API server notes that we wrote the limit
		pod.ManagedFields = append(pod.ManagedFields, metav1.ManagedFieldsEntry{
			Manager: kube.FieldManager, Subresource: "resize", Operation: metav1.ManagedFieldsOperationUpdate,
			FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:containers":{"k:{\"name\":\"app\"}":{"f:resources":{"f:limits":{"f:cpu":{}}}}}}}`),
		})
	}
	return pod
}

// collected reports whether the garbage collector frees what p points to. One cycle may leave it:
// another that runs already has marked it.
func collected[T any](p weak.Pointer[T]) bool {
	for range 10 {
		if runtime.GC(); p.Value() == nil {
			return true
		}
	}
	return false
}

// TestKeepsNoPodOfAList: a resize that waits, what is remembered of one that was refused, and of a refusal before the
// start, keep alive neither the list that the pod was in, nor the resize with its answer.
func TestKeepsNoPodOfAList(t *testing.T) {
	r := &Reconciler{Config: DefaultConfig(), Now: func() time.Time { return noon }}
	r.jitter = exactly
	lookedAt := func() (*podState, weak.Pointer[corev1.Pod]) {
		list := []corev1.Pod{*running("a", 500, true), *running("p", 500, true), *running("z", 500, true)}
		return &podState{pod: &list[1], rec: &record{}}, weak.Make(&list[0])
	}
	p, list := lookedAt()
	z := (&task{podState: p}).resize(noon)
	waits := &dispatch.Request{Value: z}
	if !collected(list) {
		t.Error("a resize that waits keeps the list of its node")
	}
	runtime.KeepAlive(waits)

	for _, outcome := range []podresize.Outcome{podresize.LimitRangeRefused, podresize.Accepted, podresize.Unavailable} {
		p, _ = lookedAt()
		z = (&task{podState: p}).resize(noon)
		z.Answer = &dispatch.Answer{Result: podresize.Result{Outcome: outcome}, Sent: true}
		z.Move = &actuator.Move{UID: "p", Changes: []actuator.Change{{Container: "app", From: 500, To: 700}}}
		if outcome == podresize.Accepted {
			z.Answer.Pod = running("p", 700, true)
		}
		rec, sent := &record{}, weak.Make(z)
		r.conclude(rec, z)
		if !collected(sent) || rec.status == nil {
			t.Errorf("the answer %v keeps the resize", outcome)
		}
		runtime.KeepAlive(rec)
	}

	p, list = lookedAt()
	p.pa = &v1alpha1.PodAllocation{}
	p.pa.Status.Reason, p.pa.Status.Retry.Time = string(reasons.QuotaExceeded), metav1.NewMicroTime(noon)
	p.resolved()
	rec := p.rec
	if !collected(list) || rec.refused == nil {
		t.Error("a refusal from before the start keeps the list of its node")
	}
	runtime.KeepAlive(rec)
}

// TestForgetsWhatTheCacheShows: an own write is remembered for as long as the cache is behind it, and
// no longer.
func TestForgetsWhatTheCacheShows(t *testing.T) {
	podAt := func(version string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "pod", ResourceVersion: version}}
	}
	paAt := func(uid types.UID, version string) *v1alpha1.PodAllocation {
		return &v1alpha1.PodAllocation{ObjectMeta: metav1.ObjectMeta{UID: uid, ResourceVersion: version}}
	}
	for reason, c := range map[string]struct {
		pod             *corev1.Pod
		pa              *v1alpha1.PodAllocation
		late            bool // much later
		keepPod, keepPA bool
		newest          string // version of the allocation that counts
	}{
		"both are behind":                    {pod: podAt("9"), pa: paAt("ours", "19"), keepPod: true, keepPA: true, newest: "20"},
		"the pod is there":                   {pod: podAt("10"), pa: paAt("ours", "19"), keepPA: true, newest: "20"},
		"the pod is newer":                   {pod: podAt("11"), pa: paAt("ours", "19"), keepPA: true, newest: "20"},
		"the allocation is there":            {pod: podAt("9"), pa: paAt("ours", "20"), keepPod: true, newest: "20"},
		"the allocation is newer":            {pod: podAt("9"), pa: paAt("ours", "21"), keepPod: true, newest: "21"},
		"the allocation is yet to come":      {pod: podAt("10"), keepPA: true, newest: "20"},
		"the allocation before ours":         {pod: podAt("10"), pa: paAt("before", "21"), keepPA: true, newest: "21"},
		"what never comes is not waited for": {pod: podAt("9"), pa: paAt("ours", "19"), late: true, newest: "19"},
	} {
		rec := &record{pod: podAt("10"), podAt: noon, pa: paAt("ours", "20"), paAt: noon}
		now := noon.Add(kube.CacheLag / 2)
		if c.late {
			now = noon.Add(31 * kube.CacheLag)
		}
		_, pa := rec.newest(c.pod, c.pa, now)
		if (rec.pod != nil) != c.keepPod || (rec.pa != nil) != c.keepPA || pa.ResourceVersion != c.newest {
			t.Errorf("%s: pod kept %v, want %v; allocation kept %v, want %v; newest %s, want %s",
				reason, rec.pod != nil, c.keepPod, rec.pa != nil, c.keepPA, pa.ResourceVersion, c.newest)
		}
	}
}

// TestStaleMovesNothing: a decision grows old on our own clock unless its agent's Lease confirms it, and
// one that is found at our start has to look fresh. That an old one is not applied: TestKeepsTheRules and
// TestScenarios/confirm (internal/lifecycle).
func TestStaleMovesNothing(t *testing.T) {
	const freeze = time.Minute
	p := &podState{rec: &record{}, pa: allocation.New(running("p", 500, false))}
	p.pod = running("p", 500, false)
	told := nodeallocation.Told{p.pod.UID: {}}
	s := &snapshot{node: nodeState{unconfirmed: allocation.AllPods}, told: told}
	node := &s.node
	age := func(observed, at, want time.Duration) {
		t.Helper()
		p.pa.Spec.Decision = &v1alpha1.Decision{ObservedAt: metav1.NewMicroTime(noon.Add(observed))}
		s.now = noon.Add(at)
		if _, got := p.decisionAge(s, freeze); got != want {
			t.Errorf("a decision of %v at %v has the age %v, want %v", observed, at, got, want)
		}
	}
	age(-10*time.Second, 0, 10*time.Second) // found at the start
	age(-10*time.Second, time.Minute, 70*time.Second)
	age(-time.Hour, 2*time.Minute, 0) // another one, of a clock that is behind
	age(-time.Hour, 3*time.Minute, time.Minute)
	p.rec = &record{} // a new leader
	age(-time.Hour, 4*time.Minute, freeze)
	node.unconfirmed, node.LeaseAge = "", 20*time.Second // the Lease confirms it
	age(-time.Hour, 5*time.Minute, 20*time.Second)
	age(0, 5*time.Minute, 0) // newer than the Lease
	s.told = nil             // of a pod of which the agent is not told, the Lease says nothing
	age(0, 7*time.Minute, 2*time.Minute)
	s.told = told
	age(0, 7*time.Minute+time.Second, 2*time.Minute+time.Second) // until it is renewed after that
	age(0, 8*time.Minute, 20*time.Second)
	node.unconfirmed = allocation.UnconfirmedOf([]types.UID{p.pod.UID})
	age(0, 7*time.Minute, 2*time.Minute)
}

func TestTheSoonestLookWins(t *testing.T) {
	never, soon := time.Time{}, noon.Add(time.Minute)
	at := func(d time.Duration) *task { return &task{Task: lifecycle.Task{RecheckAt: noon.Add(d)}} }
	tasks := []*task{at(time.Second), at(time.Hour), {}}
	for _, c := range []struct {
		tasks []*task
		node  time.Time
		want  time.Duration
	}{
		{nil, never, 0}, {nil, soon, time.Minute}, {nil, noon, time.Millisecond},
		{tasks, never, time.Second}, {tasks, soon, time.Second}, {tasks[1:], never, time.Hour}, {tasks[1:], soon, time.Minute},
	} {
		if got := after(noon, c.node, c.tasks); got != c.want {
			t.Errorf("%d tasks: looked at again after %v, want %v", len(c.tasks), got, c.want)
		}
	}
}

func TestConfigReportsEverything(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Error(err)
	}
	err := Config{Config: lifecycle.DefaultConfig(), CoordinationInterval: -1}.Validate()
	if got := len(err.(interface{ Unwrap() []error }).Unwrap()); got != 9 {
		t.Errorf("%d complaints, want 9: %v", got, err)
	}
}

// TestALapseKeepsWhatHolds: after another replica may have owned a node, what this one saw of its pods
// counts, and its waits; what it knew of their records does not. An answer from before counts as lost.
func TestALapseKeepsWhatHolds(t *testing.T) {
	withController(t, func(t *testing.T, r *rig, l *life) {
		pod := l.raised("web")
		tries := l.refuse(podresize.PolicyRefused)
		r.publish(pod, "0.000", app(3000))
		_, err := l.Reconcile(t.Context(), request(r.kubelet.Node))
		r.must(err)
		_, _, z := l.resizes.Standing(pod.UID)
		z.Tenure = 1
		l.steps()
		l.look(pod)
		if *tries != 2 {
			t.Errorf("%d tries, want the second after the answer of another tenure", *tries)
		}
		n := l.memory.nodes[r.kubelet.Node]
		rec := n.records[pod.UID]
		rec.RetryAt, rec.Sent, rec.status = noon, lifecycle.Limits{{Container: "app", CPU: 3000}}, &lifecycle.Status{}
		if rec.dates.LastLook().IsZero() || rec.declared == nil || !rec.Witnessed {
			t.Fatalf("%+v lacks something to begin with", rec)
		}
		for _, tenure := range []int{0, 1} {
			rec := l.memory.of(r.kubelet.Node, tenure, map[types.UID]bool{pod.UID: true}, 1).records[pod.UID]
			kept := rec.RetryAt.Equal(noon) && !rec.dates.LastLook().IsZero() && !reflect.DeepEqual(rec.events, events.Told{})
			sole := rec.declared != nil && rec.status != nil && rec.Witnessed && rec.Sent != nil
			if !kept || sole != (tenure == 0) {
				t.Errorf("in tenure %d: %+v", tenure, rec)
			}
		}
	})
}

// TestThrottledNodesAreKnown: a node counts as one with a throttled pod that should have more as long as the
// decision about one is above its limits, also where the mode keeps it from having them.
func TestThrottledNodesAreKnown(t *testing.T) {
	withController(t, func(t *testing.T, r *rig, l *life) {
		pod := l.newPod("web")
		r.mode(r.namespace, kube.ModeRecommend)
		if l.look(pod); l.memory.throttled(r.kubelet.Node) {
			t.Error("throttled without a decision")
		}
		for _, c := range []struct {
			demand cpu.Milli
			want   bool
		}{{2000, true}, {100, false}} {
			d := capped(v1alpha1.BoundByNothing)
			d.Demand = c.demand
			r.decide(pod, d, app(2000))
			l.look(pod)
			if got := l.memory.throttled(r.kubelet.Node); got != c.want {
				t.Errorf("with a demand of %v: %v, want %v", c.demand, got, c.want)
			}
		}
	})
}
