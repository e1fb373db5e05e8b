package guard

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/blastradius"
	"github.com/mbcas/mbcas/internal/kube"
)

var noon = time.Date(2026, 3, 20, 12, 0, 0, 0, time.UTC)

// shop is a namespace with four replicas of a StatefulSet, and the guard of an installation.
type shop struct {
	*testing.T
	*Guard
	api     client.WithWatch
	pods    []*corev1.Pod
	lists   int      // of pods
	listing func()   // before each
	changed []string // nodes
}

func newShop(t *testing.T, c Config) *shop {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	s := &shop{T: t, listing: func() {}}
	s.api = fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if _, ok := list.(*corev1.PodList); ok {
				s.lists++
				s.listing()
			}
			return c.List(ctx, list, opts...)
		},
	}).Build()
	for i := range 4 {
		s.add(i)
	}
	s.Guard = &Guard{
		Config: c, HoldOff: 24 * time.Hour, Client: s.api,
		Changed: func(_ string, nodes []string) { s.changed = append(s.changed, nodes...) },
	}
	return s
}

// add adds a replica.
func (s *shop) add(i int) *corev1.Pod {
	s.Helper()
	pod, yes := &corev1.Pod{}, true
	pod.Namespace, pod.Name, pod.UID = "shop", fmt.Sprint("db-", i), types.UID(fmt.Sprint("uid-", i))
	pod.CreationTimestamp, pod.Spec.NodeName = metav1.NewTime(noon.Add(time.Duration(i-60)*time.Minute)), fmt.Sprint("n", i%2)
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", UID: "db", Controller: &yes}}
	if err := s.api.Create(s.Context(), pod); err != nil {
		s.Fatal(err)
	}
	s.pods = append(s.pods, pod)
	return pod
}

func namespace(annotations map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Annotations: annotations}}
}

func (s *shop) of(ns *corev1.Namespace, node string, now time.Time) Namespace {
	s.Helper()
	n, err := s.Of(s.Context(), ns, Look{node, now, func(*corev1.Pod) bool { return true }})
	if err != nil {
		s.Fatal(err)
	}
	return n
}

// held are the replicas that are held, by number.
func (s *shop) held(n Namespace) (list []int) {
	s.Helper()
	for i := range s.pods {
		hold, stopped, _ := n.Pod(s.pods[i], false)
		if !stopped.IsZero() {
			s.Fatalf("pod %s is stopped", s.pods[i].Name)
		}
		if hold.Reason != "" {
			list = append(list, i)
		}
	}
	return list
}

func TestOnePassForAll(t *testing.T) {
	s := newShop(t, DefaultConfig())
	ns := namespace(map[string]string{kube.CanaryKey: "25"})
	if n := s.of(ns, "a", noon); !slices.Equal(s.held(n), []int{1, 2, 3}) {
		t.Errorf("held %v, want all but the oldest", s.held(n))
	}
	s.lists = 0
	soon := noon.Add(leastValid / 2)
	late := s.add(4)
	again := map[string]time.Time{}
	var n Namespace
	for _, node := range []string{"b", "c", "b"} { // the last as after another look in the same reconcile
		n = s.of(ns, node, soon)
		again[node] = n.RecheckAt
	}
	if s.lists != 0 {
		t.Errorf("%d lists of pods within the time that a verdict holds", s.lists)
	}
	if want := noon.Add(leastValid + 4*time.Second/podsPerSecond); !again["b"].Equal(want) || !again["c"].IsZero() {
		t.Errorf("looks again at %v, want b to at %v and no other", again, want)
	}
	if hold, _, recheck := n.Pod(late, false); hold.Reason != reasons.WaitingForCanary || recheck.IsZero() {
		t.Errorf("a pod that was not judged: hold %v, again at %v", hold, recheck)
	}
	s.of(ns, "b", again["b"])
	if s.lists != 1 || len(s.changed) != 0 {
		t.Errorf("%d lists of pods, and changes of %v; want one list, and no change", s.lists, s.changed)
	}

	pa := &v1alpha1.PodAllocation{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "uid-0"}}
	pa.Spec.PodRef = v1alpha1.PodRef{Name: "db-0", UID: "uid-0"}
	pa.Status.FirstAppliedTime = metav1.NewMicroTime(noon)
	if err := s.api.Create(t.Context(), pa); err != nil {
		t.Fatal(err)
	}
	s.of(ns, "c", noon.Add(5*time.Second)) // the trial has an end now
	if !slices.Equal(s.changed, []string{"n0", "n1"}) {
		t.Errorf("nodes %v are looked at again, want those of the workload", s.changed)
	}
}

// TestNoNodeWaitsForAPass: while one node has a namespace judged, another is answered from memory,
// and looks again. Where nothing is remembered it waits, and has it judged no second time.
func TestNoNodeWaitsForAPass(t *testing.T) {
	for _, remembered := range []bool{true, false} {
		s := newShop(t, DefaultConfig())
		ns := namespace(map[string]string{kube.CanaryKey: "25"})
		if remembered {
			s.of(ns, "a", noon)
		}
		s.lists = 0
		passes, end, now := make(chan struct{}), make(chan struct{}), noon.Add(time.Minute)
		s.listing = func() {
			close(passes)
			<-end
		}
		var all sync.WaitGroup
		look := func(node string) <-chan Namespace {
			answer := make(chan Namespace, 1)
			all.Go(func() {
				n, err := s.Of(t.Context(), ns, Look{node, now, func(*corev1.Pod) bool { return true }})
				if err != nil {
					t.Error(err)
				}
				answer <- n
			})
			return answer
		}
		first := look("a")
		<-passes
		other := look("b")
		if remembered {
			select {
			case n := <-other:
				if want := now.Add(leastValid); !n.RecheckAt.Equal(want) || !slices.Equal(s.held(n), []int{1, 2, 3}) {
					t.Errorf("held %v, looks again at %v; want all but the oldest, and %v", s.held(n), n.RecheckAt, want)
				}
			case <-time.After(time.Minute):
				t.Error("another node waits for the pass")
			}
		}
		close(end)
		all.Wait()
		if n := <-first; s.lists != 1 || !slices.Equal(s.held(n), []int{1, 2, 3}) {
			t.Errorf("remembered %v: %d lists of pods, held %v; want one, and all but the oldest", remembered, s.lists, s.held(n))
		}
	}
}

// TestDeletedNamespacesAreForgotten: a namespace that nothing asks about any more is forgotten, and no other.
func TestDeletedNamespacesAreForgotten(t *testing.T) {
	config := DefaultConfig()
	config.CanaryPercent = 25
	s := newShop(t, config)
	for i := range 3 { // such as those of a pipeline, each of which lives for a while
		ns := namespace(nil)
		ns.Name = fmt.Sprint("run-", i)
		s.of(ns, "a", noon)
	}
	for hours := range 3 {
		s.of(namespace(nil), "a", noon.Add(time.Duration(hours)*askedWithin))
	}
	if n := len(s.canaries.namespaces); n != 1 || s.canaries.namespaces["shop"] == nil {
		t.Errorf("%d namespaces are remembered, want shop alone", n)
	}
}

// TestAStopIsKeptUntilItShows: the news of harm were late, the canary has recovered, and no status shows the stop yet.
func TestAStopIsKeptUntilItShows(t *testing.T) {
	s := newShop(t, DefaultConfig())
	ns := namespace(map[string]string{kube.CanaryKey: "25"})
	pa := &v1alpha1.PodAllocation{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "uid-0"}}
	pa.Spec.PodRef = v1alpha1.PodRef{Name: "db-0", UID: "uid-0"}
	pa.Status.FirstAppliedTime = metav1.NewMicroTime(noon)
	if err := s.api.Create(t.Context(), pa); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{}
	ready := func(status corev1.ConditionStatus, reason string, at time.Time) {
		if err := s.api.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "db-0"}, pod); err != nil {
			t.Fatal(err)
		}
		pod.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodReady, Status: status, Reason: reason, LastTransitionTime: metav1.NewTime(at),
		}}
		if err := s.api.Status().Update(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	harm, found := noon.Add(time.Minute), noon.Add(4*time.Minute)
	ready(corev1.ConditionFalse, "ContainersNotReady", harm)
	n := s.of(ns, "a", found)
	if _, stopped, _ := n.Pod(pod, true); !stopped.Equal(harm) {
		t.Fatalf("stopped at %v, want %v", stopped, harm)
	}
	ready(corev1.ConditionTrue, "", found)
	for _, c := range []struct {
		after time.Duration
		want  time.Time
	}{{2 * leastValid, harm}, {stopShown, time.Time{}}} {
		n := s.of(ns, "a", found.Add(c.after))
		if _, stopped, _ := n.Pod(pod, true); !stopped.Equal(c.want) {
			t.Errorf("%v after it was found: stopped at %v, want %v", c.after, stopped, c.want)
		}
	}
}

func TestTheStrictestWins(t *testing.T) {
	at := func(percent string) *corev1.Namespace { return namespace(map[string]string{kube.CanaryKey: percent}) }
	for name, c := range map[string]struct {
		installation int
		namespace    *corev1.Namespace
		want         []int // held
	}{
		"neither":               {100, namespace(nil), nil},
		"installation":          {50, namespace(nil), []int{2, 3}},
		"namespace":             {100, at("75"), []int{3}},
		"namespace is stricter": {50, at("25"), []int{1, 2, 3}},
		"namespace is laxer":    {25, at("75"), []int{1, 2, 3}},
		"cannot be read":        {50, at("half"), []int{1, 2, 3}},
	} {
		config := DefaultConfig()
		config.CanaryPercent = c.installation
		s := newShop(t, config)
		if got := s.held(s.of(c.namespace, "a", noon)); !slices.Equal(got, c.want) {
			t.Errorf("%s: held %v, want %v", name, got, c.want)
		}
	}
	config := DefaultConfig()
	config.NoChange, _ = blastradius.ParseWindows("* 11:00-13:00")
	s := newShop(t, config)
	for own, want := range map[string]time.Time{"": noon.Add(time.Hour), "* 12:30-14:00": noon.Add(2 * time.Hour)} {
		n := s.of(namespace(map[string]string{kube.NoChangeKey: own}), "a", noon)
		if hold, _, _ := n.Pod(&corev1.Pod{}, true); hold.Reason != reasons.NoChangeWindow || !n.RecheckAt.Equal(want) {
			t.Errorf("with %q: hold %v until %v, want until %v", own, hold, n.RecheckAt, want)
		}
	}
}

func TestInvalidWindowsChangeNothing(t *testing.T) {
	s := newShop(t, DefaultConfig())
	n := s.of(namespace(map[string]string{kube.NoChangeKey: "workdays"}), "a", noon)
	hold, _, _ := n.Pod(&corev1.Pod{}, true)
	if hold.Reason != reasons.InvalidNoChangeWindow || !strings.Contains(hold.Detail, "workdays") || !strings.Contains(hold.Detail, "shop") {
		t.Errorf("hold %+v: want it to name the namespace and the text", hold)
	}
}

func TestConfigReportsEverything(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Error(err)
	}
	bad := Config{Factors: kube.Factors{Max: 0.5, Min: 2}, CanaryPercent: 101, Harm: blastradius.Spread{Workloads: -1}}
	err := bad.Validate()
	short := DefaultConfig()
	short.Harm.Window = short.Harm.Settle // harm would be forgotten before it counts
	if err := short.Validate(); err == nil || !strings.Contains(err.Error(), "--harm-window") {
		t.Errorf("a window of %v: %v, want it to name the flag", short.Harm.Window, err)
	}
	for _, want := range []string{"max-declared-factor", "min-declared-factor", "CanaryPercent", "CanaryGrace", "Harm.Workloads", "Harm.Window"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want it to name %s", err, want)
		}
	}
}

// TestCompletedPodsAreNotHarmed: a pod whose containers have done their work is not Ready, and nothing harmed it.
func TestCompletedPodsAreNotHarmed(t *testing.T) {
	for reason, harmed := range map[string]bool{"PodCompleted": false, "ContainersNotReady": true} {
		pod := &corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{
			Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: reason, LastTransitionTime: metav1.NewTime(noon),
		}}}}
		if got := replicaOf(pod, nil).UnreadySince; got.IsZero() == harmed {
			t.Errorf("%s: not Ready since %v, want harm to be %v", reason, got, harmed)
		}
	}
}
