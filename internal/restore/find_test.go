package restore

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mbcas/mbcas/internal/kube"
)

// TestTemplateOfARevision: a pod of a StatefulSet was made from the revision that it names.
func TestTemplateOfARevision(t *testing.T) {
	yes := true
	owner := []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", UID: "of-db", Controller: &yes}}
	revision := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db-7d9f", OwnerReferences: owner}}
	revision.Data.Raw = []byte(`{"spec":{"template":{"$patch":"replace","spec":{"containers":[{"name":"app",` +
		`"resources":{"requests":{"cpu":"100m"},"limits":{"cpu":"600m"}}}]}}}}`)
	finder := Finder{Live: newClient(t, revision), Namespace: system}
	for _, label := range []string{"db-7d9f", "7d9f"} {
		p := pod("db", 500, false)
		p.OwnerReferences, p.Labels, p.Generation = owner, map[string]string{appsv1.ControllerRevisionHashLabelKey: label}, 2
		p.ManagedFields = nil // nothing says which manager wrote the limits
		found, err := finder.Find(t.Context(), p, Records{})
		if err != nil || !kube.SameLimits(found.Limits, limits(600)) {
			t.Errorf("label %s: declared limits %v, %v: want app=600m", label, found.Limits, err)
		}
	}
}
