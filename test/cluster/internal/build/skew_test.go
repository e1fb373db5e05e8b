package build

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const programs = "../../programs"

// The pins of each other version are of that version, as are its staging modules, and
// go.sum covers the programs.
func TestSkewPins(t *testing.T) {
	versions, err := SkewVersions(programs)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"1.35", "1.37"}, versions); d != "" {
		t.Errorf("versions (-want +got):\n%s", d)
	}
	for _, version := range versions {
		gomod, err := os.ReadFile(filepath.Join(skewFolder(programs), "v"+version, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		kubernetes := pin(gomod, KubernetesModule)
		if minor(kubernetes) != version {
			t.Errorf("v%s/go.mod has Kubernetes %q", version, kubernetes)
		}
		replaced, staging := 0, "v0."+strings.TrimPrefix(kubernetes, "v1.")
		for line := range strings.Lines(string(gomod)) {
			if f := strings.Fields(line); len(f) == 4 && f[1] == "=>" {
				if replaced++; f[3] != staging {
					t.Errorf("v%s: %s is replaced by %s, want %s", version, f[0], f[3], staging)
				}
			}
		}
		if replaced == 0 {
			t.Errorf("v%s: no staging module is replaced", version)
		}
		for _, p := range Skew.Programs {
			if !strings.Contains(string(gomod), "\t"+p.Package+"\n") {
				t.Errorf("v%s: %s is no tool, so go.sum need not cover it", version, p.Package)
			}
		}
	}
}

// TestOpenVersion: each version has a folder of its own, and the cluster's version is the cluster's set.
func TestOpenVersion(t *testing.T) {
	open := func(version string) Cache {
		t.Helper()
		cache, err := OpenVersion(t.Context(), programs, version)
		if err != nil {
			t.Fatal(err)
		}
		return cache
	}
	own, err := Open(t.Context(), programs, Kubernetes)
	if err != nil {
		t.Fatal(err)
	}
	if got := open(minor(own.Versions[KubernetesModule])); got.Dir() != own.Dir() {
		t.Errorf("the cluster's own version is in %s, want %s", got.Dir(), own.Dir())
	}
	old := open("1.35")
	if old.Dir() != open("v1.35").Dir() || old.Dir() == open("1.37").Dir() || old.Dir() == own.Dir() {
		t.Errorf("1.35 is in %s, 1.37 in %s, the cluster's in %s", old.Dir(), open("1.37").Dir(), own.Dir())
	}
	if flags := strings.Join(old.flags, " "); !strings.Contains(flags, "gitVersion="+old.Versions[KubernetesModule]) {
		t.Errorf("flags %s do not stamp the version", flags)
	}
	if _, err := OpenVersion(t.Context(), programs, "1.12"); err == nil || !strings.Contains(err.Error(), "1.35 and 1.37") {
		t.Errorf("a version without pins: %v, want an error with those there are", err)
	}
}
