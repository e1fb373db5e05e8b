package mbcas_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/mbcas/mbcas"

// rule is what a package may import beside the standard library.
type rule struct {
	ours       []string // packages of this module
	kubernetes bool     // may speak Kubernetes
	others     []string // modules of others, by prefix
}

// rules are in the order of the flow. Imports point up this list, never down.
var rules = []struct {
	pkg string
	rule
}{
	{"cpu", rule{}},
	{"market", rule{ours: []string{"cpu"}}},
	{"internal/kernel", rule{ours: []string{"cpu"}, others: []string{"golang.org/x/sys", "github.com/fsnotify/fsnotify"}}},
	{"internal/sense", rule{ours: []string{"cpu", "internal/kernel"}}},
	{"internal/demand", rule{ours: []string{"cpu", "market", "internal/sense"}}},
	{"internal/round", rule{ours: []string{"cpu", "market", "internal/kernel", "internal/sense", "internal/demand"}}},
	{"internal/coordinator", rule{ours: []string{"cpu", "market"}}},
	{"api/v1alpha1/reasons", rule{}},
	{"internal/eligibility", rule{ours: []string{"api/v1alpha1/reasons"}}},
	{"api/v1alpha1", rule{ours: []string{"cpu"}, kubernetes: true}},
	{"actuator", rule{ours: []string{"cpu"}}},
	{"internal/quota", rule{ours: []string{"cpu", "market"}}},
	{"internal/signal", rule{}},
	{"actuator/podresize", rule{ours: []string{"cpu", "actuator", "api/v1alpha1"}, kubernetes: true}},
	{"internal/kube", rule{
		ours:       []string{"api/v1alpha1/reasons", "internal/eligibility", "cpu", "market", "internal/sense", "internal/demand", "internal/round", "api/v1alpha1", "actuator"},
		kubernetes: true,
	}},
	{"internal/agent", rule{
		ours:       []string{"cpu", "market", "internal/kernel", "internal/demand", "internal/round", "api/v1alpha1", "internal/kube"},
		kubernetes: true, others: []string{"github.com/prometheus", "github.com/fsnotify/fsnotify", "golang.org/x/sys"},
	}},
	{"internal/controller", rule{
		ours:       []string{"api/v1alpha1/reasons", "internal/eligibility", "cpu", "market", "api/v1alpha1", "actuator", "actuator/podresize", "internal/quota", "internal/coordinator", "internal/signal", "internal/kube"},
		kubernetes: true, others: []string{"github.com/prometheus", "github.com/go-logr/logr", "golang.org/x/time"},
	}},
	{"internal/cli", rule{
		ours:       []string{"api/v1alpha1/reasons", "internal/eligibility", "cpu", "market", "api/v1alpha1", "actuator", "actuator/podresize", "internal/kube"},
		kubernetes: true, others: []string{"github.com/spf13"},
	}},
	// The lab: it runs the code that ships, and does not ship itself.
	{"internal/lab/load", rule{}},
	{"internal/lab/sim", rule{ours: []string{"cpu", "market", "internal/lab/load"}}},
	{"internal/lab/scenario", rule{
		ours: []string{"cpu", "internal/lab/load", "internal/lab/sim"}, others: []string{"go.yaml.in/yaml"},
	}},
	{"internal/lab/mbcas", rule{ours: []string{
		"cpu", "market", "internal/kernel", "internal/demand", "internal/round", "internal/coordinator", "actuator", "internal/lab/sim",
	}}},
	{"internal/lab/baseline", rule{ours: []string{
		"cpu", "market", "internal/sense", "internal/demand", "actuator", "internal/lab/sim",
	}}},
	{"internal/lab/experiment", rule{ours: []string{
		"cpu", "market", "internal/demand", "internal/round", "internal/coordinator", "actuator", "internal/lab/load", "internal/lab/sim",
		"internal/lab/scenario", "internal/lab/mbcas", "internal/lab/baseline",
	}}},
	{"internal/lab/report", rule{ours: []string{"internal/lab/sim", "internal/lab/experiment"}, others: []string{"gonum.org/v1/plot"}}},
	{"internal/lab/kernelrun", rule{ours: []string{"cpu", "internal/lab/load", "internal/lab/sim"}, others: []string{"golang.org/x/sys"}}},
	{"internal/lab/cli", rule{
		ours: []string{
			"cpu", "market", "internal/coordinator", "internal/lab/sim", "internal/lab/scenario", "internal/lab/mbcas",
			"internal/lab/baseline", "internal/lab/experiment", "internal/lab/report", "internal/lab/kernelrun",
		},
		others: []string{"github.com/spf13"},
	}},
}

// Packages outside the flow: programs wire what they like, and what serves tests is
// imported by tests only.
var (
	programs  = []string{"cmd/", "tools/", "test/"}
	testsOnly = []string{"internal/testing/cgroups", "internal/testing/apiserver"}
	modules   = []string{"test/cluster"} // modules of their own
)

var kubernetes = []string{"k8s.io/", "sigs.k8s.io/"}

// TestImports holds the tree to its flow: every import between our packages is named above.
func TestImports(t *testing.T) {
	for pkg, files := range sources(t) {
		if slices.Contains(testsOnly, pkg) || under(pkg, programs) || pkg == "." {
			continue
		}
		r, ok := ruleOf(pkg)
		if !ok {
			t.Errorf("%s: no rule for this package; name it in arch_test.go at its place in the flow", pkg)
			continue
		}
		for _, file := range files {
			for _, path := range imports(t, file) {
				if !allowed(r, path) {
					t.Errorf("%s imports %s, which arch_test.go does not allow for %s", file, path, pkg)
				}
			}
		}
	}
}

// TestImportsOfTests keeps what serves tests, and the programs, out of the product.
func TestImportsOfTests(t *testing.T) {
	for pkg, files := range sources(t) {
		for _, file := range files {
			for _, path := range imports(t, file) {
				ours, ok := strings.CutPrefix(path, module+"/")
				if !ok || under(pkg, []string{"test/", "tools/"}) {
					continue
				}
				if slices.Contains(testsOnly, ours) && !slices.Contains(testsOnly, pkg) {
					t.Errorf("%s imports %s, which is for tests", file, path)
				}
				if under(ours, programs) {
					t.Errorf("%s imports the program %s", file, path)
				}
			}
		}
	}
}

// TestRulesPointUp: a package may only import what stands above it.
func TestRulesPointUp(t *testing.T) {
	above := map[string]bool{}
	for _, r := range rules {
		for _, ours := range r.ours {
			if !above[ours] {
				t.Errorf("the rule of %s allows %s, which does not stand above it", r.pkg, ours)
			}
		}
		above[r.pkg] = true
	}
}

func ruleOf(pkg string) (rule, bool) {
	for _, r := range rules {
		if r.pkg == pkg {
			return r.rule, true
		}
	}
	return rule{}, false
}

func allowed(r rule, path string) bool {
	ours, ok := strings.CutPrefix(path, module+"/")
	switch {
	case ok:
		return slices.Contains(r.ours, ours)
	case under(path, kubernetes):
		return r.kubernetes
	case !strings.Contains(strings.SplitN(path, "/", 2)[0], "."):
		return true // the standard library
	default:
		return under(path, r.others)
	}
}

func under(path string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(path, p) })
}

// sources are the files of each package of the module, without tests.
func sources(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if slices.Contains(modules, path) || d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && path != "." {
				return fs.SkipDir
			}
			return nil
		}
		if strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
			pkg := filepath.ToSlash(filepath.Dir(path))
			found[pkg] = append(found[pkg], path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func imports(t *testing.T, file string) []string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, spec := range f.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	return paths
}
