package dispatch

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/mbcas/mbcas/internal/flowcontrol"
	"github.com/mbcas/mbcas/internal/quota"
)

// TestPodsAreCountedSeldom: whatever number of increases a namespace with a quota has, the pods of other
// replicas are counted once in a while, and anew when nodes may have moved.
func TestPodsAreCountedSeldom(t *testing.T) {
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cores"}}
	q.Spec.Hard = corev1.ResourceList{corev1.ResourceLimitsCPU: resource.MustParse("100")}
	q.Status.Hard, q.Status.Used = q.Spec.Hard, corev1.ResourceList{corev1.ResourceLimitsCPU: resource.MustParse("1")}
	counted := map[string]int{}
	b := newBench(flowcontrol.DefaultConfig(), nil)
	b.Quotas = NewQuotas(fake.NewClientBuilder().WithObjects(q).Build(), 0.1,
		quota.NewReservations(quota.DefaultConfig(), time.Minute, time.Hour),
		func(_ context.Context, namespace string) (float64, error) {
			counted[namespace]++
			return 0.5, nil
		})
	now := time.Now()
	increases := func(want int) {
		t.Helper()
		for range 100 {
			r := b.resizeOf("shop", "web", "n", flowcontrol.Needed)
			r.Value.Pod.Spec.Containers = []corev1.Container{{Name: "app"}}
			r.Value.Pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m")}
			if _, fits, err := b.Quotas.Fits(t.Context(), r.Value, now); !fits || err != nil {
				t.Fatalf("fits %v, error %v", fits, err)
			}
		}
		if counted["shop"] != want {
			t.Errorf("counted %d times, want %d", counted["shop"], want)
		}
	}
	increases(1)
	now = now.Add(sharingKept)
	increases(2)
	b.TakeOver()
	increases(3)
}
