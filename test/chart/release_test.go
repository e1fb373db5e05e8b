package chart_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mbcas/mbcas/internal/testing/must"
)

// TestRelease: install.yaml of a release is what kustomize makes of config, the chart of a release renders the same
// objects, both have the images of the release, and crds.yaml and namespace.yaml are what a chart without CRDs lacks.
func TestRelease(t *testing.T) {
	out := t.TempDir()
	args := []string{"run", "./tools/dist", "-manifests", "-version=v1.2.3", "-registry=ghcr.io/mbcas", "-out=" + out}
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Env = root, append(os.Environ(), "SOURCE_DATE_EPOCH=1000000000") // the checkout may have no history
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %v: %v\n%s", args, err, said)
	}
	of := func(name string) []object {
		text, err := os.ReadFile(filepath.Join(out, "v1.2.3", name))
		must.Succeed(t, err)
		return objects(t, string(text))
	}
	want := byKey(released(t, built(t)))
	installed := byKey(of("install.yaml"))
	for _, fault := range unequal("install.yaml", anyMap(want), anyMap(installed)) {
		t.Error(fault)
	}
	render := func(args ...string) []object {
		archive := filepath.Join(out, "v1.2.3", "mbcas-1.2.3.tgz")
		args = append([]string{"template", "mbcas", archive, "--namespace", system}, args...)
		stdout, stderr, err := run(t, args...)
		if err != nil {
			t.Fatalf("helm template: %v\n%s", err, stderr)
		}
		return objects(t, stdout)
	}
	labels := map[string]any{
		"app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/version": "v1.2.3", "helm.sh/chart": "mbcas-1.2.3",
	}
	for _, fault := range differences(expected(of("install.yaml"), labels), render()) {
		t.Error(fault)
	}
	// What a chart without CRDs does not bring, the two other files do.
	apart := map[string]bool{}
	without := render("--set", "crds.install=false")
	for _, o := range slices.Concat(without, of("crds.yaml"), of("namespace.yaml")) {
		if !strings.HasPrefix(o.name(), "hook ") {
			apart[key(o)] = true
		}
	}
	for k := range want {
		if !apart[k] {
			t.Errorf("%s is in no file", k)
		}
	}
	if len(apart) != len(want) {
		t.Errorf("%d objects in the files apart, %d in install.yaml", len(apart), len(want))
	}
}

// image is one of ours, as a whole value.
var image = regexp.MustCompile(`"mbcas\.io/([\w-]+):dev"`)

// released are objects with the images of the release.
func released(t *testing.T, all []object) (with []object) {
	t.Helper()
	text, err := json.Marshal(all)
	must.Succeed(t, err)
	must.Succeed(t, json.Unmarshal(image.ReplaceAll(text, []byte(`"ghcr.io/mbcas/$1:v1.2.3"`)), &with))
	return with
}

func anyMap(all map[string]object) map[string]any {
	m := map[string]any{}
	for k, o := range all {
		m[k] = map[string]any(o)
	}
	return m
}
