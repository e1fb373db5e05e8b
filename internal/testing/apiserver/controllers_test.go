package apiserver

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestControllers: the real controller fills the status of a quota.
func TestControllers(t *testing.T) {
	s := Start(t)
	ns := s.Namespace(t)
	s.Controllers(t, "resourcequota-controller")
	q := &corev1.ResourceQuota{}
	q.Namespace, q.Name = ns, "compute"
	q.Spec.Hard = corev1.ResourceList{corev1.ResourceLimitsCPU: resource.MustParse("4")}
	if err := s.Client.Create(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	Eventually(t, "the quota is counted", func() (bool, any) {
		err := s.Client.Get(t.Context(), client.ObjectKeyFromObject(q), q)
		used, ok := q.Status.Used[corev1.ResourceLimitsCPU]
		return err == nil && ok && used.IsZero(), q.Status
	})
}
