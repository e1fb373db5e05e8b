package metrics

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"pgregory.net/rapid"

	"github.com/mbcas/mbcas/cpu"
)

// pod is one of a namespace with these cores.
func pod(namespace string, declared, limit, demand, beyond cpu.Milli) Pod {
	return Pod{
		State: State{Phase: "Applied"}, Namespace: namespace,
		Cores: Cores{Declared: declared, Limit: limit, Demand: demand, Beyond: beyond},
	}
}

// TestNamespaces: pods of all nodes add up by namespace, and a node that is gone takes its part with it.
func TestNamespaces(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := New(reg)
	check := func(want string) {
		t.Helper()
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for _, f := range families {
			for _, s := range f.GetMetric() {
				if name, ok := strings.CutPrefix(f.GetName(), "mbcas_namespace_"); ok {
					lines = append(lines, fmt.Sprintf("%s %s %v", strings.TrimSuffix(name, "_cores"), s.GetLabel()[0].GetValue(),
						s.GetGauge().GetValue()))
				}
			}
		}
		if d := cmp.Diff(strings.Fields(want), strings.Fields(strings.Join(lines, "\n"))); d != "" {
			t.Errorf("-want +got:\n%s", d)
		}
	}
	m.Allocations("n1", []Pod{pod("shop", 500, 800, 700, 200), pod("shop", 1000, 1000, 100, 0), pod("batch", 300, 200, 900, 0)})
	m.Allocations("n2", []Pod{pod("shop", 250, 250, 50, 0), pod("other", 100, 100, 100, 0)})
	check(`
		beyond batch 0
		beyond other 0
		beyond shop 0.2
		declared batch 0.3
		declared other 0.1
		declared shop 1.75
		demand batch 0.9
		demand other 0.1
		demand shop 0.85
		limit batch 0.2
		limit other 0.1
		limit shop 2.05`)
	m.Allocations("n1", nil)
	check(`
		beyond other 0
		beyond shop 0
		declared other 0.1
		declared shop 0.25
		demand other 0.1
		demand shop 0.05
		limit other 0.1
		limit shop 0.25`)
}

// TestNamespacesAreBounded: of any number of namespaces the 200 with the highest declared limits have series of their
// own, and all series add up to the sum of all.
func TestNamespacesAreBounded(t *testing.T) {
	m := New(prometheus.NewRegistry())
	var pods []Pod
	for i := range 1000 {
		pods = append(pods, pod(fmt.Sprintf("team-%03d", i), cpu.Milli(i+1), 1, 2, 3))
	}
	m.Allocations("n1", pods)
	if n := testutil.CollectAndCount(&m.namespaces); n != 804 {
		t.Errorf("%d series, want 804", n)
	}
	named, other := m.namespaces.named()
	if named["team-999"].Declared != 1000 || named["team-800"].Declared != 801 || named["team-799"].Declared != 0 {
		t.Errorf("the largest are not named: %v", named)
	}
	if want := (Cores{Declared: 800 * 801 / 2, Limit: 800, Demand: 1600, Beyond: 2400}); other != want {
		t.Errorf("the others have %v, want %v", other, want)
	}
}

// TestNamespacesForgetNothing: whatever nodes and pods come and go, the sums are those of the pods that are there.
func TestNamespacesForgetNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := New(prometheus.NewRegistry())
		last := map[string][]Pod{}
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			node := rapid.SampledFrom([]string{"n1", "n2", "n3"}).Draw(t, "node")
			var pods []Pod
			for range rapid.IntRange(0, 4).Draw(t, "pods") {
				name := rapid.SampledFrom([]string{"a", "b", "c", "other"}).Draw(t, "namespace")
				milli := func(what string) cpu.Milli { return cpu.Milli(rapid.IntRange(0, 4000).Draw(t, what)) }
				pods = append(pods, pod(name, milli("declared"), milli("limit"), milli("demand"), milli("beyond")))
			}
			m.Allocations(node, pods)
			last[node] = pods
		}
		want := map[string]Cores{}
		for pods := range maps.Values(last) {
			for _, p := range pods {
				sum := want[p.Namespace]
				sum.add(p.Cores, 1)
				want[p.Namespace] = sum
			}
		}
		other := want["other"]
		delete(want, "other")
		named, rest := m.namespaces.named()
		if d := cmp.Diff(want, named); d != "" || rest != other {
			t.Errorf("(-want +got):\n%s\nother: %v, want %v", d, rest, other)
		}
	})
}
