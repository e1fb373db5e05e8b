package build

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"

	"github.com/mbcas/mbcas/test/cluster/internal/must"
)

// TestTools: the pins in the repository cover the programs of the tools, and their tags are in the flags.
func TestTools(t *testing.T) {
	if len(ToolNames()) != 2 {
		t.Errorf("tools %q, want two", ToolNames())
	}
	for _, name := range ToolNames() {
		cache, err := OpenTool(t.Context(), "../../programs", name)
		must.Succeed(t, err)
		raw, err := os.ReadFile(filepath.Join(cache.Source, "go.mod"))
		must.Succeed(t, err)
		gomod, err := modfile.Parse("go.mod", raw, nil)
		must.Succeed(t, err)
		for _, p := range tools[name].Programs {
			if !slices.ContainsFunc(gomod.Tool, func(t *modfile.Tool) bool { return t.Path == p.Package }) {
				t.Errorf("%s/go.mod: %s is no tool of it, so go.sum need not cover it", cache.Source, p.Package)
			}
		}
		if tags := tools[name].Tags; len(tags) > 0 && !slices.Contains(cache.flags, "-tags="+strings.Join(tags, ",")) {
			t.Errorf("%s: flags %q lack the tags %q", name, cache.flags, tags)
		}
	}
	_, err := OpenTool(t.Context(), "../../programs", "grafana")
	if err == nil || !strings.Contains(err.Error(), "alertmanager and prometheus") {
		t.Errorf("an unknown tool: %v, want an error with those there are", err)
	}
}
