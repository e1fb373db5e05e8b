// Package chart_test holds the Helm chart to the manifests of which it is made, with the command line of Helm itself.
package chart_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/mbcas/mbcas/internal/testing/must"
)

const (
	root  = "../.."
	chart = root + "/charts/mbcas"
)

// helm is the program, which Go builds from its module and keeps in its cache.
var helm = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "tool", "-n", "helm").Output()
	return strings.TrimSpace(string(out)), err
})

// run runs helm with nothing of the user's own: no configuration, no cluster.
func run(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	program, err := helm()
	if err != nil {
		t.Fatalf("build helm: go tool -n helm: %v", err)
	}
	home := t.TempDir()
	cmd := exec.Command(program, args...)
	cmd.Env = []string{
		"HOME=" + home, "PATH=" + os.Getenv("PATH"), "KUBECONFIG=" + filepath.Join(home, "none"),
		"HELM_CACHE_HOME=" + home, "HELM_CONFIG_HOME=" + home, "HELM_DATA_HOME=" + home,
	}
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	err = cmd.Run()
	return out.String(), said.String(), err
}

// template renders the chart in its namespace.
func template(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	return run(t, append([]string{"template", "mbcas", chart, "--namespace", "mbcas-system"}, args...)...)
}

// object is one object of the API.
type object map[string]any

// rendered are the objects of the chart with these values.
func rendered(t *testing.T, args ...string) []object {
	t.Helper()
	stdout, stderr, err := template(t, args...)
	if err != nil {
		t.Fatalf("helm template %v: %v\n%s", args, err, stderr)
	}
	return objects(t, stdout)
}

// objects are those of a text, which doubles no key.
func objects(t *testing.T, text string) (all []object) {
	t.Helper()
	for doc := range strings.SplitSeq("\n"+text, "\n---") {
		var o object
		if err := yaml.UnmarshalStrict([]byte(doc), &o); err != nil {
			t.Fatalf("%v in:\n%s", err, doc)
		}
		if len(o) > 0 {
			all = append(all, o)
		}
	}
	return all
}

// built are the objects of a kustomization: config/base with components of config. It is in memory, beside a copy of
// config.
func built(t *testing.T, components ...string) []object {
	t.Helper()
	files := filesys.MakeFsInMemory()
	err := filepath.WalkDir(root+"/config", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".yaml" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return files.WriteFile(strings.TrimPrefix(path, root), text)
	})
	text := "resources: [../base]\ncomponents:\n"
	for _, c := range components {
		text += fmt.Sprintf("- ../components/%s\n", c)
	}
	must.Succeed(t, errors.Join(err, files.WriteFile("/config/test/kustomization.yaml", []byte(text))))
	made, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(files, "/config/test")
	if err != nil {
		t.Fatalf("kustomize build of base with %v: %v", components, err)
	}
	out, err := made.AsYaml()
	must.Succeed(t, err)
	return objects(t, string(out))
}

// at is what stands at a path of an object; nil: nothing.
func at(o object, path ...string) any {
	v, _, _ := unstructured.NestedFieldNoCopy(o, path...)
	return v
}

// name is how a failure calls the object.
func (o object) name() string {
	name := fmt.Sprintf("%v/%v", at(o, "kind"), at(o, "metadata", "name"))
	if at(o, "metadata", "annotations", "helm.sh/hook") != nil {
		name = "hook " + name
	}
	return name
}
