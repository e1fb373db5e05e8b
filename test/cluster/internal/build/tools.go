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
	// It has no place for its version.
	"prometheus-adapter": {
		Prefix:  "prometheus-adapter-",
		Modules: []string{adapterModule},
		Programs: []Program{
			{Name: "prometheus-adapter", Package: adapterModule + "/cmd/adapter"},
		},
		// The account that it acts as, and the rights of it.
		Files: []string{
			"deploy/manifests/service-account.yaml",
			"deploy/manifests/cluster-role.yaml",
			"deploy/manifests/cluster-role-binding.yaml",
			"deploy/manifests/cluster-role-binding-delegator.yaml",
			"deploy/manifests/role-binding-auth-reader.yaml",
		},
		Lasts: "3 minutes",
	},
}

const adapterModule = "sigs.k8s.io/prometheus-adapter"

func stampPrometheus(version string) []string {
	return []string{"github.com/prometheus/common/version.Version=" + strings.TrimPrefix(version, "v")}
}

// OpenTool is a set of such programs. It builds nothing. programs is the folder test/cluster/programs.
func OpenTool(ctx context.Context, programs, name string) (Cache, error) {
	recipe, ok := tools[name]
	if !ok {
		return Cache{}, fmt.Errorf("no tool %q; there are %s", name, strings.Join(ToolNames(), ", "))
	}
	return Open(ctx, filepath.Join(filepath.Dir(programs), "addons", name), recipe)
}

// ToolNames are the names that OpenTool takes.
func ToolNames() []string { return slices.Sorted(maps.Keys(tools)) }
