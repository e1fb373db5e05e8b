package cli

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/mbcas/mbcas/internal/cli/advice"
)

// advisable is the shop, with a recorded node on which cart is a Deployment's pod.
func advisable(t *testing.T) *fakeCluster {
	t.Helper()
	objects := shop()
	edit(t, objects, "cart-7d9f", func(p *corev1.Pod) {
		yes := true
		p.Labels = map[string]string{"pod-template-hash": "7d9f"}
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "cart-7d9f", UID: "rs", Controller: &yes}}
	})
	c := newCluster(t, objects...)
	c.Rounds = serves(recorderOf(150))
	return c
}

// TestAdvise shows the advice as a table and as patches, in testdata/advise.txt, and writes nothing. The patches are YAML
// for the workload, and JSON has the same figures.
func TestAdvise(t *testing.T) {
	c := advisable(t)
	var b strings.Builder
	for _, args := range []string{"advise -n shop", "advise -n shop --least 1m", "advise -n shop --least 1m -o patch", "advise -n lab"} {
		stdout, stderr, err := c.run(t, strings.Split(args, " ")...)
		if err != nil {
			t.Fatalf("%s: %v", args, err)
		}
		b.WriteString("$ kubectl mbcas " + args + "\n" + stderr + stdout + "\n")
	}
	golden(t, "advise", b.String())

	stdout, _, err := c.run(t, "advise", "-n", "shop", "--least", "1m", "-o", "json")
	var v advice.View
	if err := errors.Join(err, json.Unmarshal([]byte(stdout), &v)); err != nil || len(v.Advice) != 2 {
		t.Fatalf("%v\n%s", err, stdout)
	}
	patch := c.prints(t, "advise -n shop --least 1m -o patch")
	_, document, _ := strings.Cut(patch, "---\n")
	var d appsv1.Deployment
	if err := yaml.UnmarshalStrict([]byte(document), &d); err != nil || d.Kind != "Deployment" || d.Name != "cart" || d.Namespace != "shop" {
		t.Fatalf("%v, %+v\n%s", err, d, document)
	}
	got := d.Spec.Template.Spec.Containers[0]
	for _, a := range v.Advice {
		if a.Workload == "Deployment/cart" && (got.Name != a.Container ||
			got.Resources.Requests.Cpu().MilliValue() != int64(a.Advised.Request) || got.Resources.Limits.Cpu().MilliValue() != int64(a.Advised.Limit)) {
			t.Errorf("patch %+v, JSON %+v", got.Resources, a.Advised)
		}
	}
	if len(c.writes) > 0 {
		t.Errorf("wrote %v", c.writes)
	}
}

// TestAdviseErrors: what is missing is named.
func TestAdviseErrors(t *testing.T) {
	c := advisable(t)
	if err := c.fails(t, "advise --headroom -1", "headroom is -1"); !errors.As(err, new(UsageError)) {
		t.Errorf("%v", err)
	}
	recordsNothing(c)
	c.fails(t, "advise -n shop", "recording of node node-1: records nothing")
}
