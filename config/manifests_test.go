package config_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/config"
)

// TestObjects: the manifests inside programs are those that kubectl makes of the folder.
func TestObjects(t *testing.T) {
	for _, dir := range []string{"base", "crd", "rbac", "policy", "components/plugin-users", "components/secure-metrics/roles"} {
		want := map[string]client.Object{}
		for _, o := range render(t, dir) {
			want[identity(o)] = o
		}
		texts, err := config.Objects(dir)
		if err != nil {
			t.Fatal(err)
		}
		if len(texts) != len(want) {
			t.Errorf("%s: %d objects, kubectl makes %d", dir, len(texts), len(want))
		}
		for _, o := range decode(t, dir, []byte(strings.Join(texts, "---\n"))) {
			if !equality.Semantic.DeepEqual(o, want[identity(o)]) {
				t.Errorf("%s: %s differs from what kubectl makes", dir, identity(o))
			}
		}
	}
	if _, err := config.Objects("missing"); err == nil {
		t.Error("a folder that is not there is no error")
	}
}

func identity(o client.Object) string {
	kinds, _, err := scheme.Scheme.ObjectKinds(o)
	if err != nil {
		return "CustomResourceDefinition " + o.GetName()
	}
	return kinds[0].Kind + " " + o.GetNamespace() + "/" + o.GetName()
}
