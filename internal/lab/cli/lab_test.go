package cli

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mbcas/mbcas/internal/lab/scenario"
	"github.com/mbcas/mbcas/internal/testing/must"
)

func lab(t *testing.T, args ...string) (string, error) {
	t.Helper()
	return labIn(t.Context(), args...)
}

func labIn(ctx context.Context, args ...string) (string, error) {
	var out bytes.Buffer
	cmd := Command(Streams{&out, &out}, "test")
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(ctx)
	return out.String(), err
}

// TestOneErrorPerLine: the whole text.
func TestOneErrorPerLine(t *testing.T) {
	for args, want := range map[string]string{
		"simm":                  `unknown command "simm": did you mean sim?`,
		"fly":                   `unknown command "fly": see "mbcas-lab --help"`,
		"sim":                   `"mbcas-lab sim" needs a scenario: see "mbcas-lab scenarios"`,
		"sim duel liar":         `"mbcas-lab sim" takes no argument "liar"`,
		"sim nothing":           `there is no scenario "nothing": see "mbcas-lab scenarios", or give the path of a file: .yaml for a scenario, .csv or .txt for recorded load`,
		"scenarios nothing":     `there is no scenario "nothing": see "mbcas-lab scenarios", or give the path of a file: .yaml for a scenario, .csv or .txt for recorded load`,
		"sim nothing.yaml":      "scenario: open nothing.yaml: no such file or directory; name a YAML file, or one of those that `mbcas-lab scenarios` lists",
		"sim nothing.csv":       "trace: open nothing.csv: no such file or directory",
		"sim duel --length 20s": `--length 20s: want more than the warm-up, 20s, and at most the scenario's length, 2m0s`,
		"policies all":          `"mbcas-lab policies" takes no argument "all"`,
		"scenarios --colour":    `unknown flag: --colour; see "mbcas-lab scenarios --help"`,
		"sim duel --seed -5":    `invalid argument "-5" for "--seed" flag: want a whole number, not below 0`,

		"compare --scenario duell": `there is no scenario "duell": see "mbcas-lab scenarios", or give the path of a file: .yaml for a scenario, .csv or .txt for recorded load`,
		"compare --seeds 0":        "--seeds is 0: want at least 1",
		"compare --out=":           "--out is empty: name the folder to write to, or leave the flag out",
		"compare duel":             `"mbcas-lab compare" takes no argument "duel"`,

		"fairness --nodes 1":                       `--nodes is 1: want 2 to 10000`,
		"fairness --min-tenants 5 --max-tenants 4": `--min-tenants is 5 and --max-tenants 4: want 0 <= min <= max <= 30`,
		"fairness --tenant-stddev NaN":             `--tenant-stddev is NaN: want 0 to 2`,
		"fairness --length 45s --coordination-interval 20s": "--coordination-interval is 20s and --length 45s: " +
			"want whole seconds, and at least three rounds",
		"fairness --rho 1": `coordinator WorkloadRho is 1: want -99 to 0`,
		"fairness more":    `"mbcas-lab fairness" takes no argument "more"`,
	} {
		if _, err := lab(t, strings.Fields(args)...); !isUsage(err) || err.Error() != want {
			t.Errorf("%q: got %v, want the usage error %s", args, err, want)
		}
	}
	for _, args := range []string{"sim duel", "compare"} {
		_, err := lab(t, append(strings.Fields(args), "--policy", "king")...)
		if want := `--policy "king": want one of static, no-limits, `; !isUsage(err) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: an unknown policy: %v", args, err)
		}
	}
}

func isUsage(err error) bool {
	var usage UsageError
	return errors.As(err, &usage)
}

// written is a file with that text.
func written(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	must.Succeed(t, os.WriteFile(file, []byte(text), 0o644))
	return file
}

// rows are the lines of a table by their first cells, of which the others are returned.
func rows(text string, columns, keys int) map[string][]string {
	found := map[string][]string{}
	for line := range strings.Lines(text) {
		if cells := strings.Fields(line); len(cells) == columns {
			found[strings.Join(cells[:keys], "/")] = cells[keys:]
		}
	}
	return found
}

const small = `name: small
description: a test
nodes: 2
node: {cores: 2, systemUsage: 10m}
length: 20s
warmUp: 10s
pods:
  - name: web
    role: service
    request: 500m
    limit: 500m
    load:
      requests: {rate: 20, serviceTime: 10ms, distribution: fixed, evenlySpaced: true}
  - name: batch
    role: batch
    request: 100m
    limit: 300m
    start: 14500ms
    load: {spin: 1}
`

// TestSameAnswer: a run of many nodes under what ships is shown together, and has the same figures
// and files however many CPUs there are; another seed has others.
func TestSameAnswer(t *testing.T) {
	text := strings.NewReplacer("nodes: 2", "nodes: 200", "length: 20s", "length: 14s", "start: 14500ms", "start: 1s").Replace(small)
	file := written(t, "many.yaml", text)
	run := func(seed string) (string, map[string]string) {
		dir, files := t.TempDir(), map[string]string{}
		out, err := lab(t, "sim", file, "--seed", seed, "--out", dir)
		must.Succeed(t, err)
		for _, name := range []string{"pods.csv", "nodes.csv", "changes.csv"} {
			files[name] = content(t, dir, name)
		}
		_, figures, _ := strings.Cut(out, "small under") // behind what it says on the way
		return figures, files
	}
	out, files := run("1")
	pods := rows(out, 11, 1)
	// 20 requests of 10 ms are 0.2 cores. The thread that spins has 0.3 cores until it is lifted to four times that,
	// and then to what these leave of the supply of 1.8. The first lift is decided at the start of the four seconds that
	// count, and takes effect 0.12 s later in the mean: it is published, then carried out.
	web, batch := pods["web"], pods["batch"]
	if len(web) == 0 || len(batch) == 0 {
		t.Fatalf("no rows in\n%s", out)
	}
	if d := cmp.Diff([]string{"service", "500m", "500m", "200m", "0.0%"}, web[:5]); d != "" || web[9] != "0" {
		t.Errorf("web: %v, %s", web, d)
	}
	if d := cmp.Diff([]string{"batch", "100m", "1590m"}, batch[:3]); d != "" || !strings.HasPrefix(batch[3], "97") || batch[9] != "400" {
		t.Errorf("batch: %v, %s", batch, d)
	}
	if want := "200 nodes of 2 cores: 59."; !strings.Contains(out, want) {
		t.Errorf("%q is missing in\n%s", want, out)
	}
	if !strings.Contains(out, "; prices ") || strings.Count(files["changes.csv"], "\n") != 401 {
		t.Errorf("MBCAS has no price, or changed 200 limits other than twice:\n%s\n%.999s", out, files["changes.csv"])
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	if again, same := run("1"); out != again || !maps.Equal(files, same) {
		t.Errorf("on one CPU the files differ, or it says\n%s", again)
	}
	if _, other := run("2"); files["pods.csv"] == other["pods.csv"] {
		t.Error("another seed gives the same series")
	}
}

// TestSim: the table and the files of a run whose figures are known beforehand.
func TestSim(t *testing.T) {
	dir := t.TempDir()
	text, err := lab(t, "sim", written(t, "small.yaml", small), "--policy", "static", "--out", filepath.Join(dir, "out"))
	must.Succeed(t, err)
	shown := rows(text, 12, 2)
	// 20 requests of 10 ms each second are 0.2 cores; a batch pod held to 0.3 cores is throttled in every
	// period.
	for _, node := range []string{"1", "2"} {
		web, batch := shown[node+"/web"], shown[node+"/batch"]
		if len(web) == 0 || len(batch) == 0 {
			t.Fatalf("no rows of node %s in\n%s", node, text)
		}
		if d := cmp.Diff([]string{"service", "500m", "500m", "200m", "0.0%"}, web[:5]); d != "" {
			t.Errorf("web: %s", d)
		}
		if web[5] != "10.0ms" && web[5] != "10.1ms" {
			t.Errorf("web: half of the requests took %s", web[5])
		}
		if d := cmp.Diff([]string{"batch", "100m", "300m"}, batch[:3]); d != "" || !strings.HasPrefix(batch[3], "3") || len(batch[3]) != 4 {
			t.Errorf("batch uses %s: %s", batch[3], d)
		}
		if d := cmp.Diff([]string{"-", "-", "-", "-", "0"}, batch[5:]); d != "" {
			t.Errorf("batch: %s", d)
		}
	}
	pods := readCSV(t, filepath.Join(dir, "out", "pods.csv"))
	seconds := 0
	for _, row := range pods {
		if row["pod"] == "batch" {
			seconds++
			if row["role"] != "batch" || row["limit"] != "0.3" {
				t.Errorf("batch in pods.csv: %v", row)
			}
		}
	}
	if seconds != 2*6 {
		t.Errorf("pods.csv has %d seconds of the batch pods, want 6 on each of 2 nodes", seconds)
	}
	if nodes := readCSV(t, filepath.Join(dir, "out", "nodes.csv")); len(nodes) != 40 || nodes[20]["node"] != "2" || nodes[20]["time"] != "1" {
		t.Errorf("nodes.csv has %d rows, the 21st is %v", len(nodes), nodes[min(20, len(nodes)-1)])
	}
	if changes := readCSV(t, filepath.Join(dir, "out", "changes.csv")); len(changes) != 0 {
		t.Errorf("limits as declared changed: %v", changes)
	}
}

// TestStopEndsSim: what is not complete is not shown.
func TestStopEndsSim(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	text, err := labIn(ctx, "sim", "noisy")
	if text != "" || err == nil || err.Error() != "stopped after 0 of 1 nodes: context canceled" {
		t.Errorf("stopped: %v\n%s", err, text)
	}
}

// TestOutIsMadeFirst: a folder that cannot be created is found before anything runs.
func TestOutIsMadeFirst(t *testing.T) {
	file := written(t, "file", "")
	for _, args := range []string{"sim duel --length 21s", "compare --scenario duel --policy static", "fairness"} {
		text, err := lab(t, append(strings.Fields(args), "--out", file)...)
		if err == nil || text != "" || !strings.HasPrefix(err.Error(), "--out: mkdir "+file) {
			t.Errorf("%s: it says %v and\n%s", args, err, text)
		}
	}
}

func readCSV(t *testing.T, path string) []map[string]string {
	t.Helper()
	f, err := os.Open(path)
	must.Succeed(t, err)
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil || len(rows) == 0 {
		t.Fatalf("%s: %d rows, %v", path, len(rows), err)
	}
	var found []map[string]string
	for _, row := range rows[1:] {
		m := map[string]string{}
		for i, name := range rows[0] {
			m[name] = row[i]
		}
		found = append(found, m)
	}
	return found
}

// TestScenarios: all are listed, and the file of each can be printed and read again.
func TestScenarios(t *testing.T) {
	list, err := lab(t, "scenarios")
	must.Succeed(t, err)
	for _, s := range scenario.Catalogue() {
		if !strings.Contains(list, "\n"+s.Name+" ") {
			t.Errorf("%s is not listed", s.Name)
		}
		text, err := lab(t, "scenarios", s.Name)
		must.Succeed(t, err)
		if again, err := scenario.Parse("printed", []byte(text), "."); err != nil || again.Name != s.Name {
			t.Errorf("the printed file of %s: %v", s.Name, err)
		}
	}
	if text, err := lab(t, "scenarios", "--schema"); err != nil || !strings.HasPrefix(text, "{\n  \"$schema\"") {
		t.Errorf("the schema: %v\n%.99s", err, text)
	}
}

// TestPolicies: all are listed.
func TestPolicies(t *testing.T) {
	text, err := lab(t, "policies")
	if err != nil || !strings.Contains(text, "\nmbcas ") || !strings.Contains(text, "\nstatic ") {
		t.Errorf("%v:\n%s", err, text)
	}
}
