package build

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// tools are sets of programs that tests start by themselves, by the name of the folder of their pins beside those
// of the add-ons.
var tools = map[string]Recipe{
	"prometheus": {
		Prefix:  "prometheus-",
		Modules: []string{"github.com/prometheus/prometheus"},
		Programs: []Program{
			{Name: "promtool", Package: "github.com/prometheus/prometheus/cmd/promtool"},
			{Name: "prometheus", Package: "github.com/prometheus/prometheus/cmd/prometheus"},
		},
		// Of the ways to discover what to scrape it has files and Kubernetes: the others have hundreds of modules.
		Tags:   []string{"remove_all_sd", "enable_kubernetes_sd"},
		Stamps: stampPrometheus,
		Lasts:  "5 minutes",
	},
	"alertmanager": {
		Prefix:   "alertmanager-",
		Modules:  []string{"github.com/prometheus/alertmanager"},
		Programs: []Program{{Name: "alertmanager", Package: "github.com/prometheus/alertmanager/cmd/alertmanager"}},
		Stamps:   stampPrometheus,
		Lasts:    "2 minutes",
	},
}

func stampPrometheus(version string) []string {
	return []string{"github.com/prometheus/common/version.Version=" + strings.TrimPrefix(version, "v")}
}

// OpenTool is a set of such programs. It builds nothing. programs is the folder test/cluster/programs.
func OpenTool(ctx context.Context, programs, name string) (Cache, error) {
	recipe, ok := tools[name]
	if !ok {
		return Cache{}, fmt.Errorf("no tool %q; there are %s", name, strings.Join(ToolNames(), " and "))
	}
	return Open(ctx, filepath.Join(filepath.Dir(programs), "addons", name), recipe)
}

// ToolNames are the names that OpenTool takes.
func ToolNames() []string { return slices.Sorted(maps.Keys(tools)) }
