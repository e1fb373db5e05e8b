// Package docs_test holds the documentation to what the code does.
package docs_test

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/eligibility"
	"github.com/mbcas/mbcas/internal/testing/must"
	"github.com/mbcas/mbcas/market"
)

const root = ".."

var update = flag.Bool("update", false, "rewrite the figures in concepts.md")

// TestReasons: reasons.md explains every reason, in the words that users see.
func TestReasons(t *testing.T) {
	page := read(t, "reasons.md")
	for _, r := range reasons.All() {
		if row := fmt.Sprintf("| `%s` | %s |", r, r.Sentence()); strings.Count(page, row) != 1 {
			t.Errorf("reasons.md: want one row that begins with\n%s", row)
		}
	}
	if rows := strings.Count(page, "\n| `"); rows != len(reasons.All()) {
		t.Errorf("reasons.md has %d rows, the code %d reasons", rows, len(reasons.All()))
	}
}

// bidder is a pod of the example in concepts.md.
type bidder struct {
	name              string
	request, declared cpu.Milli
	priority          int32
	demand            cpu.Milli
}

// TestExample: the figures in concepts.md are what the market says.
func TestExample(t *testing.T) {
	quiet := []bidder{
		{"shop", 500, 1000, 10000, 1200},
		{"report", 500, 1000, 0, 500},
		{"batch", 1000, 2000, 0, 1500},
	}
	busy := slices.Clone(quiet)
	busy[2].demand = 3800 // twice the usage of 1900m
	crowded := slices.Clone(busy)
	crowded[0].demand, crowded[2].demand = 3500, 2600 // about twice the usage

	for name, pods := range map[string][]bidder{"quiet": quiet, "busy": busy, "crowded": crowded} {
		hold(t, "concepts.md", "example "+name, example(t, pods))
	}
}

// hold compares the part of a page between two marks with what it should be, or writes that with -update.
func hold(t *testing.T, page, mark, want string) {
	t.Helper()
	begin, end := "<!-- "+mark+" -->\n", "<!-- end -->"
	before, rest, ok := strings.Cut(read(t, page), begin)
	have, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for %q", page, mark)
	}
	if *update {
		must.Succeed(t, os.WriteFile(page, []byte(before+begin+want+end+after), 0o644))
		return
	}
	if d := cmp.Diff(want, have); d != "" {
		t.Errorf("%s, %s (-code +page; go test ./docs -update writes it):\n%s", page, mark, d)
	}
}

// example plays one clearing on a node with 4 cores, of which a tenth is kept back.
func example(t *testing.T, pods []bidder) string {
	t.Helper()
	const allocatable, supply = 4000, 3600
	p := market.Problem{Supply: supply}
	for _, b := range pods {
		p.Bids = append(p.Bids, market.Bid{
			Budget: demand.Budget(b.request, b.priority), Demand: b.demand,
			Floor: demand.Entitlement(b.request, b.declared), Ceiling: allocatable,
		})
	}
	result := market.Clear(p)
	must.Succeed(t, market.Certify(p, result))
	out := fmt.Sprintf("\nPrice: **%v**\n\n| pod | request | budget | demand | limit | bound by |\n| --- | --- | --- | --- | --- | --- |\n", result.Price)
	for i, b := range pods {
		out += fmt.Sprintf("| %s | %v | %d | %v | **%v** | %v |\n", b.name, b.request, p.Bids[i].Budget, b.demand, limit(p.Bids[i], result.Price), strings.ToLower(p.Bids[i].Bound(result.Price).String()))
	}
	return out + "\n"
}

var (
	link   = regexp.MustCompile(`\]\(([^)#\s]+)?(#[^)\s]+)?\)`)
	target = regexp.MustCompile("(?m)(?:^    |`)(?:KEEP=1 |CI=true )?make (-?[a-z0-9-]+)")
	clause = regexp.MustCompile(`(?m)^([a-z0-9-]+):`)
)

// TestLinks: every link to a file of the repository leads there, and to a heading that exists.
func TestLinks(t *testing.T) {
	for _, page := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(read(t, page), -1) {
			path, anchor := m[1], strings.TrimPrefix(m[2], "#")
			if strings.Contains(path, "://") || strings.HasPrefix(path, "mailto:") {
				continue
			}
			to := page
			if path != "" {
				to = filepath.Join(filepath.Dir(page), path)
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s: the link %s leads nowhere", page, m[0])
				continue
			}
			if anchor != "" && !slices.Contains(anchors(read(t, to)), anchor) {
				t.Errorf("%s: %s has no heading %q", page, to, anchor)
			}
		}
	}
}

// TestTargets: every make target that a page names exists.
func TestTargets(t *testing.T) {
	have := map[string]bool{}
	for _, m := range clause.FindAllStringSubmatch(read(t, filepath.Join(root, "Makefile")), -1) {
		have[m[1]] = true
	}
	for _, page := range pages(t) {
		for _, m := range target.FindAllStringSubmatch(read(t, page), -1) {
			if !have[m[1]] {
				t.Errorf("%s names make %s, which the Makefile does not have", page, m[1])
			}
		}
	}
}

var (
	quotedTest = regexp.MustCompile("`(Test[A-Z][A-Za-z0-9]*(?:/[A-Z][A-Za-z0-9]*)?)`")
	// testOrStep finds a test, or a step in its table.
	testOrStep   = regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9]+)\(|^\t+\{"([A-Z][A-Za-z0-9]*)", \(`)
	quotedReason = regexp.MustCompile("`([A-Z][A-Za-z]+)`")
)

// TestFeatures: the pages name tests that exist, kubernetes.md names reasons that exist, and lists all reasons why a pod
// is not managed in the order in which they count.
func TestFeatures(t *testing.T) {
	tests := map[string]bool{}
	for _, path := range files(t, root, ".go") {
		if !strings.HasSuffix(path, "_test.go") {
			continue
		}
		test := ""
		for _, m := range testOrStep.FindAllStringSubmatch(read(t, path), -1) {
			if m[1] != "" {
				test = m[1]
			}
			tests[test], tests[test+"/"+m[2]] = true, true
		}
	}
	named := 0
	for _, path := range files(t, ".", ".md") {
		for _, m := range quotedTest.FindAllStringSubmatch(read(t, path), -1) {
			if named++; !tests[m[1]] {
				t.Errorf("%s names %s, which does not exist", path, m[1])
			}
		}
	}
	if named < 80 {
		t.Errorf("the pages name %d tests", named)
	}
	page := read(t, "kubernetes.md")
	listed := read(t, "reasons.md")
	var told []reasons.Reason
	for row := range strings.Lines(page) {
		cells := strings.Split(row, "|")
		switch len(cells) {
		case 7: // a feature: the third cell has its reasons
			for _, m := range quotedReason.FindAllStringSubmatch(cells[3], -1) {
				if !strings.Contains(listed, "| `"+m[1]+"` |") {
					t.Errorf("kubernetes.md names the reason %s, which does not exist", m[1])
				}
			}
		case 4:
			if before, _, _ := strings.Cut(page, row); !strings.Contains(before, "Pods that are not managed.") {
				continue
			}
			if m := quotedReason.FindStringSubmatch(cells[2]); m != nil {
				told = append(told, reasons.Reason(m[1]))
			}
		}
	}
	if diff := cmp.Diff(eligibility.Exclusions(), told); diff != "" {
		t.Errorf("reasons to be left alone (-code +kubernetes.md):\n%s", diff)
	}
}

var metric = regexp.MustCompile(`\bmbcas_[a-z_]+\b`)

// TestMetrics: metrics.md lists the metrics that the programs serve, and no page names another one.
func TestMetrics(t *testing.T) {
	var listed []string
	for _, name := range metric.FindAllString(read(t, "metrics.md"), -1) {
		listed = append(listed, strings.TrimSuffix(name, "_bucket"))
	}
	slices.Sort(listed)
	served := publicNames(t, "metric ")
	if d := cmp.Diff(served, slices.Compact(listed)); d != "" {
		t.Errorf("metrics (-code +metrics.md):\n%s", d)
	}
	for _, page := range pages(t) {
		for _, name := range metric.FindAllString(read(t, page), -1) {
			if !slices.Contains(served, strings.TrimSuffix(name, "_bucket")) {
				t.Errorf("%s names the metric %s, which no program serves", page, name)
			}
		}
	}
}

var (
	flagRow = regexp.MustCompile("(?m)^\\| `--([a-z-]+)`")
	plugin  = regexp.MustCompile(`kubectl mbcas ([a-z]+)`)
	use     = regexp.MustCompile(`Use:\s+"([a-z]+)`)
)

// TestFlags: every flag in operations.md is one of a program.
func TestFlags(t *testing.T) {
	have := slices.Concat(publicNames(t, "flag mbcas-agent --"), publicNames(t, "flag mbcas-controller --"))
	rows := flagRow.FindAllStringSubmatch(read(t, "operations.md"), -1)
	for _, m := range rows {
		if !slices.Contains(have, m[1]) {
			t.Errorf("operations.md lists the flag --%s, which no program has", m[1])
		}
	}
	if len(rows) == 0 {
		t.Error("operations.md lists no flags")
	}
}

// publicNames are those that begin with the kind in the list that TestPublicNames holds to the code.
func publicNames(t *testing.T, kind string) (names []string) {
	t.Helper()
	for line := range strings.Lines(read(t, filepath.Join("testdata", "public-names.txt"))) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), kind); ok {
			names = append(names, name)
		}
	}
	return names
}

// TestCommands: every command of the plugin that a page names exists.
func TestCommands(t *testing.T) {
	have := map[string]bool{}
	for _, file := range files(t, filepath.Join(root, "internal", "cli"), ".go") {
		for _, m := range use.FindAllStringSubmatch(read(t, file), -1) {
			have[m[1]] = true
		}
	}
	for _, page := range pages(t) {
		for _, m := range plugin.FindAllStringSubmatch(read(t, page), -1) {
			if !have[m[1]] {
				t.Errorf("%s names kubectl mbcas %s, which the plugin does not have", page, m[1])
			}
		}
	}
}

// anchors are how GitHub names the headings of a page.
func anchors(page string) []string {
	var names []string
	for line := range strings.SplitSeq(page, "\n") {
		if !strings.HasPrefix(line, "#") {
			continue
		}
		heading := strings.ToLower(strings.TrimSpace(strings.TrimLeft(line, "#")))
		names = append(names, strings.ReplaceAll(regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(heading, ""), " ", "-"))
	}
	return names
}

// pages are all Markdown files that people read.
func pages(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(root, "*.md"))
	must.Succeed(t, err)
	return append(found, files(t, ".", ".md")...)
}

func files(t *testing.T, dir, ext string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && filepath.Ext(path) == ext {
			found = append(found, path)
		}
		return err
	})
	must.Succeed(t, err)
	return found
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	must.Succeed(t, err)
	return string(text)
}

// limit is the round's rule at rest: a pod that the price does not bind is at its ceiling.
func limit(b market.Bid, p market.Price) cpu.Milli {
	if b.Bound(p) == market.ByNothing {
		return b.Ceiling
	}
	return b.Limit(p).RoundDown(cpu.Quantum)
}
