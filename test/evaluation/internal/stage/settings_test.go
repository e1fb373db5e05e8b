//go:build linux

package stage

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/mbcas/mbcas/test/evaluation/internal/plan"
	"github.com/mbcas/mbcas/test/internal/cluster"
)

// processes is a /proc with these command lines.
func processes(t *testing.T, lines ...string) string {
	t.Helper()
	proc := t.TempDir()
	for i, line := range lines {
		dir := filepath.Join(proc, string(rune('1'+i)))
		text := strings.ReplaceAll(line, " ", "\x00") + "\x00"
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "cmdline"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return proc
}

// parts are those of a cluster with these arguments of MBCAS, the VPA's recommender and the controller manager.
func parts(t *testing.T, mbcas, vpa, manager string) Parts {
	t.Helper()
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.System, Name: "mbcas-controller"}}
	d.Spec.Template.Annotations = map[string]string{"kubectl.kubernetes.io/restartedAt": mbcas + vpa + manager}
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "controller", Args: []string{mbcas}}, {Name: "weights"}}
	proc := processes(t, "/c/vpa-1a/recommender "+vpa, "/c/kube-2b/kube-controller-manager "+manager, "/sbin/init",
		"/c/metrics-3c/metrics-server --metric-resolution=15s", "")
	c := fake.NewClientBuilder().WithObjects(d).Build()
	p, err := ReadParts(t.Context(), c, proc, plan.Default(false, true).Policies)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestSettings: those of a cell change with every setting of its policy, and with none of another one.
func TestSettings(t *testing.T) {
	was := parts(t, "--a=1", "--b=1", "--horizontal-pod-autoscaler-sync-period=15s --port=1")
	same := parts(t, "--a=1", "--b=1", "--horizontal-pod-autoscaler-sync-period=15s --port=2")
	for _, policy := range []string{plan.Declared, plan.MBCAS, plan.VPATuned, plan.HPA, plan.HPAMBCAS} {
		var c plan.Cell
		for _, x := range plan.Default(false, true).Cells() {
			if x.Policy.Name == policy && x.Situation.Name == "requests-mislead" {
				c = x
			}
		}
		again := c
		again.Repeat++
		if got := same.Settings(again); got != was.Settings(c) {
			t.Errorf("%s: the settings of two repeats differ:\n%s\n%s", policy, was.Settings(c), got)
		}
		for part, x := range map[string]struct {
			parts   Parts
			changes bool
		}{
			"MBCAS": {parts(t, "--a=2", "--b=1", "--horizontal-pod-autoscaler-sync-period=15s"), c.Policy.MBCAS},
			"VPA":   {parts(t, "--a=1", "--b=2", "--horizontal-pod-autoscaler-sync-period=15s"), c.Policy.VPA != ""},
			"HPA":   {parts(t, "--a=1", "--b=1", "--horizontal-pod-autoscaler-sync-period=5s"), c.Policy.HPA},
		} {
			if changed := x.parts.Settings(c) != was.Settings(c); changed != x.changes {
				t.Errorf("%s: other settings of %s change them: %v, want %v", policy, part, changed, x.changes)
			}
		}
		other := c
		other.Situation.Workloads = append([]plan.Workload(nil), c.Situation.Workloads...)
		other.Situation.Workloads[0].Request++
		if was.Settings(other) == was.Settings(c) {
			t.Errorf("%s: another request does not change the settings", policy)
		}
	}
}

// TestPartsMustRun: settings of a policy whose programs do not run are not known.
func TestPartsMustRun(t *testing.T) {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.System, Name: "mbcas-controller"}}
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "controller"}}
	plain := fake.NewClientBuilder().WithObjects(d).Build()
	weights := plan.Policy{Name: plan.Weights, MBCAS: true, Weights: true}
	if _, err := ReadParts(t.Context(), plain, processes(t, "/sbin/init"), []plan.Policy{weights}); err == nil {
		t.Error("MBCAS runs without the component weights, and its settings pass for those with it")
	}
	none := fake.NewClientBuilder().Build()
	for _, x := range plan.Default(false, true).Policies {
		_, err := ReadParts(t.Context(), none, processes(t, "/sbin/init"), []plan.Policy{x})
		if (err != nil) != x.Acts() {
			t.Errorf("%s: %v, want an error: %v", x.Name, err, x.Acts())
		}
	}
}
