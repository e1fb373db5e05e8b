package incident

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mbcas/mbcas/internal/lab/mbcas"
	"github.com/mbcas/mbcas/internal/lab/scenario"
	"github.com/mbcas/mbcas/internal/testing/recordings"
	"github.com/mbcas/mbcas/internal/whatif"
)

var update = flag.Bool("update", false, "write docs/lab.md")

// scenarioError is how well the recording of a scenario is played.
type scenarioError struct {
	name string
	Error
}

// TestErrorsOfTheCatalogue makes the table of docs/lab.md that says how good a played answer is, and the sentence about
// limits below it: `MBCAS_LONG=1 go test ./internal/lab/incident -run Catalogue -update` writes the table.
func TestErrorsOfTheCatalogue(t *testing.T) {
	if os.Getenv("MBCAS_LONG") == "" {
		t.Skip("optional: MBCAS_LONG is not set")
	}
	if runtime.GOARCH != "amd64" {
		t.Skip("optional: the figures of docs/lab.md are of amd64")
	}
	page, err := os.ReadFile("../../../docs/lab.md")
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- errors of played recordings -->\n", "<!-- end -->\n"
	before, rest, ok := strings.Cut(string(page), begin)
	have, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("docs/lab.md has no %q", begin)
	}
	all := playCatalogue(t)
	want := errorTable(all)
	if *update {
		if err := os.WriteFile("../../../docs/lab.md", []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if have != want {
		t.Errorf("docs/lab.md has the table\n%s\nthe catalogue comes to\n%s", have, want)
	}
	worst, far := all[0], 0
	for _, e := range all {
		if e.Limit > worst.Limit {
			worst = e
		}
		if e.Limit > .15 {
			far++
		}
	}
	said := strings.Join(strings.Fields(after), " ")
	limits := fmt.Sprintf("by up to %.1f %% (`%s`), and by more than 15 %% in %d of the %d scenarios", 100*worst.Limit, worst.name,
		far, len(all))
	if !strings.Contains(said, limits) {
		t.Errorf("docs/lab.md does not say of limits that they are off %s", limits)
	}
}

// playCatalogue plays recordings of at most four minutes of each scenario, the worst first.
func playCatalogue(t *testing.T) (all []scenarioError) {
	t.Helper()
	for _, s := range scenario.Catalogue() {
		p, err := Play(recordings.Played(t, s.Name, mbcas.DefaultConfig(), 4*time.Minute), whatif.Change{})
		if err != nil {
			t.Fatalf("%s: %v", s.Name, err)
		}
		all = append(all, scenarioError{s.Name, p.Error})
	}
	slices.SortStableFunc(all, func(a, b scenarioError) int { return cmp.Compare(b.Usage, a.Usage) })
	return all
}

// errorTable has the scenarios whose usage is off by more than 5 %, and the most of the others.
func errorTable(all []scenarioError) string {
	table := "\n| scenario | error of usage |\n| --- | --- |\n"
	for i, e := range all {
		if e.Usage <= .05 {
			return table + fmt.Sprintf("| the other %d | at most %.1f %% |\n\n", len(all)-i, 100*e.Usage)
		}
		table += fmt.Sprintf("| `%s` | %.1f %% |\n", e.name, 100*e.Usage)
	}
	return table + "\n"
}
