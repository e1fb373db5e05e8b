package monitoring_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"sigs.k8s.io/yaml"
)

// promtool is the program. tools/testall builds it and names its folder.
func promtool(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("MBCAS_PROMETHEUS")
	if dir == "" {
		t.Skip("optional: MBCAS_PROMETHEUS is not set: run this with `go run ./tools/testall -only rules`")
	}
	return filepath.Join(dir, "promtool")
}

// TestPromtool: the rules have no fault that promtool finds, and their unit tests pass.
func TestPromtool(t *testing.T) {
	program := promtool(t)
	for _, args := range [][]string{
		{"check", "rules", "--lint=all", "--lint-fatal", "rules.yaml"}, {"test", "rules", "rules_test.yaml",
			"rules_days_test.yaml"},
	} {
		if out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// equivalent are mutants that no test can tell from the rule, with why.
var equivalent = map[string]string{
	"MbcasNoLeader (critical): cas_controller_leader) < «1 -> 0.5» or absent": "leaders are counted in whole numbers",
}

// TestMutants: a rule with another comparison, threshold or duration fails a unit test.
func TestMutants(t *testing.T) {
	program := promtool(t)
	mutants := mutantsOf(readRules(t), readTests(t))
	if len(mutants) < 150 {
		t.Errorf("%d mutants, want at least 150", len(mutants))
	}
	var wait sync.WaitGroup
	work := make(chan mutant)
	for range 2 {
		wait.Go(func() {
			for m := range work {
				if _, ok := equivalent[m.what]; ok {
					continue
				}
				if err := passes(t.Context(), program, t.TempDir(), m); err == nil {
					t.Errorf("no unit test fails for %s", m.what)
				}
			}
		})
	}
	for _, m := range mutants {
		work <- m
	}
	close(work)
	wait.Wait()
	t.Logf("%d mutants", len(mutants))
}

// passes runs the unit tests that name the rule of a mutant, with that mutant.
func passes(ctx context.Context, program, dir string, m mutant) error {
	args := []string{"test", "rules", "--run=" + m.tests}
	for _, name := range []string{"rules_test.yaml", "rules_days_test.yaml"} {
		tests, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), tests, 0o644); err != nil {
			return err
		}
		args = append(args, name)
	}
	if err := os.WriteFile(filepath.Join(dir, "rules.yaml"), m.rules, 0o644); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	return cmd.Run()
}

type mutant struct {
	what  string
	tests string // a regular expression for the names of unit tests
	rules []byte
}

func mutantsOf(f ruleFile, tests []alertTest) (found []mutant) {
	for g := range f.Groups {
		for i := range f.Groups[g].Rules {
			r := &f.Groups[g].Rules[i]
			was := *r
			add := func(what string) {
				text, err := yaml.Marshal(f)
				if err != nil {
					panic(err)
				}
				name := was.Record + was.Alert
				if s := was.Labels["severity"]; s != "" {
					name += " (" + s + ")"
				}
				found = append(found, mutant{name + ": " + what, testsOf(was.Record+was.Alert, tests), text})
			}
			for _, e := range mutateExpr(was.Expr) {
				r.Expr = e.expr
				add(e.what)
			}
			r.Expr = was.Expr
			if was.For != "" {
				for _, factor := range []float64{.5, 2} {
					r.For = scaleDuration(was.For, factor)
					add("for " + r.For)
				}
				r.For = was.For
			}
		}
	}
	return found
}

// testsOf are the unit tests that name a rule.
func testsOf(rule string, tests []alertTest) string {
	var names []string
	for _, test := range tests {
		if strings.Contains(fmt.Sprint(test), rule) {
			names = append(names, regexp.QuoteMeta(test.Name))
		}
	}
	return "^(" + strings.Join(names, "|") + ")$"
}

type mutatedExpr struct{ what, expr string }

var (
	matchers   = regexp.MustCompile(`\{[^}]*\}`)
	comparison = regexp.MustCompile(`==|!=|>=|<=|>|<`)
	duration   = regexp.MustCompile(`\[(\w+)\]`)
	number     = regexp.MustCompile(`(?:^|[\s(])(\d+(?:\.\d+)?)(?:$|[\s,)])`)
	flipped    = map[string]string{"==": "!=", "!=": "==", ">": "<=", "<=": ">", "<": ">=", ">=": "<"}
)

// mutateExpr changes one comparison, number or duration of an expression at a time. What is in braces stays.
func mutateExpr(expr string) (found []mutatedExpr) {
	blank := matchers.ReplaceAllStringFunc(expr, func(m string) string { return strings.Repeat("_", len(m)) })
	replace := func(from, to int, by string) {
		around := strings.Join(strings.Fields(expr[max(0, from-25):from]+"«"+expr[from:to]+" -> "+by+"»"+
			expr[to:min(len(expr), to+10)]), " ")
		found = append(found, mutatedExpr{around, expr[:from] + by + expr[to:]})
	}
	for _, at := range comparison.FindAllStringIndex(blank, -1) {
		replace(at[0], at[1], flipped[blank[at[0]:at[1]]])
	}
	for _, at := range duration.FindAllStringSubmatchIndex(blank, -1) {
		for _, factor := range []float64{.5, 2} {
			replace(at[2], at[3], scaleDuration(blank[at[2]:at[3]], factor))
		}
	}
	for _, at := range number.FindAllStringSubmatchIndex(blank, -1) {
		v, err := strconv.ParseFloat(blank[at[2]:at[3]], 64)
		if err != nil {
			panic(err)
		}
		for _, other := range []float64{v / 2, v * 2} {
			if v == 0 {
				other += 2
			}
			replace(at[2], at[3], strconv.FormatFloat(other, 'g', -1, 64))
			if v == 0 {
				break
			}
		}
	}
	return found
}

// scaleDuration is a duration of one unit, times a factor, in seconds.
func scaleDuration(text string, factor float64) string {
	seconds := map[byte]float64{'s': 1, 'm': 60, 'h': 3600, 'd': 86400}
	n, err := strconv.ParseFloat(text[:len(text)-1], 64)
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf("%.0fs", factor*n*seconds[text[len(text)-1]])
}

// TestMutateExpr: the mutants are those that are meant.
func TestMutateExpr(t *testing.T) {
	var got []string
	for _, m := range mutateExpr(`sum(rate(a{b!="0"}[5m])) > 14 * 0.001 and ratio5m == 1`) {
		got = append(got, m.expr)
	}
	want := []string{
		`sum(rate(a{b!="0"}[5m])) <= 14 * 0.001 and ratio5m == 1`,
		`sum(rate(a{b!="0"}[5m])) > 14 * 0.001 and ratio5m != 1`,
		`sum(rate(a{b!="0"}[150s])) > 14 * 0.001 and ratio5m == 1`,
		`sum(rate(a{b!="0"}[600s])) > 14 * 0.001 and ratio5m == 1`,
		`sum(rate(a{b!="0"}[5m])) > 7 * 0.001 and ratio5m == 1`,
		`sum(rate(a{b!="0"}[5m])) > 28 * 0.001 and ratio5m == 1`,
		`sum(rate(a{b!="0"}[5m])) > 14 * 0.0005 and ratio5m == 1`,
		`sum(rate(a{b!="0"}[5m])) > 14 * 0.002 and ratio5m == 1`,
		`sum(rate(a{b!="0"}[5m])) > 14 * 0.001 and ratio5m == 0.5`,
		`sum(rate(a{b!="0"}[5m])) > 14 * 0.001 and ratio5m == 2`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("mutants:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
