package build

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

func TestKey(t *testing.T) {
	base := map[string][]byte{"go.mod": []byte("a"), "go.sum": []byte("b"), "kube/main.go": []byte("c")}
	with := func(name, text string) map[string][]byte {
		m := maps.Clone(base)
		m[name] = []byte(text)
		return m
	}
	same := key(base, "go1.26.8")
	if again := key(maps.Clone(base), "go1.26.8"); again != same {
		t.Errorf("key of the same files: %s, then %s", same, again)
	}
	for name, other := range map[string]string{
		"pin":           key(with("go.mod", "A"), "go1.26.8"),
		"sum":           key(with("go.sum", "B"), "go1.26.8"),
		"source":        key(with("kube/main.go", "C"), "go1.26.8"),
		"new file":      key(with("kube/more.go", ""), "go1.26.8"),
		"Go":            key(base, "go1.26.9"),
		"shifted bytes": key(with("go.mod", "a6:go.sum"), "go1.26.8"),
		"split extras":  key(base, "go1.26", ".8"),
	} {
		if other == same {
			t.Errorf("%s: key does not change", name)
		}
	}
}

func TestInputs(t *testing.T) {
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	got, err := inputs(fstest.MapFS{
		"go.mod": file("m"), "go.sum": file("s"), "kube/main.go": file("g"), "kube/README.md": file("text"), "kube/go.mod.orig": file("x"),
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]byte{"go.mod": []byte("m"), "go.sum": []byte("s"), "kube/main.go": []byte("g")}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("inputs (-want +got):\n%s", d)
	}
}

func TestPin(t *testing.T) {
	gomod := []byte("module x\n\nrequire (\n\tk8s.io/kubernetes v1.36.3 // why\n)\n\nrequire example.com/one v1.0.0\n\nreplace (\n\tk8s.io/api => k8s.io/api v0.36.3\n)\n")
	for module, want := range map[string]string{
		"k8s.io/kubernetes": "v1.36.3",
		"example.com/one":   "v1.0.0",
		"k8s.io/api":        "",
		"k8s.io/kube":       "",
	} {
		if got := pin(gomod, module); got != want {
			t.Errorf("pin(%s) = %q, want %q", module, got, want)
		}
	}
}

// The sources in the repository: their pins must be readable, and every staging
// module must be of the same release.
func TestPinsOfTheRepository(t *testing.T) {
	gomod, err := os.ReadFile("../../programs/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	kubernetes := pin(gomod, "k8s.io/kubernetes")
	if !strings.HasPrefix(kubernetes, "v1.") || pin(gomod, "go.etcd.io/etcd/server/v3") == "" {
		t.Fatalf("kubernetes %q, etcd %q", kubernetes, pin(gomod, "go.etcd.io/etcd/server/v3"))
	}
	staging := "v0." + strings.TrimPrefix(kubernetes, "v1.")
	for line := range strings.Lines(string(gomod)) {
		if f := strings.Fields(line); len(f) == 4 && f[1] == "=>" && f[3] != staging {
			t.Errorf("%s is replaced by %s, want %s", f[0], f[3], staging)
		}
	}
}

func TestFlagsStampTheVersion(t *testing.T) {
	all := strings.Join(Kubernetes.flags("v1.36.3"), " ")
	for _, want := range []string{"gitVersion=v1.36.3", "gitMajor=1", "gitMinor=36 "} {
		if !strings.Contains(all, want) {
			t.Errorf("flags %q lack %q", all, want)
		}
	}
}

func TestCount(t *testing.T) {
	var n atomic.Int64
	said := count(strings.NewReader("k8s.io/api/core/v1\ngo: downloading x v1\nfmt\n# pkg\nmain.go:3: undefined: x\n"), &n)
	if n.Load() != 2 {
		t.Errorf("counted %d packages, want 2", n.Load())
	}
	if d := cmp.Diff([]string{"go: downloading x v1", "# pkg", "main.go:3: undefined: x"}, said); d != "" {
		t.Errorf("kept lines (-want +got):\n%s", d)
	}
}

func TestFindSource(t *testing.T) {
	repo := t.TempDir()
	source := filepath.Join(repo, "test", "cluster", "programs")
	deep := filepath.Join(repo, "internal", "x")
	for _, dir := range []string{source, deep} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(source, "go.mod"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if got, err := FindSource(t.TempDir(), deep); err != nil || got != source {
		t.Errorf("FindSource = %q, %v, want %q", got, err, source)
	}
	if _, err := FindSource(t.TempDir()); err == nil || !strings.Contains(err.Error(), "--source") {
		t.Errorf("outside the repository: %v, want an error that names --source", err)
	}
}
