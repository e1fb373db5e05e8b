package mbcas_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

const module = "github.com/mbcas/mbcas"

// rules are what each package may import beside the standard library: packages of this module,
// the modules of Kubernetes, and modules of others by their prefix. They are in the order of the
// flow. Imports point up this list, never down.
var rules = []struct{ pkg, imports string }{
	{"internal/program", ""},
	{"cpu", ""},
	{"market", "cpu"},
	{"internal/kernel/cgroupname", ""},
	{"internal/kernel", "cpu internal/kernel/cgroupname golang.org/x/sys github.com/fsnotify/fsnotify"},
	{"internal/sense", "cpu internal/kernel"},
	{"internal/demand", "cpu market internal/sense"},
	{"internal/split", "cpu market"},
	{"internal/disagreement", "cpu market"},
	{"internal/round", `
		cpu market internal/kernel internal/sense internal/demand internal/disagreement internal/split`},
	{"internal/nodestate", "market"},
	{"internal/delta", ""},
	{"internal/record", "internal/delta internal/kernel internal/round"},
	{"internal/replay", "internal/kernel internal/record internal/round"},
	{"internal/benefit", "cpu market internal/kernel internal/sense internal/record internal/replay internal/round"},
	{"internal/story", "cpu market internal/benefit internal/record internal/replay internal/round"},
	{"internal/whatif", "cpu internal/demand internal/record internal/replay internal/round"},
	{"internal/advise", "cpu internal/demand internal/kernel internal/record internal/replay internal/sense"},
	{"internal/page/figures", `
		cpu market internal/nodestate internal/record internal/replay internal/round internal/story internal/whatif`},
	{"internal/page", "internal/record internal/story internal/page/figures"},
	{"internal/page/wasm", "internal/record internal/page/figures"},
	{"internal/coordinator", "cpu market"},
	{"api/v1alpha1/reasons", ""},
	{"api/v1alpha1", "cpu market kubernetes"},
	{"actuator", "cpu api/v1alpha1/reasons"},
	{"internal/lifecycle", "cpu market api/v1alpha1/reasons actuator"},
	{"internal/quota", "cpu market actuator internal/lifecycle"},
	{"internal/demandsignal/control", ""},
	{"internal/kube", "cpu api/v1alpha1 kubernetes"},
	{"actuator/podresize", "cpu actuator api/v1alpha1 internal/kube kubernetes"},
	{"internal/liveness", "api/v1alpha1/reasons internal/lifecycle internal/kube kubernetes"},
	{"internal/objectcache", "api/v1alpha1 internal/kube kubernetes"},
	{"internal/eligibility", "api/v1alpha1/reasons internal/kube kubernetes"},
	{"internal/constraints", "cpu internal/demand api/v1alpha1 api/v1alpha1/reasons internal/kube kubernetes"},
	{"internal/allocation", `
		cpu market internal/sense internal/demand internal/round api/v1alpha1 api/v1alpha1/reasons actuator
		internal/lifecycle internal/quota internal/kube internal/constraints kubernetes`},
	{"internal/markets", "market api/v1alpha1 internal/kube internal/allocation kubernetes"},
	{"internal/nodeallocation", "cpu internal/demand api/v1alpha1 internal/lifecycle internal/kube internal/allocation kubernetes"},
	{"internal/quota/shares", `
		cpu api/v1alpha1 internal/lifecycle internal/quota internal/kube internal/constraints internal/allocation
		internal/nodeallocation kubernetes`},
	{"internal/autoscalers", "actuator/podresize internal/kube internal/constraints kubernetes"},
	{"internal/demandsignal", `
		api/v1alpha1 api/v1alpha1/reasons internal/demandsignal/control internal/kube internal/constraints
		internal/autoscalers kubernetes`},
	{"internal/audit", "cpu actuator actuator/podresize internal/kube kubernetes"},
	{"internal/restore", `
		cpu api/v1alpha1 api/v1alpha1/reasons actuator actuator/podresize internal/quota internal/kube
		internal/constraints internal/audit kubernetes`},
	{"internal/agent/health", ""},
	{"internal/agent/recording", "internal/record internal/round"},
	{"internal/buildinfo", "github.com/prometheus"},
	{"internal/agent/nodemetrics", "cpu market internal/kernel internal/round github.com/prometheus"},
	{"internal/agent/objects", "api/v1alpha1 internal/kube kubernetes"},
	{"internal/agent", `
		cpu market internal/kernel internal/demand internal/round internal/record api/v1alpha1 api/v1alpha1/reasons
		internal/kube internal/allocation internal/buildinfo internal/agent/nodemetrics internal/agent/objects internal/agent/health internal/agent/recording
		kubernetes github.com/prometheus github.com/fsnotify/fsnotify golang.org/x/sys`},
	{"internal/sharding", "actuator actuator/podresize internal/kube kubernetes"},
	{"internal/flowcontrol", `
		api/v1alpha1 api/v1alpha1/reasons actuator/podresize internal/lifecycle kubernetes golang.org/x/time`},
	{"internal/coordinator/runner", "market api/v1alpha1 internal/coordinator internal/kube kubernetes"},
	{"internal/fleet", "internal/nodestate internal/kube internal/allocation kubernetes github.com/prometheus"},
	{"internal/controller/metrics", "actuator api/v1alpha1/reasons internal/lifecycle internal/liveness github.com/prometheus"},
	{"internal/controller/order", "kubernetes"},
	{"internal/controller/requeue", "kubernetes"},
	{"internal/events", "kubernetes golang.org/x/time"},
	{"internal/dispatch", `
		api/v1alpha1/reasons cpu actuator actuator/podresize internal/lifecycle internal/quota internal/quota/shares
		internal/flowcontrol internal/controller/metrics internal/kube internal/constraints internal/audit kubernetes`},
	{"internal/controller", `
		api/v1alpha1/reasons internal/eligibility cpu market api/v1alpha1 actuator actuator/podresize
		internal/lifecycle internal/liveness internal/quota internal/quota/shares internal/coordinator
		internal/coordinator/runner internal/flowcontrol internal/controller/metrics internal/controller/order
		internal/controller/requeue internal/events internal/dispatch internal/demandsignal
		internal/demand internal/kube internal/objectcache internal/constraints internal/allocation internal/markets internal/nodeallocation
		internal/autoscalers internal/audit internal/restore internal/sharding kubernetes github.com/go-logr/logr`},
	{"internal/cli/format", "cpu internal/kube kubernetes"},
	{"internal/cli/output", "internal/cli/format kubernetes github.com/spf13 golang.org/x/term"},
	{"internal/cli/snapshot", `
		api/v1alpha1/reasons internal/eligibility cpu market api/v1alpha1 internal/kube internal/constraints
		internal/allocation kubernetes`},
	{"internal/cli/explain", `
		api/v1alpha1/reasons cpu internal/demand api/v1alpha1 internal/kube internal/constraints internal/cli/format
		internal/cli/snapshot kubernetes`},
	{"internal/cli/forward", "kubernetes"},
	{"internal/cli/cluster", `
		api/v1alpha1 actuator/podresize internal/kube internal/constraints internal/autoscalers
		internal/cli/format internal/cli/snapshot internal/restore kubernetes`},
	{"internal/cli/doctor", `
		api/v1alpha1/reasons internal/eligibility cpu api/v1alpha1 actuator/podresize internal/kube
		internal/constraints internal/allocation internal/cli/format internal/cli/snapshot internal/cli/cluster internal/restore
		kubernetes`},
	{"internal/cli/resize", `
		api/v1alpha1/reasons internal/eligibility cpu actuator actuator/podresize internal/kube internal/cli/format
		internal/cli/snapshot internal/cli/cluster kubernetes`},
	{"internal/cli/past", `
		cpu internal/kube internal/benefit internal/record internal/replay internal/story internal/whatif internal/cli/format
		internal/cli/cluster
		kubernetes`},
	{"internal/cli/history", "internal/story internal/cli/format internal/cli/cluster internal/cli/past kubernetes"},
	{"internal/cli/advice", `
		internal/advise internal/kube internal/record internal/cli/format internal/cli/cluster internal/cli/past
		kubernetes`},
	{"internal/cli/bundle", `
		market api/v1alpha1 internal/kube internal/allocation internal/record internal/replay internal/cli/format
		internal/cli/cluster internal/cli/doctor internal/cli/past kubernetes`},
	{"internal/cli", `
		api/v1alpha1/reasons cpu market api/v1alpha1 actuator actuator/podresize internal/nodestate internal/kube internal/allocation internal/record
		internal/story internal/whatif internal/page internal/page/figures internal/advise internal/cli/advice internal/cli/bundle internal/cli/history internal/cli/past internal/cli/format internal/cli/output internal/cli/snapshot internal/cli/explain internal/cli/forward internal/cli/cluster internal/cli/doctor internal/cli/resize
		internal/program internal/restore kubernetes github.com/spf13`},
	// The lab: it runs the code that ships, and does not ship itself.
	{"internal/lab/load", ""},
	{"internal/lab/sim", "cpu market internal/lab/load"},
	{"internal/lab/scenario", "cpu internal/lab/load internal/lab/sim go.yaml.in/yaml"},
	{"internal/lab/mbcas", `
		cpu market internal/kernel internal/demand internal/round internal/record internal/coordinator actuator
		api/v1alpha1/reasons internal/lifecycle internal/quota internal/lab/sim`},
	{"internal/lab/baseline/division", `
		cpu market internal/sense internal/demand internal/round actuator internal/lab/sim`},
	{"internal/lab/baseline/feedback", "cpu internal/lab/sim"},
	{"internal/lab/baseline/autoscaler", "cpu internal/lab/sim"},
	{"internal/lab/baseline", `
		internal/lab/sim internal/lab/baseline/division internal/lab/baseline/feedback
		internal/lab/baseline/autoscaler`},
	{"internal/lab/experiment", `
		cpu market internal/demand internal/disagreement internal/round internal/coordinator actuator internal/lab/load internal/lab/sim
		internal/lab/scenario internal/lab/mbcas internal/lab/baseline`},
	{"internal/lab/report", "internal/lab/sim internal/lab/experiment gonum.org/v1/plot"},
	{"internal/lab/kernelrun", "cpu internal/lab/load internal/lab/sim golang.org/x/sys"},
	{"internal/lab/fidelity", `
		cpu internal/lab/load internal/lab/sim internal/lab/mbcas internal/lab/baseline internal/lab/kernelrun`},
	{"internal/lab/cli", `
		cpu market internal/coordinator internal/lab/sim internal/lab/scenario internal/lab/mbcas
		internal/lab/baseline internal/lab/experiment internal/lab/report internal/lab/kernelrun
		internal/lab/fidelity internal/program github.com/spf13`},
}

// Packages outside the flow: programs wire what they like, and what serves tests is
// imported by tests only.
var (
	programs  = []string{"cmd/", "tools/", "test/"}
	testsOnly = []string{
		"internal/testing/apiserver", "internal/testing/cgroups", "internal/testing/fakekubelet",
		"internal/testing/must", "internal/testing/atlength", "internal/testing/podtest", "internal/testing/faults",
		"internal/testing/memapi", "internal/testing/history", "internal/testing/schedule", "internal/testing/loads",
		"internal/testing/metricset", "internal/testing/recordings",
		"internal/lab/simtest",
	}
	modules = []string{"test/cluster", "test/chart", "test/page"} // modules of their own
)

var kubernetes = []string{"k8s.io/", "sigs.k8s.io/"}

// pure are the packages that decide. Each takes values and returns values: see impurities.
var pure = []string{
	"cpu", "market", "internal/sense", "internal/demand", "internal/disagreement", "internal/split",
	"internal/round", "internal/coordinator", "actuator", "internal/quota", "api/v1alpha1/reasons",
	"internal/lifecycle",
}

// translators have Kubernetes' types as input or output, and are pure otherwise.
var translators = []string{
	"api/v1alpha1", "internal/eligibility", "internal/kube", "internal/constraints", "internal/allocation",
}

// types are what they may import of Kubernetes: types, pointers to values, and sums over containers.
var types = []string{"k8s.io/api/", "k8s.io/apimachinery/", "k8s.io/utils/ptr", "k8s.io/component-helpers/resource"}

// Limits of the packages that ship, in lines and files without tests, and of the type that wires the controller.
const (
	maxLines, maxFiles  = 2300, 15
	maxReconcilerFields = 12
)

// Packages that ship are below these folders, but for what experiments and tests use.
var (
	ships   = []string{"cmd/", "cpu", "market", "actuator", "api/", "internal/"}
	unships = []string{"internal/lab", "internal/testing"}
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
		if !under(pkg, ships) || under(pkg, unships) {
			continue
		}
		lines := 0
		for _, s := range files {
			lines += s.lines
		}
		if lines > maxLines || len(files) > maxFiles {
			t.Errorf("%s has %d lines in %d files, want at most %d in %d: it has more than one subject",
				pkg, lines, len(files), maxLines, maxFiles)
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
		for _, name := range strings.Fields(r.imports) {
			if ours := name != "kubernetes" && !strings.Contains(name, "."); ours && !above[name] {
				t.Errorf("the rule of %s allows %s, which does not stand above it", r.pkg, name)
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
		"pure": {"cpu/a.go", `import "time"; var d time.Duration`, ""},
		"pure with Kubernetes": {
			"cpu/a.go", `import _ "k8s.io/api/core/v1"`,
			"cpu/a.go imports Kubernetes: k8s.io/api/core/v1",
		},
		"pure with Kubernetes' library": {"cpu/a.go", `import _ "sigs.k8s.io/yaml"`, "imports Kubernetes"},
		"pure with files":               {"market/a.go", `import _ "os"`, "market/a.go imports os"},
		"pure with a network":           {"market/a.go", `import _ "net/http"`, "market/a.go imports net/http"},
		"pure with a clock": {
			"cpu/a.go", `import "time"; var start = time.Now()`,
			"cpu/a.go reads the clock: time.Now",
		},
		"pure with a renamed clock": {"cpu/a.go", `import clock "time"; var start = clock.Now`, "reads the clock"},
		"pure with a goroutine":     {"cpu/a.go", `func f() { go f() }`, "cpu/a.go starts a goroutine"},
		"a type of an impure package": {
			"internal/sense/a.go", `import "` + ours + `internal/kernel"; var s kernel.Sample`,
			"",
		},
		"a call of an impure package": {
			"internal/sense/a.go", `import "` + ours + `internal/kernel"; var s = kernel.Read()`,
			"calls kernel.Read, and internal/kernel is not pure",
		},
		"a translator with types": {"internal/kube/a.go", `import _ "k8s.io/api/core/v1"`, ""},
		"a translator with a client": {
			"internal/kube/a.go", `import _ "k8s.io/client-go/rest"`,
			"internal/kube/a.go imports Kubernetes: k8s.io/client-go/rest",
		},
		"a translator with a clock": {
			"internal/kube/a.go", `import "time"; var start = time.Now()`,
			"internal/kube/a.go reads the clock: time.Now",
		},
		"against the flow": {
			"cpu/a.go", `import _ "` + ours + `market"`,
			"cpu/a.go imports github.com/mbcas/mbcas/market, which arch_test.go does not allow",
		},
		"a module of others": {"cpu/a.go", `import _ "github.com/spf13/cobra"`, "which arch_test.go does not allow"},
		"no rule":            {"internal/new/a.go", ``, "internal/new: no rule for this package"},
		"a program": {
			"cmd/a/a.go", `import _ "` + ours + `tools/testall"`,
			"cmd/a/a.go imports the program tools/testall",
		},
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
					faults = append(faults,
						fmt.Sprintf("%s imports %s, which arch_test.go does not allow for %s", file, imported, pkg))
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

// ruleOf are the names in the rule of a package.
func ruleOf(pkg string) (names []string, ruled bool) {
	for _, r := range rules {
		if r.pkg == pkg {
			return strings.Fields(r.imports), true
		}
	}
	return nil, false
}

func allowed(names []string, path string) bool {
	ours, ok := strings.CutPrefix(path, module+"/")
	switch {
	case ok:
		return slices.Contains(names, ours)
	case under(path, kubernetes):
		return slices.Contains(names, "kubernetes")
	case !strings.Contains(strings.SplitN(path, "/", 2)[0], "."):
		return true // the standard library
	}
	return slices.ContainsFunc(names, func(n string) bool {
		return strings.Contains(n, ".") && strings.HasPrefix(path, n)
	})
}

func under(path string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(path, p) })
}
