package build

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/mod/modfile"

	"github.com/mbcas/mbcas/test/cluster/internal/must"
)

const programs = "../../programs"

// The pins in the repository: each version's are of that version, as are its staging modules, and go.sum covers
// the programs that are no packages of ours.
func TestPins(t *testing.T) {
	versions, err := SkewVersions(programs)
	must.Succeed(t, err)
	if d := cmp.Diff([]string{"1.35", "1.37"}, versions); d != "" {
		t.Errorf("versions (-want +got):\n%s", d)
	}
	recipes := map[string]Recipe{programs: Kubernetes}
	for _, version := range versions {
		recipes[filepath.Join(skewFolder(programs), "v"+version)] = Skew
	}
	for folder, recipe := range recipes {
		raw, err := os.ReadFile(filepath.Join(folder, "go.mod"))
		must.Succeed(t, err)
		gomod, err := modfile.Parse("go.mod", raw, nil)
		must.Succeed(t, err)
		kubernetes := pin(gomod, KubernetesModule)
		if folder != programs && filepath.Base(folder) != "v"+minor(kubernetes) || pin(gomod, EtcdModule) == "" {
			t.Errorf("%s has Kubernetes %q and etcd %q", folder, kubernetes, pin(gomod, EtcdModule))
		}
		if len(gomod.Replace) == 0 {
			t.Errorf("%s: no staging module is replaced", folder)
		}
		for _, r := range gomod.Replace {
			if want := "v0." + strings.TrimPrefix(kubernetes, "v1."); r.New.Version != want {
				t.Errorf("%s: %s is replaced by %s, want %s", folder, r.Old.Path, r.New.Version, want)
			}
		}
		for _, p := range recipe.Programs {
			tool := slices.ContainsFunc(gomod.Tool, func(t *modfile.Tool) bool { return t.Path == p.Package })
			if !tool && !strings.HasPrefix(p.Package, "./") {
				t.Errorf("%s: %s is no tool, so go.sum need not cover it", folder, p.Package)
			}
		}
	}
}

// TestOpenVersion: each version has a folder of its own, and the cluster's version is the cluster's set.
func TestOpenVersion(t *testing.T) {
	open := func(version string) Cache {
		t.Helper()
		cache, err := OpenVersion(t.Context(), programs, version)
		must.Succeed(t, err)
		return cache
	}
	own, err := Open(t.Context(), programs, Kubernetes)
	must.Succeed(t, err)
	for _, version := range []string{"", minor(own.Versions[KubernetesModule])} {
		if got := open(version); got.Dir() != own.Dir() {
			t.Errorf("the cluster's own version, %q, is in %s, want %s", version, got.Dir(), own.Dir())
		}
	}
	old := open("1.35")
	if old.Dir() != open("v1.35").Dir() || old.Dir() == open("1.37").Dir() || old.Dir() == own.Dir() {
		t.Errorf("1.35 is in %s, 1.37 in %s, the cluster's in %s", old.Dir(), open("1.37").Dir(), own.Dir())
	}
	if flags := strings.Join(old.flags, " "); !strings.Contains(flags, "gitVersion="+old.Versions[KubernetesModule]) {
		t.Errorf("flags %s do not stamp the version", flags)
	}
	_, err = OpenVersion(t.Context(), programs, "1.12")
	if err == nil || !strings.Contains(err.Error(), "1.35 and 1.37") {
		t.Errorf("a version without pins: %v, want an error with those there are", err)
	}
}
