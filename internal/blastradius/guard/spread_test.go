package guard

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/blastradius"
	"github.com/mbcas/mbcas/internal/kube"
)

// harmed is two nodes: on the first a pod of each of five workloads, on the second another replica of each.
type harmed struct {
	*testing.T
	*Spread
	api   client.WithWatch
	now   time.Time
	count int // of harmed workloads
}

const nodes, workloadsOfEach = 2, 5

func newHarmed(t *testing.T) *harmed {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	node := func(o client.Object) []string { return []string{kube.NodeNameOf(o)} }
	h := &harmed{T: t, now: noon.Add(time.Minute), api: fake.NewClientBuilder().WithScheme(scheme).
		WithIndex(&corev1.Pod{}, kube.NodeField, node).WithIndex(&v1alpha1.PodAllocation{}, kube.NodeField, node).Build()}
	h.Spread = &Spread{
		Rule: blastradius.Spread{Workloads: 100, Window: 30 * time.Minute, Settle: 30 * time.Second}, Recent: 2 * time.Minute,
		Client: h.api, Namespace: "mbcas-system", Now: func() time.Time { return h.now }, Log: slog.New(slog.DiscardHandler),
		Count: func(n int) { h.count = n }, Changed: func() {}, Leads: func() bool { return true },
	}
	for n := range nodes {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", n)}}
		node.Status.Conditions = []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(noon.Add(-time.Hour)),
		}}
		h.create(node)
		for w := range workloadsOfEach {
			pod, yes := &corev1.Pod{}, true
			pod.Namespace, pod.Name, pod.Spec.NodeName = "shop", fmt.Sprintf("w%d-%d", w, n), node.Name
			pod.UID, pod.CreationTimestamp = types.UID("uid-"+pod.Name), metav1.NewTime(noon.Add(-time.Hour))
			owner := fmt.Sprint("w", w)
			pod.OwnerReferences = []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "StatefulSet", Name: owner, UID: types.UID(owner), Controller: &yes,
			}}
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			h.create(pod)
			pa := &v1alpha1.PodAllocation{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: string(pod.UID)}}
			pa.Spec.PodRef, pa.Spec.NodeName = v1alpha1.PodRef{Name: pod.Name, UID: pod.UID}, node.Name
			h.create(pa)
		}
	}
	return h
}

func (h *harmed) create(o client.Object) {
	h.Helper()
	if err := h.api.Create(h.Context(), o); err != nil {
		h.Fatal(err)
	}
}

// unready sets a replica to not Ready at noon.
func (h *harmed) unready(workload, node int) {
	h.Helper()
	pod := &corev1.Pod{}
	if err := h.api.Get(h.Context(), client.ObjectKey{Namespace: "shop", Name: fmt.Sprintf("w%d-%d", workload, node)}, pod); err != nil {
		h.Fatal(err)
	}
	pod.Status.Conditions[0] = corev1.PodCondition{
		Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "ContainersNotReady", LastTransitionTime: metav1.NewTime(noon),
	}
	if err := h.api.Status().Update(h.Context(), pod); err != nil {
		h.Fatal(err)
	}
}

// nodeStatus sets what the node says of itself.
func (h *harmed) nodeStatus(node int, ready corev1.ConditionStatus, since time.Time) {
	h.Helper()
	n := &corev1.Node{}
	if err := h.api.Get(h.Context(), client.ObjectKey{Name: fmt.Sprint("n", node)}, n); err != nil {
		h.Fatal(err)
	}
	n.Status.Conditions[0].Status, n.Status.Conditions[0].LastTransitionTime = ready, metav1.NewTime(since)
	if err := h.api.Status().Update(h.Context(), n); err != nil {
		h.Fatal(err)
	}
}

// records has the PodAllocation of a replica record something, and is how soon it is looked at again.
func (h *harmed) records(workload, node int, what func(*v1alpha1.PodAllocationStatus)) time.Duration {
	h.Helper()
	pa := &v1alpha1.PodAllocation{}
	key := client.ObjectKey{Namespace: "shop", Name: fmt.Sprintf("uid-w%d-%d", workload, node)}
	if err := h.api.Get(h.Context(), key, pa); err != nil {
		h.Fatal(err)
	}
	what(&pa.Status)
	if err := h.api.Update(h.Context(), pa); err != nil {
		h.Fatal(err)
	}
	result, err := h.Reconcile(h.Context(), ctrl.Request{NamespacedName: key})
	if err != nil {
		h.Fatal(err)
	}
	return result.RequeueAfter
}

func decreased(s *v1alpha1.PodAllocationStatus) {
	s.LastDecreaseTime = metav1.NewMicroTime(noon.Add(-time.Second))
}

func harmedByDecrease(s *v1alpha1.PodAllocationStatus) {
	decreased(s)
	s.Rollback.LastHarmfulDecreaseTime = metav1.NewMicroTime(noon)
}

func stoppedByCanary(s *v1alpha1.PodAllocationStatus) {
	s.CanaryStoppedTime = metav1.NewMicroTime(noon)
}

// TestASickNodeIsNoSpread: harm of many workloads does not count where their one node explains it.
func TestASickNodeIsNoSpread(t *testing.T) {
	for name, c := range map[string]struct {
		happens func(*harmed)
		want    int
	}{
		"three are harmed": {func(*harmed) {}, 3},
		"their node is not Ready": {func(h *harmed) {
			h.nodeStatus(0, corev1.ConditionFalse, noon.Add(50*time.Second))
		}, 0},
		"their node is Ready again": {func(h *harmed) {
			h.nodeStatus(0, corev1.ConditionTrue, noon.Add(50*time.Second))
		}, 0},
		"another node is not Ready": {func(h *harmed) {
			h.nodeStatus(1, corev1.ConditionFalse, noon.Add(50*time.Second))
		}, 3},
		"all pods of it are not Ready": {func(h *harmed) { // the last two were not lowered
			h.unready(3, 0)
			h.unready(4, 0)
		}, 0},
		"one more pod of it is": {func(h *harmed) { h.unready(3, 0) }, 3},
		"all were lowered": {func(h *harmed) {
			for w := 3; w < workloadsOfEach; w++ {
				h.unready(w, 0)
				h.records(w, 0, decreased)
			}
		}, 3},
		"pods of the other node are not Ready": {func(h *harmed) {
			for w := range workloadsOfEach {
				h.unready(w, 1)
			}
		}, 3},
	} {
		for kind, harm := range map[string]func(*v1alpha1.PodAllocationStatus){
			"decrease": harmedByDecrease, "canary": func(s *v1alpha1.PodAllocationStatus) { decreased(s); stoppedByCanary(s) },
		} {
			h := newHarmed(t)
			for w := range 3 {
				h.unready(w, 0)
			}
			for w := range 3 {
				h.records(w, 0, decreased)
			}
			c.happens(h)
			for w := range 3 {
				h.records(w, 0, harm)
				if kind == "canary" { // the replica on the other node records the stop, too
					h.records(w, 1, stoppedByCanary)
				}
			}
			want := c.want
			if kind == "canary" && name == "pods of the other node are not Ready" {
				continue // those are replicas of the same workloads
			}
			if h.count != want {
				t.Errorf("%s, found by the %s: %d workloads count, want %d", name, kind, h.count, want)
			}
		}
	}
}

// TestRunsOfACronJobAreOneWorkload: a CronJob whose every run is harmed does not hold the installation alone.
func TestRunsOfACronJobAreOneWorkload(t *testing.T) {
	h := newHarmed(t)
	for w := range 3 {
		pod := &corev1.Pod{}
		if err := h.api.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: fmt.Sprintf("w%d-0", w)}, pod); err != nil {
			t.Fatal(err)
		}
		owner := &pod.OwnerReferences[0]
		owner.APIVersion, owner.Kind, owner.Name = "batch/v1", "Job", fmt.Sprint("backup-", 29000001+w)
		if err := h.api.Update(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		h.records(w, 0, harmedByDecrease)
	}
	if h.count != 1 {
		t.Errorf("%d workloads count after three runs of one CronJob, want 1", h.count)
	}
}

// TestSidecarsTellOfANode: a sidecar that fails stops a canary, so it tells as much of the node as another container.
func TestSidecarsTellOfANode(t *testing.T) {
	h := newHarmed(t)
	for w := range workloadsOfEach {
		pod := &corev1.Pod{}
		key := client.ObjectKey{Namespace: "shop", Name: fmt.Sprintf("w%d-0", w)}
		if err := h.api.Get(t.Context(), key, pod); err != nil {
			t.Fatal(err)
		}
		failed := corev1.ContainerStatus{Name: "proxy"}
		failed.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 1, FinishedAt: metav1.NewTime(noon)}
		pod.Status.InitContainerStatuses = []corev1.ContainerStatus{failed}
		if err := h.api.Status().Update(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		if at := replicaOf(pod, nil).FailedAt; len(at) != 1 {
			t.Fatalf("the replica failed at %v, want once", at)
		}
	}
	for w := range 3 {
		h.records(w, 0, stoppedByCanary)
	}
	if h.count != 0 {
		t.Errorf("%d workloads count though sidecars of all pods of the node failed at once, want none", h.count)
	}
}

// TestHarmCountsOnceItHasSettled: pods that are in trouble at once are not seen at once.
func TestHarmCountsOnceItHasSettled(t *testing.T) {
	h := newHarmed(t)
	h.unready(0, 0)
	h.now = noon.Add(10 * time.Second)
	if again := h.records(0, 0, harmedByDecrease); again != 20*time.Second || h.count != 0 {
		t.Errorf("10 s after the harm: looked at again in %v, %d count; want 20 s, and none", again, h.count)
	}
	h.now = noon.Add(30 * time.Second)
	if again := h.records(0, 0, harmedByDecrease); again != 0 || h.count != 1 {
		t.Errorf("30 s after the harm: looked at again in %v, %d count; want never, and one", again, h.count)
	}
	for _, w := range []int{3, 4, 2} { // what comes to light later changes nothing
		h.unready(w, 0)
	}
	h.now = noon.Add(40 * time.Second)
	if h.records(0, 0, harmedByDecrease); h.count != 1 {
		t.Errorf("%d count after it was judged, want one", h.count)
	}
	h.now = noon.Add(31 * time.Minute)
	if h.records(0, 0, harmedByDecrease); h.count != 0 {
		t.Errorf("%d count after the window, want none", h.count)
	}
}

// TestTheFirstHarmCountsFirst: of a decrease and a stop that a PodAllocation records, the one that
// happened first is not judged with the other.
func TestTheFirstHarmCountsFirst(t *testing.T) {
	for name, later := range map[string]func(*v1alpha1.PodAllocationStatus){
		"decrease": func(s *v1alpha1.PodAllocationStatus) {
			s.Rollback.LastHarmfulDecreaseTime = metav1.NewMicroTime(noon.Add(15 * time.Second))
		},
		"canary": func(s *v1alpha1.PodAllocationStatus) {
			s.CanaryStoppedTime = metav1.NewMicroTime(noon.Add(15 * time.Second))
		},
	} {
		h := newHarmed(t)
		h.unready(0, 0)
		h.now = noon.Add(20 * time.Second)
		again := h.records(0, 0, func(s *v1alpha1.PodAllocationStatus) {
			harmedByDecrease(s)
			stoppedByCanary(s)
			later(s)
		})
		if again != 10*time.Second || h.count != 0 {
			t.Errorf("the %s was later: looked at again in %v, %d count; want 10 s, and none", name, again, h.count)
		}
		h.now = noon.Add(30 * time.Second)
		again = h.records(0, 0, func(*v1alpha1.PodAllocationStatus) {})
		if again != 15*time.Second || h.count != 1 {
			t.Errorf("the %s was later: looked at again in %v, %d count; want 15 s, and one", name, again, h.count)
		}
	}
}

// TestEarlierHarmIsNews: harm is dated when it happened, so what is recorded last may have happened first.
func TestEarlierHarmIsNews(t *testing.T) {
	recorded := func(decrease, canary time.Duration) *v1alpha1.PodAllocation {
		pa := &v1alpha1.PodAllocation{}
		if decrease != 0 {
			pa.Status.Rollback.LastHarmfulDecreaseTime = metav1.NewMicroTime(noon.Add(decrease))
		}
		if canary != 0 {
			pa.Status.CanaryStoppedTime = metav1.NewMicroTime(noon.Add(canary))
		}
		return pa
	}
	for name, c := range map[string]struct {
		before, after client.Object
		want          bool
	}{
		"nothing is recorded":         {recorded(0, 0), recorded(0, 0), false},
		"a decrease did harm":         {recorded(0, 0), recorded(1, 0), true},
		"a canary stopped it":         {recorded(0, 0), recorded(0, 1), true},
		"as before":                   {recorded(2, 1), recorded(2, 1), false},
		"an earlier decrease as well": {recorded(0, 2), recorded(1, 2), true},
		"an earlier stop as well":     {recorded(2, 0), recorded(2, 1), true},
		"no PodAllocation":            {&corev1.Pod{}, &corev1.Pod{}, false},
	} {
		if got := moreHarm(c.before, c.after); got != c.want {
			t.Errorf("%s: news %v, want %v", name, got, c.want)
		}
	}
}
