package mbcas_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
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
	{"api/v1alpha1", rule{ours: []string{"cpu", "market"}, kubernetes: true}},
	{"actuator", rule{ours: []string{"cpu", "api/v1alpha1/reasons"}}},
	{"internal/lifecycle", rule{ours: []string{"cpu", "market", "api/v1alpha1/reasons", "actuator"}}},
	{"internal/quota", rule{ours: []string{"cpu", "market", "actuator", "internal/lifecycle"}}},
	{"internal/demandsignal/control", rule{}},
	{"actuator/podresize", rule{ours: []string{"cpu", "actuator", "api/v1alpha1"}, kubernetes: true}},
	{"internal/kube", rule{ours: []string{"cpu", "api/v1alpha1"}, kubernetes: true}},
	{"internal/eligibility", rule{ours: []string{"api/v1alpha1/reasons", "internal/kube"}, kubernetes: true}},
	{"internal/constraints", rule{ours: []string{"cpu", "internal/demand", "api/v1alpha1", "api/v1alpha1/reasons", "internal/kube"}, kubernetes: true}},
	{"internal/allocation", rule{
		ours: []string{
			"cpu", "market", "internal/sense", "internal/demand", "internal/round", "api/v1alpha1", "api/v1alpha1/reasons",
			"actuator", "internal/lifecycle", "internal/kube", "internal/constraints",
		},
		kubernetes: true,
	}},
	{"internal/autoscalers", rule{ours: []string{"actuator/podresize", "internal/kube", "internal/constraints"}, kubernetes: true}},
	{"internal/demandsignal", rule{
		ours: []string{
			"api/v1alpha1", "api/v1alpha1/reasons", "internal/demandsignal/control", "internal/kube", "internal/constraints",
			"internal/autoscalers",
		},
		kubernetes: true,
	}},
	{"internal/restore", rule{
		ours: []string{
			"cpu", "api/v1alpha1", "api/v1alpha1/reasons", "actuator", "actuator/podresize", "internal/quota", "internal/kube", "internal/constraints",
		},
		kubernetes: true,
	}},
	{"internal/agent", rule{
		ours:       []string{"cpu", "market", "internal/kernel", "internal/demand", "internal/round", "api/v1alpha1", "internal/kube", "internal/allocation"},
		kubernetes: true, others: []string{"github.com/prometheus", "github.com/fsnotify/fsnotify", "golang.org/x/sys"},
	}},
	{"internal/controller", rule{
		ours:       []string{"api/v1alpha1/reasons", "internal/eligibility", "cpu", "market", "api/v1alpha1", "actuator", "actuator/podresize", "internal/lifecycle", "internal/quota", "internal/coordinator", "internal/demandsignal", "internal/kube", "internal/constraints", "internal/allocation", "internal/autoscalers", "internal/restore"},
		kubernetes: true, others: []string{"github.com/prometheus", "github.com/go-logr/logr"},
	}},
	{"internal/cli/format", rule{ours: []string{"cpu", "internal/kube"}, kubernetes: true}},
	{"internal/cli/snapshot", rule{
		ours:       []string{"api/v1alpha1/reasons", "internal/eligibility", "cpu", "market", "api/v1alpha1", "internal/kube", "internal/constraints", "internal/allocation"},
		kubernetes: true,
	}},
	{"internal/cli/explain", rule{
		ours:       []string{"api/v1alpha1/reasons", "cpu", "api/v1alpha1", "internal/kube", "internal/constraints", "internal/cli/format", "internal/cli/snapshot"},
		kubernetes: true,
	}},
	{"internal/cli/cluster", rule{
		ours: []string{
			"api/v1alpha1", "actuator/podresize", "internal/kube", "internal/constraints", "internal/cli/format",
			"internal/cli/snapshot", "internal/restore",
		},
		kubernetes: true,
	}},
	{"internal/cli/doctor", rule{
		ours: []string{
			"api/v1alpha1/reasons", "internal/eligibility", "cpu", "api/v1alpha1", "actuator/podresize", "internal/kube", "internal/constraints",
			"internal/cli/format", "internal/cli/snapshot", "internal/cli/cluster", "internal/restore",
		},
		kubernetes: true,
	}},
	{"internal/cli/resize", rule{
		ours: []string{
			"api/v1alpha1/reasons", "internal/eligibility", "cpu", "actuator", "actuator/podresize", "internal/kube",
			"internal/cli/format", "internal/cli/snapshot", "internal/cli/cluster",
		},
		kubernetes: true,
	}},
	{"internal/cli", rule{
		ours: []string{
			"api/v1alpha1/reasons", "cpu", "api/v1alpha1", "actuator", "actuator/podresize", "internal/kube",
			"internal/cli/format", "internal/cli/snapshot", "internal/cli/explain", "internal/cli/cluster", "internal/cli/doctor",
			"internal/cli/resize", "internal/restore",
		},
		kubernetes: true, others: []string{"github.com/spf13"},
	}},
	// The lab: it runs the code that ships, and does not ship itself.
	{"internal/lab/load", rule{}},
	{"internal/lab/sim", rule{ours: []string{"cpu", "market", "internal/lab/load"}}},
	{"internal/lab/live", rule{ours: []string{"cpu", "market", "internal/lab/sim"}}},
	{"internal/lab/scenario", rule{
		ours: []string{"cpu", "internal/lab/load", "internal/lab/sim"}, others: []string{"go.yaml.in/yaml"},
	}},
	{"internal/lab/mbcas", rule{ours: []string{
		"cpu", "market", "internal/kernel", "internal/demand", "internal/round", "internal/coordinator", "actuator",
		"api/v1alpha1/reasons", "internal/lifecycle", "internal/quota", "internal/lab/sim",
	}}},
	{"internal/lab/baseline/division", rule{ours: []string{
		"cpu", "market", "internal/sense", "internal/demand", "internal/round", "actuator", "internal/lab/sim",
	}}},
	{"internal/lab/baseline/feedback", rule{ours: []string{"cpu", "internal/lab/sim"}}},
	{"internal/lab/baseline/autoscaler", rule{ours: []string{"cpu", "internal/lab/sim"}}},
	{"internal/lab/baseline", rule{ours: []string{
		"internal/lab/sim", "internal/lab/baseline/division", "internal/lab/baseline/feedback", "internal/lab/baseline/autoscaler",
	}}},
	{"internal/lab/experiment", rule{ours: []string{
		"cpu", "market", "internal/demand", "internal/round", "internal/coordinator", "actuator", "internal/lab/load", "internal/lab/sim",
		"internal/lab/scenario", "internal/lab/mbcas", "internal/lab/baseline",
	}}},
	{"internal/lab/report", rule{ours: []string{"internal/lab/sim", "internal/lab/experiment"}, others: []string{"gonum.org/v1/plot"}}},
	{"internal/lab/kernelrun", rule{ours: []string{"cpu", "internal/lab/load", "internal/lab/sim"}, others: []string{"golang.org/x/sys"}}},
	{"internal/lab/fidelity", rule{ours: []string{
		"cpu", "internal/lab/load", "internal/lab/sim", "internal/lab/mbcas", "internal/lab/baseline", "internal/lab/kernelrun",
	}}},
	{"internal/lab/cli", rule{
		ours: []string{
			"cpu", "market", "internal/coordinator", "internal/lab/sim", "internal/lab/scenario", "internal/lab/mbcas",
			"internal/lab/baseline", "internal/lab/experiment", "internal/lab/report", "internal/lab/kernelrun", "internal/lab/fidelity",
		},
		others: []string{"github.com/spf13"},
	}},
}

// Packages outside the flow: programs wire what they like, and what serves tests is
// imported by tests only.
var (
	programs  = []string{"cmd/", "tools/", "test/"}
	testsOnly = []string{"internal/testing/apiserver", "internal/testing/cgroups", "internal/testing/podtest", "internal/lab/simtest"}
	modules   = []string{"test/cluster"} // modules of their own
)

var kubernetes = []string{"k8s.io/", "sigs.k8s.io/"}

// pure are the packages that decide. Each takes values and returns values: see impurities.
var pure = []string{
	"cpu", "market", "internal/sense", "internal/demand", "internal/round", "internal/coordinator", "actuator", "internal/quota",
	"api/v1alpha1/reasons", "internal/lifecycle",
}

// translators have Kubernetes' types as input or output, and are pure otherwise.
var translators = []string{"api/v1alpha1", "internal/eligibility", "internal/kube", "internal/constraints", "internal/allocation"}

// types are what they may import of Kubernetes: types, pointers to values, and sums over containers.
var types = []string{"k8s.io/api/", "k8s.io/apimachinery/", "k8s.io/utils/ptr", "k8s.io/component-helpers/resource"}

// Limits of the packages that ship, in lines and files without tests, and of the type that wires the controller.
const (
	maxLines, maxFiles  = 2300, 15
	maxReconcilerFields = 12
)

// Packages that ship are below these folders, but for what experiments and tests use.
var (
	ships    = []string{"cmd/", "cpu", "market", "actuator", "api/", "internal/"}
	unships  = []string{"internal/lab", "internal/testing"}
	tooLarge = []string{"internal/controller"} // being split; to be empty
)

// TestImports holds the tree to its flow: every import between our packages is named above.
func TestImports(t *testing.T) {
	for _, fault := range importFaults(wholeModule(t)) {
		t.Error(fault)
	}
}

// TestPurity: the packages that decide know no Kubernetes, no clock and no I/O.
func TestPurity(t *testing.T) {
	packages := wholeModule(t)
	for _, pkg := range slices.Concat(pure, translators) {
		if packages[pkg] == nil {
			t.Errorf("%s: there is no such package; name where it went in arch_test.go", pkg)
		}
	}
	for _, fault := range purityFaults(packages) {
		t.Error(fault)
	}
}

// purityFaults are what the packages that decide, and the translators, do and may not do.
func purityFaults(packages tree) (faults []string) {
	for _, pkg := range pure {
		faults = append(faults, impurities(packages[pkg], pure)...)
	}
	for _, pkg := range translators {
		faults = append(faults, impurities(packages[pkg], slices.Concat(pure, translators), types...)...)
	}
	return faults
}

// TestSizes: a package that ships has one subject, and so a limited size.
func TestSizes(t *testing.T) {
	packages := wholeModule(t)
	for pkg, files := range packages {
		if !under(pkg, ships) || under(pkg, unships) || slices.Contains(tooLarge, pkg) {
			continue
		}
		lines := 0
		for _, s := range files {
			lines += s.lines
		}
		if lines > maxLines || len(files) > maxFiles {
			t.Errorf("%s has %d lines in %d files, want at most %d in %d: it has more than one subject", pkg, lines, len(files), maxLines, maxFiles)
		}
	}
	n := fields(packages["internal/controller"], "Reconciler")
	if n == 0 || n > maxReconcilerFields {
		t.Errorf("internal/controller.Reconciler has %d fields, want 1 to %d", n, maxReconcilerFields)
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

// TestFaultsAreFound: the assertions above fail on a tree that breaks them, and pass on one that does not.
func TestFaultsAreFound(t *testing.T) {
	const ours = module + "/"
	tests := map[string]struct {
		file, text string
		want       string // "": no fault
	}{
		"pure":                          {"cpu/a.go", `import "time"; var d time.Duration`, ""},
		"pure with Kubernetes":          {"cpu/a.go", `import _ "k8s.io/api/core/v1"`, "cpu/a.go imports Kubernetes: k8s.io/api/core/v1"},
		"pure with Kubernetes' library": {"cpu/a.go", `import _ "sigs.k8s.io/yaml"`, "imports Kubernetes"},
		"pure with files":               {"market/a.go", `import _ "os"`, "market/a.go imports os"},
		"pure with a network":           {"market/a.go", `import _ "net/http"`, "market/a.go imports net/http"},
		"pure with a clock":             {"cpu/a.go", `import "time"; var start = time.Now()`, "cpu/a.go reads the clock: time.Now"},
		"pure with a renamed clock":     {"cpu/a.go", `import clock "time"; var start = clock.Now`, "reads the clock"},
		"pure with a goroutine":         {"cpu/a.go", `func f() { go f() }`, "cpu/a.go starts a goroutine"},
		"a type of an impure package":   {"internal/sense/a.go", `import "` + ours + `internal/kernel"; var s kernel.Sample`, ""},
		"a call of an impure package":   {"internal/sense/a.go", `import "` + ours + `internal/kernel"; var s = kernel.Read()`, "calls kernel.Read, and internal/kernel is not pure"},
		"a translator with types":       {"internal/kube/a.go", `import _ "k8s.io/api/core/v1"`, ""},
		"a translator with a client":    {"internal/kube/a.go", `import _ "k8s.io/client-go/rest"`, "internal/kube/a.go imports Kubernetes: k8s.io/client-go/rest"},
		"a translator with a clock":     {"internal/kube/a.go", `import "time"; var start = time.Now()`, "internal/kube/a.go reads the clock: time.Now"},
		"against the flow":              {"cpu/a.go", `import _ "` + ours + `market"`, "cpu/a.go imports github.com/mbcas/mbcas/market, which arch_test.go does not allow"},
		"a module of others":            {"cpu/a.go", `import _ "github.com/spf13/cobra"`, "which arch_test.go does not allow"},
		"no rule":                       {"internal/new/a.go", ``, "internal/new: no rule for this package"},
		"a program":                     {"cmd/a/a.go", `import _ "` + ours + `tools/testall"`, "cmd/a/a.go imports the program tools/testall"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			packages := parse(t, fstest.MapFS{tc.file: {Data: []byte("package a; " + tc.text)}})
			faults := slices.Concat(importFaults(packages), purityFaults(packages))
			got := strings.Join(faults, "\n")
			if tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
				t.Errorf("found %q, want %q", got, tc.want)
			}
		})
	}
}

// importFaults are the imports that no rule allows, and the packages without a rule.
func importFaults(packages tree) (faults []string) {
	for pkg, files := range packages {
		r, ruled := ruleOf(pkg)
		outside := slices.Contains(testsOnly, pkg) || under(pkg, programs) || pkg == "."
		if !ruled && !outside {
			faults = append(faults, pkg+": no rule for this package; name it in arch_test.go at its place in the flow")
		}
		for file, s := range files {
			for _, imported := range s.imports {
				ours, _ := strings.CutPrefix(imported, module+"/")
				switch {
				case ruled && !allowed(r, imported):
					faults = append(faults, fmt.Sprintf("%s imports %s, which arch_test.go does not allow for %s", file, imported, pkg))
				case ours == imported || under(pkg, []string{"test/", "tools/"}):
				case slices.Contains(testsOnly, ours) && !slices.Contains(testsOnly, pkg):
					faults = append(faults, fmt.Sprintf("%s imports %s, which is for tests", file, ours))
				case under(ours, programs):
					faults = append(faults, fmt.Sprintf("%s imports the program %s", file, ours))
				}
			}
		}
	}
	slices.Sort(faults)
	return faults
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
