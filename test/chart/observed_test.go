package chart_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/mbcas/mbcas/internal/testing/must"
)

// observed are the objects that the files of monitoring are shipped in, without Helm's labels: the rules in a
// PrometheusRule, each dashboard in a ConfigMap.
func observed(t *testing.T) (all []object) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "monitoring", "rules.yaml"))
	must.Succeed(t, err)
	var spec map[string]any
	must.Succeed(t, yaml.UnmarshalStrict(text, &spec))
	labels := func(more map[string]any) map[string]any {
		more["app.kubernetes.io/name"] = "mbcas"
		return more
	}
	all = append(all, object{
		"apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule", "spec": spec,
		"metadata": map[string]any{"name": "mbcas", "namespace": system, "labels": labels(map[string]any{})},
	})
	files, err := filepath.Glob(filepath.Join(root, "monitoring", "dashboards", "*.json"))
	must.Succeed(t, err)
	for _, path := range files {
		text, err := os.ReadFile(path)
		must.Succeed(t, err)
		file := filepath.Base(path)
		name := "mbcas-dashboard-" + strings.TrimSuffix(strings.TrimPrefix(file, "mbcas-"), ".json")
		all = append(all, object{
			"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{file: string(text)},
			"metadata": map[string]any{
				"name": name, "namespace": system, "labels": labels(map[string]any{"grafana_dashboard": "1"}),
			},
		})
	}
	return all
}

// TestRulesAndDashboards: the chart ships the rules and the dashboards of monitoring, field by field and byte by byte,
// and nothing else beside what kustomize makes. The comparison sees each change of a rule and of a dashboard.
func TestRulesAndDashboards(t *testing.T) {
	all := rendered(t, "--set", "monitoring.rules=on,monitoring.dashboards=true")
	for _, fault := range differences(expected(slices.Concat(built(t), observed(t)), helmLabels), all) {
		t.Error(fault)
	}
	want := expected(observed(t), helmLabels)
	if len(want) != 6 {
		t.Fatalf("%d objects, want the rules and five dashboards", len(want))
	}
	got := slices.DeleteFunc(all, func(o object) bool {
		return want[key(o)] == nil && !strings.HasPrefix(o.name(), "hook ")
	})
	everyLeafCounts(t, want, got, 250)
}
