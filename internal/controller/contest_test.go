package controller

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/kube"
)

// setStatus changes the status of a PodAllocation, as another controller does.
func (r *rig) setStatus(pod *corev1.Pod, patch string) {
	r.Helper()
	pa := &v1alpha1.PodAllocation{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: string(pod.UID)}}
	r.must(r.Client.Status().Patch(r.Context(), pa, client.RawPatch("application/merge-patch+json", []byte(`{"status":`+patch+`}`))))
}

// TestLimitsAreRecordedInAContest: while another controller writes a pod's status otherwise, new declared limits
// are recorded all the same.
func TestLimitsAreRecordedInAContest(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		l := r.live()
		pod := l.raised("web")
		r.setStatus(pod, `{"message":"as another controller sees it"}`)
		l.look(pod)
		if s := l.look(pod).Status; s.Message != "as another controller sees it" {
			t.Fatalf("no contest: %+v", s)
		}
		r.resizeAs("another-client", pod, "700m")
		l.look(pod)
		r.declaredIs(l.look(pod), app(700))
		if got := r.ledger(pod); !kube.SameLimits(got, []v1alpha1.ContainerLimit{app(700)}) {
			t.Errorf("the ledger says %v, want 700m", got)
		}
		since := r.stored(pod).Status.LastExternalChangeTime
		l.pass(time.Minute)
		if s := l.look(pod).Status; !s.LastExternalChangeTime.Equal(&since) || since.IsZero() {
			t.Errorf("changed externally at %v, want %v as before", s.LastExternalChangeTime, since)
		}
	})
}

// TestAKnownPodIsToldOnce: a new leader whose cache does not show the records of a pod yet does not tell
// its agent to leave out the pod.
func TestAKnownPodIsToldOnce(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		l := r.live()
		pod := l.newPod("web")
		l.look(pod)
		if r.toldOf(pod) == nil {
			t.Fatal("not told at the start")
		}
		l = r.live()
		whole := l.Reconciler.Client
		l.Reconciler.Client = r.withoutRecords()
		l.look(pod)
		l.Reconciler.Client = whole
		l.look(pod)
		for _, w := range l.writes() {
			if strings.Contains(w, "/nodeallocations/") {
				t.Errorf("the agent is told anew: %s", w)
			}
		}
	})
}

// TestAgentIsToldWhatIsTighter: while another controller tells the agent otherwise, it is told of lower ceilings.
func TestAgentIsToldWhatIsTighter(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		l := r.live()
		pod := l.raised("web")
		ranges := r.limitRange(corev1.LimitRangeItem{Type: corev1.LimitTypePod, Max: cpus("3")})
		l.look(pod)
		n := &v1alpha1.NodeAllocation{ObjectMeta: metav1.ObjectMeta{Name: r.kubelet.Node}}
		r.merge(n, `{"spec":{"pods":[]}}`)
		l.look(pod)
		if p := r.toldOf(pod); p != nil {
			t.Fatalf("no contest: told %+v", p)
		}
		other := r.live()
		other.look(pod)
		r.merge(ranges, `{"spec":{"limits":[{"type":"Pod","max":{"cpu":"1500m"}}]}}`)
		l.look(pod)
		if c := r.toldConstraints(pod); c == nil || c.Ceiling == nil || *c.Ceiling != 1500 {
			t.Errorf("told %+v, want a ceiling of 1500m", c)
		}
	})
}
