package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/mbcas/mbcas/internal/testing/must"
)

var (
	uses   = regexp.MustCompile(`(?m)^\s*-?\s*uses: (\S+)`)
	pinned = regexp.MustCompile(`^[a-z-]+/[a-z-]+@v\d+\.\d+\.\d+$`)
)

// TestWorkflows: each action is named with a full version, and a workflow starts with no right but to read. make check
// has actionlint look at the rest.
func TestWorkflows(t *testing.T) {
	files, err := filepath.Glob("../../.github/workflows/*.yml")
	if err != nil || len(files) != 2 {
		t.Fatalf("%d workflows, %v; want ci and release", len(files), err)
	}
	actions := 0
	for _, path := range files {
		text, err := os.ReadFile(path)
		must.Succeed(t, err)
		for _, m := range uses.FindAllStringSubmatch(string(text), -1) {
			if actions++; !pinned.MatchString(m[1]) && !strings.HasPrefix(m[1], "./") {
				t.Errorf("%s uses %s: name a full version, such as @v1.2.3", path, m[1])
			}
		}
		var w struct {
			Permissions map[string]string `json:"permissions"`
		}
		if err := yaml.Unmarshal(text, &w); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if len(w.Permissions) != 1 || w.Permissions["contents"] != "read" {
			t.Errorf("%s starts with the rights %v, want to read contents alone", path, w.Permissions)
		}
	}
	if actions < 8 {
		t.Errorf("%d actions found, want at least 8", actions)
	}
}

// TestReleaseFiles: what the workflow signs and attests is what make dist writes.
func TestReleaseFiles(t *testing.T) {
	text, err := os.ReadFile("../../.github/workflows/release.yml")
	must.Succeed(t, err)
	files := fakeFiles(t)
	names := regexp.MustCompile(`\b(checksums\.txt|RELEASE_NOTES\.md|mbcas-(?:agent|controller)\.spdx\.json)`)
	seen := map[string]bool{}
	for _, name := range names.FindAllString(string(text), -1) {
		if seen[name] = true; files[name] == nil {
			t.Errorf("release.yml names %s, which make dist does not write", name)
		}
	}
	if len(seen) != 4 {
		t.Errorf("release.yml names %v, want checksums, notes and two bills of materials", seen)
	}
}
