package docs_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mbcas/mbcas/internal/testing/metricset"
)

// unitOf is the unit that the name of a metric tells.
func unitOf(name string) string {
	name = strings.TrimSuffix(name, "_total")
	for _, u := range []struct{ suffix, unit string }{
		{"_core_seconds", "core-seconds"}, {"_throttled_seconds", "pod-seconds"}, {"_seconds", "seconds"}, {"_cores", "cores"},
		{"_ratio", "0 to 1"}, {"_price", "budget per 1/1000 core"}, {"_info", "1"},
		{"_holds_lease", "0 or 1"}, {"_leader", "0 or 1"}, {"_blocked", "0 or 1"}, {"_restores_stopped", "0 or 1"},
		{"_floors_exceed_supply", "0 or 1"}, {"_pods", "pods"}, {"_nodes", "nodes"},
	} {
		if strings.HasSuffix(name, u.suffix) {
			return u.unit
		}
	}
	return "count"
}

// TestMetricsReference: metrics.md is what the registries of the programs describe;
// `go test ./docs -run MetricsReference -update` writes it.
func TestMetricsReference(t *testing.T) {
	for name, described := range map[string]func() ([]metricset.Metric, error){
		"controller": metricset.Controller, "agent": metricset.Agent,
	} {
		want := "\n| metric | type | labels | unit | meaning |\n| --- | --- | --- | --- | --- |\n"
		all, err := described()
		if err != nil || len(all) < 20 {
			t.Fatalf("the %s describes %d metrics (%v), want at least 20", name, len(all), err)
		}
		for _, m := range all {
			want += fmt.Sprintf("| `%s` | %s | %s | %s | %s |\n", m.Name, m.Type, strings.Join(m.Labels, ", "), unitOf(m.Name), m.Help)
		}
		hold(t, "metrics.md", "metrics "+name, want+"\n")
	}
}
