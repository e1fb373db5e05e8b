package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mbcas/mbcas/internal/testing/must"
)

// write writes files below a folder.
func write(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(root, name)
		err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o755))
		must.Succeed(t, err)
	}
}

// TestSkew: the tests run once on each version, with its programs; how each came out is a line, a failure
// names the version, and a version that cannot be built is a skip.
func TestSkew(t *testing.T) {
	const program = `#!/bin/sh
test "$1" = assets || exit 1
case $2 in --version=1.36) echo no network >&2; exit 1;; esac
echo "$(dirname "$0")/../${2#--version=}"
`
	const old = `package p
import ("os"; "strings"; "testing")
func TestOld(t *testing.T) {
	if !strings.HasSuffix(os.Getenv("KUBEBUILDER_ASSETS"), "/1.35") { t.Error("too new") }
}`
	const scheduler = `package c
import "testing"
func TestAny(t *testing.T) {}
func TestTheSchedulerDoesNotMind(t *testing.T) { t.Error("no scheduler") }`
	root := t.TempDir()
	write(t, root, map[string]string{
		"go.mod":                         "module example.com/m\n\ngo 1.26\n",
		"test/cluster/skew/v1.35/go.mod": "",
		"test/cluster/skew/v1.36/go.mod": "",
		"test/cluster/skew/v1.37/go.mod": "",
		"bin/mbcas-cluster":              program,
		"1.35/kube-apiserver":            "#!/bin/sh\necho Kubernetes v1.35.4\n",
		"1.37/kube-apiserver":            "#!/bin/sh\necho Kubernetes v1.37.0\n",
		"actuator/podresize/p_test.go":   old,
		"internal/controller/c_test.go":  scheduler,
	})
	var out strings.Builder
	r := repo{root: root, out: &out, results: newResults(&out, false)}
	must.Succeed(t, r.skew(t.Context()))
	r.results.summary()
	for _, want := range []string{
		"Kubernetes v1.35.4: 2 passed, 0 failed, 0 skipped in ",
		"Kubernetes v1.37.0: 1 passed, 1 failed, 0 skipped in ",
		"--- FAIL: example.com/m/actuator/podresize on Kubernetes v1.37.0 TestOld",
		"Kubernetes 1.36: mbcas-cluster assets --version=1.36: exit status 1",
		"\n3 passed, 1 failed, 1 skipped\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, out.String())
		}
	}
}
