//go:build linux

package stage

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/mbcas/mbcas/internal/testing/apiserver"
	"github.com/mbcas/mbcas/test/evaluation/internal/results"
	"github.com/mbcas/mbcas/test/internal/audit"
	"github.com/mbcas/mbcas/test/internal/poll"
)

// object is one without a Go type.
func object(version, kind, namespace, name string, spec map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": version, "kind": kind}}
	if spec != nil {
		o.Object["spec"] = spec
	}
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

// audited is a real API server with the local cluster's audit policy, and its log.
func audited(t *testing.T) (*apiserver.Server, string) {
	t.Helper()
	assets := os.Getenv("KUBEBUILDER_ASSETS")
	if assets == "" {
		if os.Getenv("CI") == "true" {
			t.Fatal("KUBEBUILDER_ASSETS is not set")
		}
		t.Skip(`no API server to test against: set KUBEBUILDER_ASSETS="$(bin/mbcas-cluster assets)"`)
	}
	policy, err := filepath.Abs("../../../cluster/internal/controlplane/audit-policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(t.TempDir(), "audit.log")
	s, err := apiserver.Open(assets, func(env *envtest.Environment) {
		env.ControlPlane.GetAPIServer().Configure().Set("audit-policy-file", policy).Set("audit-log-path", log)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, log
}

// TestWritesAreCounted: with the local cluster's audit policy the log has every write of a part of a policy: other
// objects than pods, outside the cell's namespace, too.
func TestWritesAreCounted(t *testing.T) {
	s, path := audited(t)
	ns, elsewhere := s.Namespace(t), s.Namespace(t)
	masters := "system:masters" // rights are not what this is about
	agent := s.As(t, user("mbcas-system", "mbcas-agent"), masters)
	hpa := s.As(t, user("kube-system", "horizontal-pod-autoscaler"), masters)
	vpa := s.As(t, user("kube-system", "vpa-recommender"), masters)
	scheduler := s.As(t, "system:kube-scheduler", masters)
	log, err := audit.From(path)
	if err != nil {
		t.Fatal(err)
	}
	last := object("v1", "ConfigMap", ns, "last", nil)
	for _, x := range []struct {
		c client.Client
		o client.Object
	}{
		{agent, object("coordination.k8s.io/v1", "Lease", elsewhere, "agent", nil)},
		{agent, object("v1", "Event", elsewhere, "e", nil)},
		{vpa, object("coordination.k8s.io/v1", "Lease", elsewhere, "vpa", nil)},
		{hpa, object("autoscaling/v2", "HorizontalPodAutoscaler", ns, "web", map[string]any{
			"scaleTargetRef": map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
			"maxReplicas":    int64(2),
		})},
		{scheduler, object("coordination.k8s.io/v1", "Lease", elsewhere, "scheduler", nil)},
		{scheduler, object("v1", "ConfigMap", elsewhere, "other", nil)},
		{scheduler, last},
	} {
		if e, ok := x.o.(*unstructured.Unstructured); ok && e.GetKind() == "Event" {
			e.Object["involvedObject"] = map[string]any{"kind": "Pod", "namespace": elsewhere, "name": "p"}
		}
		if err := x.c.Create(t.Context(), x.o); err != nil {
			t.Fatalf("%s %s: %v", x.o.GetObjectKind().GroupVersionKind().Kind, x.o.GetName(), err)
		}
	}
	if err := vpa.Get(t.Context(), client.ObjectKeyFromObject(last), &corev1.ConfigMap{}); err != nil {
		t.Fatal(err)
	}
	want := map[string]map[string]int{
		"mbcas": {"leases": 1, "events": 1}, "vpa": {"leases": 1}, "hpa": {"horizontalpodautoscalers": 1},
		"cluster": {"configmaps": 1},
	}
	err = poll.Until(t.Context(), 30*time.Second, func() string { // the log is written after the answer
		var got results.Control
		if err := log.Each(func(e audit.Event) { count(&got, ns, e) }); err != nil {
			return err.Error()
		}
		delete(got.Writes["cluster"], "serviceaccounts") // of no controller here
		return cmp.Diff(want, got.Writes)
	})
	if err != nil {
		t.Error(err)
	}
}
