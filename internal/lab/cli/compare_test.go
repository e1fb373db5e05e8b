package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/mbcas/mbcas/internal/lab/scenario"
	"github.com/mbcas/mbcas/internal/testing/must"
)

// shop writes a short scenario with a liar, and one in which it tells the truth, and returns their
// files.
func shop(t *testing.T) (lie, truth string) {
	t.Helper()
	write := func(name, role, reference, spin string) string {
		text := fmt.Sprintf(`name: %s
description: a test
node: {cores: 2}
length: 12s
warmUp: 4s
%s
pods:
  - name: web
    role: service
    request: 500m
    limit: "1"
    load:
      requests: {rate: 40, serviceTime: 10ms}
  - name: honest
    role: honest
    request: 500m
    limit: "1"
    load:
      requests: {rate: 40, serviceTime: 10ms}
  - name: claimer
    role: %s
    request: 500m
    limit: "1"
    load:
      requests: {rate: 40, serviceTime: 10ms}
      %s
`, name, reference, role, spin)
		return written(t, name+".yaml", text)
	}
	return write("lie", "liar", "reference: told", "spin: 4"), write("told", "honest", "", "")
}

func compared(t *testing.T, ctx context.Context, args ...string) (dir, text string, err error) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "out")
	text, err = labIn(ctx, append([]string{"compare", "--out", dir}, args...)...)
	return dir, text, err
}

func content(t *testing.T, parts ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(parts...))
	must.Succeed(t, err)
	return string(data)
}

// TestCompare: three files, the same ones whatever runs beside what.
func TestCompare(t *testing.T) {
	lie, told := shop(t)
	args := []string{"--scenario", lie, "--scenario", told, "--policy", "mbcas", "--policy", "static", "--seeds", "2"}
	before := map[string]string{}
	for _, cpus := range []int{1, 4} {
		was := runtime.GOMAXPROCS(cpus)
		dir, text, err := compared(t, t.Context(), args...)
		runtime.GOMAXPROCS(was)
		must.Succeed(t, err)
		if !strings.Contains(text, "8/8 runs\n") || !strings.Contains(text, "8 runs of 2 scenarios under 2 policies") {
			t.Errorf("it says\n%s", text)
		}
		for _, name := range []string{"results.txt", "results.csv", "report.html"} {
			now := content(t, dir, name)
			if before[name] != "" && before[name] != now {
				t.Errorf("%s depends on the number of CPUs", name)
			}
			before[name] = now
		}
	}
	lines := strings.Split(before["results.txt"], "\n")
	var runs []string
	for _, l := range lines {
		if name, _, ok := strings.Cut(l, " 1 "); ok {
			runs = append(runs, strings.TrimPrefix(name, "BenchmarkCompare/"))
			if liar := strings.Contains(l, "liar-gain-%") && strings.Contains(l, "honest-loss-%"); liar != strings.Contains(name, "scenario=lie/") {
				t.Errorf("what a lie is worth stands in the wrong line: %s", l)
			}
		}
	}
	want := "scenario=lie/policy=static/seed=1 scenario=lie/policy=static/seed=2 scenario=lie/policy=mbcas/seed=1 scenario=lie/policy=mbcas/seed=2 "
	if got := strings.Join(runs, " "); got != want+strings.ReplaceAll(strings.TrimSuffix(want, " "), "=lie", "=told") {
		t.Errorf("lines are of %s", got)
	}
	if !strings.Contains(before["report.html"], ">told</h2>") {
		t.Error("the report does not show every scenario")
	}
}

// TestCompareRefusesNames: references run along, and two sources of one name, or a reference that
// does not exist, are refused.
func TestCompareRefusesNames(t *testing.T) {
	lie, told := shop(t)
	text := content(t, told)
	mine := filepath.Join(t.TempDir(), "mine.yaml")
	for _, c := range []struct {
		name string // of the scenario in mine
		args []string
		want string // an error, or the names of those that run
	}{
		{"duel", []string{"duel", mine}, "--scenario duel and --scenario " + mine + ` both have the name "duel": rename one`},
		{"told", []string{mine, told}, "--scenario " + mine + " and --scenario " + told + ` both have the name "told": rename one`},
		{"told", []string{mine, "duel", mine, "duel"}, "told duel"},
		{"truth", []string{"liar", mine}, "liar truth"}, // a reference from a file
		{"other", []string{"liar", "duel", "liar"}, "liar duel truth"},
		{"other", []string{lie, mine}, `scenario lie: its reference "told" is not in the catalogue; add its file with --scenario`},
	} {
		must.Succeed(t, os.WriteFile(mine, []byte(strings.Replace(text, "name: told", "name: "+c.name, 1)), 0o644))
		var names []string
		chosen, err := chooseScenarios(c.args)
		for _, s := range chosen {
			names = append(names, s.Name)
		}
		got := strings.Join(names, " ")
		if usage := (UsageError{}); errors.As(err, &usage) {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%v, mine is %s: %s, want %s", c.args, c.name, got, c.want)
		}
	}
}

// TestQuickTakesSeeds: --quick runs one seed, or as many as --seeds names.
func TestQuickTakesSeeds(t *testing.T) {
	_, told := shop(t)
	for args, want := range map[string]string{"--quick": "1 runs of ", "--quick --seeds 2": "2 runs of ", "--seeds 2 --quick": "2 runs of "} {
		_, text, err := compared(t, t.Context(), append(strings.Fields(args), "--scenario", told, "--policy", "static")...)
		if err != nil || !strings.Contains(text, "\n"+want) {
			t.Errorf("%s: %v, want %q in\n%s", args, err, want, text)
		}
	}
}

var errFull = errors.New("no space left")

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errFull }

// TestCompareSaysWhatFails: an answer that cannot be written.
func TestCompareSaysWhatFails(t *testing.T) {
	_, told := shop(t)
	cmd := Command(Streams{full{}, io.Discard}, "test")
	cmd.SetArgs([]string{"compare", "--scenario", told, "--policy", "static", "--seeds", "1", "--out", t.TempDir()})
	if err := cmd.ExecuteContext(t.Context()); !errors.Is(err, errFull) {
		t.Errorf("it says %v", err)
	}
}

// TestStopKeepsWhatIsDone: runs under way end, none begins, and what is there is written.
func TestStopKeepsWhatIsDone(t *testing.T) {
	lie, told := shop(t)
	s, err := scenario.Read(lie)
	must.Succeed(t, err)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	all, _ := choosePolicies(nil)
	p := plan{scenarios: []*scenario.Scenario{s}, policies: all, seeds: 50}
	quiet := newProgress(io.Discard, "runs")
	asked := 0
	quiet.now = func() time.Time { // when it begins, and when a run is done
		if asked++; asked > 1 {
			stop()
		}
		return time.Time{}
	}
	r := p.run(ctx, quiet)
	if len(r.Summaries)+r.Missing != 50*len(all) || len(r.Summaries) == 0 || len(r.Summaries) > 4*runtime.GOMAXPROCS(0) {
		t.Errorf("%d runs done and %d missing of %d, after a stop at the first one", len(r.Summaries), r.Missing, 50*len(all))
	}

	dir, _, err := compared(t, ctx, "--scenario", lie, "--scenario", told)
	if err == nil || !strings.Contains(err.Error(), "nothing was written") {
		t.Errorf("stopped before it began: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "results.txt")); err == nil {
		t.Error("files were written without a run")
	}
}

func TestProgress(t *testing.T) {
	var out bytes.Buffer
	p := newProgress(&out, "runs")
	at := time.Unix(0, 0)
	p.now = func() time.Time { return at }
	p.begin(3, 8)
	at = at.Add(10 * time.Second)
	p.done(1, "early") // too early for a line
	at = at.Add(10 * time.Second)
	p.done(1, "shop") // a quarter of the work in 20 s
	p.end()
	if got, want := out.String(), "2/3 runs, about 1m0s left (shop)\n2/3 runs\n"; got != want {
		t.Errorf("it says %q, want %q", got, want)
	}
}
