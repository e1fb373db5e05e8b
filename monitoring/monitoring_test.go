// Package monitoring_test holds the rules, runbooks and dashboards to the metrics that the programs serve and to the
// commands that the plugin has.
package monitoring_test

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/mbcas/mbcas/internal/cli"
	"github.com/mbcas/mbcas/internal/testing/metricset"
	"github.com/mbcas/mbcas/internal/testing/must"
)

// rule is a recording rule or an alert, as in rules.yaml.
type rule struct {
	Record      string            `json:"record,omitempty"`
	Alert       string            `json:"alert,omitempty"`
	Expr        string            `json:"expr"`
	For         string            `json:"for,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type ruleGroup struct {
	Name     string `json:"name"`
	Interval string `json:"interval,omitempty"`
	Rules    []rule `json:"rules"`
}

type ruleFile struct {
	Groups []ruleGroup `json:"groups"`
}

func readRules(t *testing.T) (f ruleFile) {
	t.Helper()
	must.Succeed(t, yaml.UnmarshalStrict([]byte(read(t, "rules.yaml")), &f))
	return f
}

func (f ruleFile) all() (rules []rule) {
	for _, g := range f.Groups {
		rules = append(rules, g.Rules...)
	}
	return rules
}

// alertTest is a unit test of the rules.
type alertTest struct {
	Name            string `json:"name"`
	PromqlExprTests []struct {
		Expr       string `json:"expr"`
		ExpSamples []any  `json:"exp_samples"`
	} `json:"promql_expr_test"`
}

// readTests are the unit tests of both files.
func readTests(t *testing.T) (tests []alertTest) {
	t.Helper()
	for _, file := range []string{"rules_test.yaml", "rules_days_test.yaml"} {
		var f struct {
			Tests []alertTest `json:"tests"`
		}
		must.Succeed(t, yaml.Unmarshal([]byte(read(t, file)), &f))
		tests = append(tests, f.Tests...)
	}
	return tests
}

var alertName = regexp.MustCompile(`alertname="(\w+)"`)

// TestAlertsAreWhole: each alert has a severity, texts, a runbook, a case in which it fires and one in which it
// does not.
func TestAlertsAreWhole(t *testing.T) {
	fires, silent := map[string]int{}, map[string]int{}
	for _, c := range readTests(t) {
		for _, e := range c.PromqlExprTests {
			for _, m := range alertName.FindAllStringSubmatch(e.Expr, -1) {
				if len(e.ExpSamples) > 0 {
					fires[m[1]]++
				} else {
					silent[m[1]]++
				}
			}
		}
	}
	const runbooks = "https://github.com/mbcas/mbcas/blob/main/docs/runbooks/"
	alerts := map[string]bool{}
	for _, r := range readRules(t).all() {
		if r.Alert == "" {
			continue
		}
		alerts[r.Alert] = true
		if s := r.Labels["severity"]; s != "critical" && s != "warning" && s != "info" {
			t.Errorf("%s has the severity %q", r.Alert, s)
		}
		if r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
			t.Errorf("%s lacks a summary or a description", r.Alert)
		}
		if url := r.Annotations["runbook_url"]; url != runbooks+r.Alert+".md" {
			t.Errorf("%s has the runbook %q", r.Alert, url)
		}
		if fires[r.Alert] == 0 || silent[r.Alert] == 0 {
			t.Errorf("%s: there are %d cases in which it fires and %d in which it does not, want one of each",
				r.Alert, fires[r.Alert], silent[r.Alert])
		}
	}
	pages, err := filepath.Glob("../docs/runbooks/*.md")
	must.Succeed(t, err)
	if len(pages) != len(alerts) || len(alerts) < 20 {
		t.Errorf("%d runbooks and %d alerts, want as many, and at least 20", len(pages), len(alerts))
	}
	for name := range alerts {
		if !slices.Contains(pages, "../docs/runbooks/"+name+".md") {
			t.Errorf("%s has no runbook", name)
		}
	}
}

var command = regexp.MustCompile("(?m)^    kubectl mbcas ?(.*?)(?: *#.*)?$|`kubectl mbcas ([^`]*)`")

// TestRunbooks: each has its four parts, and its commands are those of the plugin, with their flags and arguments.
func TestRunbooks(t *testing.T) {
	pages, err := filepath.Glob("../docs/runbooks/*.md")
	must.Succeed(t, err)
	commands := 0
	for _, page := range pages {
		text := read(t, page)
		var headings []string
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "#") {
				headings = append(headings, strings.TrimSpace(line))
			}
		}
		want := []string{"# " + strings.TrimSuffix(filepath.Base(page), ".md"), "## Meaning", "## Impact",
			"## Diagnosis", "## Mitigation"}
		if !slices.Equal(headings, want) {
			t.Errorf("%s has the headings %q, want %q", page, headings, want)
		}
		for _, m := range command.FindAllStringSubmatch(text, -1) {
			commands++
			if err := parses(m[1] + m[2]); err != nil {
				t.Errorf("%s: kubectl mbcas %s: %v", page, m[1]+m[2], err)
			}
		}
	}
	if commands < len(pages)/2 {
		t.Errorf("%d commands of the plugin in %d runbooks", commands, len(pages))
	}
	for _, wrong := range []string{"explode POD", "list --nonsense", "explain"} {
		if parses(wrong) == nil {
			t.Errorf("kubectl mbcas %s parses, which is no command", wrong)
		}
	}
}

// parses says whether a command line is one of the plugin. It runs nothing.
func parses(line string) error {
	root := cli.Command(cli.Streams{Out: io.Discard, Err: io.Discard}, "")
	cmd, args, err := root.Find(strings.Fields(line))
	if err != nil {
		return err
	}
	if err := cmd.ParseFlags(args); err != nil {
		return err
	}
	return cmd.ValidateArgs(cmd.Flags().Args())
}

var (
	served   = regexp.MustCompile(`\bmbcas_[a-z_]+\b`)
	recorded = regexp.MustCompile(`\bmbcas:[a-z0-9_:]+`)
	summed   = regexp.MustCompile(`_(bucket|sum|count)$`)
)

// names are the metrics that exist: those of the programs, and those that the rules record.
func names(t *testing.T) map[string]bool {
	t.Helper()
	known := map[string]bool{}
	for _, described := range []func() ([]metricset.Metric, error){metricset.Controller, metricset.Agent} {
		all, err := described()
		must.Succeed(t, err)
		for _, m := range all {
			known[m.Name] = true
		}
	}
	for _, r := range readRules(t).all() {
		known[r.Record] = true
	}
	return known
}

// unknown are the names in a text that no program serves and no rule records.
func unknown(known map[string]bool, text string) (bad []string) {
	for _, name := range slices.Concat(served.FindAllString(text, -1), recorded.FindAllString(text, -1)) {
		if !known[name] && !known[summed.ReplaceAllString(name, "")] && name != "mbcas_" {
			bad = append(bad, name)
		}
	}
	return bad
}

// TestMetricsExist: rules name metrics that the programs serve.
func TestMetricsExist(t *testing.T) {
	known := names(t)
	rules := readRules(t).all()
	for _, r := range rules {
		if bad := unknown(known, r.Expr); len(bad) > 0 {
			t.Errorf("%s%s names %q, which nothing serves", r.Record, r.Alert, bad)
		}
	}
	if len(rules) < 30 {
		t.Errorf("%d rules", len(rules))
	}
	if bad := unknown(known, "mbcas_node_prise + mbcas:nothing + "+
		"mbcas_agent_round_duration_seconds_bucket"); len(bad) != 2 {
		t.Errorf("found %q, want the two that do not exist", bad)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	must.Succeed(t, err)
	return string(text)
}
