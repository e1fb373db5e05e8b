package controller

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
)

// setStatus changes the status of a PodAllocation, as another controller does.
func (r *rig) setStatus(pod *corev1.Pod, patch string) {
	r.Helper()
	r.must(r.Client.Status().Patch(r.Context(), r.stored(pod), client.RawPatch(types.MergePatchType, []byte(`{"status":`+patch+`}`))))
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
		r.ledgerIs(pod, app(700))
		since := r.stored(pod).Status.LastExternalChangeTime
		l.pass(time.Minute)
		if s := l.look(pod).Status; !s.LastExternalChangeTime.Equal(&since) || since.IsZero() {
			t.Errorf("changed externally at %v, want %v as before", s.LastExternalChangeTime, since)
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
