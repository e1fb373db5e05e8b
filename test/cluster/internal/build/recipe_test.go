package build

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mbcas/mbcas/test/cluster/internal/must"
)

// A module of its own, with all that a recipe can name and nothing to download.
func small(t *testing.T) (source string, r Recipe) {
	t.Helper()
	goCache, err := exec.Command("go", "env", "GOCACHE").Output()
	must.Succeed(t, err)
	t.Setenv("GOCACHE", strings.TrimSpace(string(goCache)))
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	source = t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.com/programs\n\ngo 1.26\n\nrequire example.com/lib v1.2.3\n\n" +
			"replace example.com/lib => ./lib\n",
		"lib/go.mod":           "module example.com/lib\n",
		"lib/lib.go":           "package lib\n\nvar Version string\n",
		"lib/deploy/roles.yml": "kind: Role\n",
		"hello/main.go":        "package main\n\nimport \"example.com/lib\"\n\nfunc main() { println(lib.Version) }\n",
	} {
		path := filepath.Join(source, name)
		must.Succeed(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must.Succeed(t, os.WriteFile(path, []byte(text), 0o644))
	}
	return source, Recipe{
		Prefix:   "small-",
		Modules:  []string{"example.com/lib"},
		Programs: []Program{{Name: "hello", Package: "./hello"}},
		Called:   "hello",
		Names:    []string{"hallo"},
		Files:    []string{"deploy/roles.yml"},
		Stamps:   func(version string) []string { return []string{"example.com/lib.Version=" + version} },
		Lasts:    "a second",
	}
}

func TestEnsure(t *testing.T) {
	source, r := small(t)
	cache, err := Open(t.Context(), source, r)
	must.Succeed(t, err)
	if d := cmp.Diff(map[string]string{"example.com/lib": "v1.2.3"}, cache.Versions); d != "" {
		t.Errorf("versions (-want +got):\n%s", d)
	}
	var first, second bytes.Buffer
	must.Succeed(t, cache.Ensure(t.Context(), &first))
	if !strings.Contains(first.String(), "example.com/lib v1.2.3") || !strings.Contains(first.String(), "a second") {
		t.Errorf("what is built, and how long it takes, is not said:\n%s", &first)
	}
	if out, err := exec.Command(cache.Program("hallo")).CombinedOutput(); err != nil || string(out) != "v1.2.3\n" {
		t.Errorf("the program by its other name: %q, %v, want the stamped version", out, err)
	}
	if raw, err := os.ReadFile(cache.Program("roles.yml")); err != nil || string(raw) != "kind: Role\n" {
		t.Errorf("the file out of the module: %q, %v", raw, err)
	}
	entries, err := os.ReadDir(cache.Dir())
	must.Succeed(t, err)
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".new") {
			t.Errorf("%s is left", e.Name())
		}
	}
	if err := cache.Ensure(t.Context(), &second); err != nil || second.Len() > 0 {
		t.Errorf("a second Ensure: %v\n%s", err, &second)
	}
}

// Sets of several recipes from one source are beside each other.
func TestOpen(t *testing.T) {
	source, r := small(t)
	dir := func(change func(*Recipe)) string {
		t.Helper()
		other := r
		change(&other)
		cache, err := Open(t.Context(), source, other)
		must.Succeed(t, err)
		return cache.Dir()
	}
	same := dir(func(*Recipe) {})
	for name, other := range map[string]string{
		"prefix":     dir(func(r *Recipe) { r.Prefix = "tiny-" }),
		"files":      dir(func(r *Recipe) { r.Files = nil }),
		"no stamps":  dir(func(r *Recipe) { r.Stamps = nil }),
		"more files": dir(func(r *Recipe) { r.Files = []string{"deploy/roles.yml", "lib.go"} }),
	} {
		if other == same {
			t.Errorf("%s: another recipe, and the same folder %s", name, same)
		}
	}
	r.Modules = append(r.Modules, "example.com/absent")
	if _, err := Open(t.Context(), source, r); err == nil || !strings.Contains(err.Error(), "example.com/absent") {
		t.Errorf("a module without a pin: %v, want an error that names it", err)
	}
}

func TestEnsureOfAFileThatIsNotThere(t *testing.T) {
	source, r := small(t)
	r.Files = []string{"deploy/moved.yml"}
	cache, err := Open(t.Context(), source, r)
	must.Succeed(t, err)
	err = cache.Ensure(t.Context(), new(bytes.Buffer))
	if err == nil || !strings.Contains(err.Error(), "deploy/moved.yml of example.com/lib v1.2.3") {
		t.Errorf("err = %v, want one that names the file and the module", err)
	}
	if cache.complete() {
		t.Error("the set counts as complete")
	}
}
