package build

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/mbcas/mbcas/test/cluster/internal/must"
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
		"go.mod": file("m"), "go.sum": file("s"), "kube/main.go": file("g"),
		"kube/README.md": file("text"), "kube/go.mod.orig": file("x"),
	})
	must.Succeed(t, err)
	want := map[string][]byte{"go.mod": []byte("m"), "go.sum": []byte("s"), "kube/main.go": []byte("g")}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("inputs (-want +got):\n%s", d)
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

func TestFindSource(t *testing.T) {
	repo := t.TempDir()
	source := filepath.Join(repo, "test", "cluster", "programs")
	deep := filepath.Join(repo, "internal", "x")
	for _, dir := range []string{source, deep} {
		must.Succeed(t, os.MkdirAll(dir, 0o755))
	}
	must.Succeed(t, os.WriteFile(filepath.Join(source, "go.mod"), nil, 0o644))
	if got, err := FindSource(t.TempDir(), deep); err != nil || got != source {
		t.Errorf("FindSource = %q, %v, want %q", got, err, source)
	}
	if _, err := FindSource(t.TempDir()); err == nil || !strings.Contains(err.Error(), "--source") {
		t.Errorf("outside the repository: %v, want an error that names --source", err)
	}
}
