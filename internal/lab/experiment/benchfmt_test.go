package experiment

import (
	"bytes"
	"encoding/csv"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/mbcas/mbcas/internal/testing/must"
)

func three() Results {
	return Results{
		Scenarios: []Named{{Name: "b"}, {Name: "a"}}, Policies: []Named{{Name: "mbcas"}, {Name: "static"}},
		Summaries: []Summary{
			{Key: Key{"a", "static", 1}, Values: Values{P99: 12.3456789, BatchCores: 2}},
			{Key: Key{"b", "static", 2}, Values: Values{P99: 1e7, "jain": 0.00001}},
			{Key: Key{"b", "static", 1}, Values: Values{"changes": 0}},
			{Key: Key{"b", "mbcas", 1}, Values: Values{}},
		},
	}
}

// TestLinesAreBenchmarkFormat reads as golang.org/design/14313-benchmark-format says, and as
// strictly as benchstat does.
func TestLinesAreBenchmarkFormat(t *testing.T) {
	r := three()
	r.Sort()
	var out bytes.Buffer
	must.Succeed(t, WriteLines(&out, r))
	units := map[string]bool{}
	var names []string
	for line := range strings.Lines(out.String()) {
		line = strings.TrimSuffix(line, "\n")
		fields := strings.Fields(line)
		switch {
		case line == "":
		case strings.HasPrefix(line, "Unit "):
			if len(fields) != 3 || units[fields[1]] || fields[2] != "better=lower" && fields[2] != "better=higher" {
				t.Errorf("%q: want a unit that was not named before, and which way is better", line)
			}
			units[fields[1]] = true
		case strings.HasPrefix(line, "Benchmark"):
			if !unicode.IsUpper(rune(fields[0][len("Benchmark")])) || len(fields)%2 != 0 || len(fields) < 4 {
				t.Errorf("%q: want a name, a count and pairs of value and unit", line)
				continue
			}
			for _, part := range strings.Split(fields[0], "/")[1:] {
				if !regexp.MustCompile(`^[a-z]+=[a-z0-9.-]+$`).MatchString(part) {
					t.Errorf("%q: part %q of the name is not key=value", line, part)
				}
			}
			if n, err := strconv.Atoi(fields[1]); err != nil || n < 1 {
				t.Errorf("%q: count %q", line, fields[1])
			}
			seen := map[string]bool{}
			for i := 2; i < len(fields); i += 2 {
				if _, err := strconv.ParseFloat(fields[i], 64); err != nil || strings.ContainsAny(fields[i], "eN") {
					t.Errorf("%q: value %q", line, fields[i])
				}
				if seen[fields[i+1]] {
					t.Errorf("%q: %s twice", line, fields[i+1])
				}
				seen[fields[i+1]] = true
			}
			names = append(names, fields[0])
		case !regexp.MustCompile(`^[a-z][^ A-Z]*: `).MatchString(line):
			t.Errorf("%q is no line of the format", line)
		}
	}
	want := []string{
		"BenchmarkCompare/scenario=b/policy=static/seed=1", "BenchmarkCompare/scenario=b/policy=static/seed=2",
		"BenchmarkCompare/scenario=a/policy=static/seed=1",
	}
	if !slices.Equal(names, want) {
		t.Errorf("lines are %q, want %q", names, want)
	}
	if !strings.Contains(out.String(), "seed=1 1 12.3457 p99-ms 2 batch-cores\n") {
		t.Errorf("no line with 12.3457 p99-ms:\n%s", out.String())
	}
	for _, m := range Measures() {
		if strings.ContainsFunc(m.Unit, unicode.IsSpace) || m.Better != Neither && !units[m.Unit] {
			t.Errorf("unit %q is not declared", m.Unit)
		}
	}
}

func TestOneOrder(t *testing.T) {
	var first string
	for i := range 4 {
		r := three()
		r.Summaries = append(r.Summaries[i:], r.Summaries[:i]...)
		r.Sort()
		var out bytes.Buffer
		must.Succeed(t, WriteCSV(&out, r))
		if i == 0 {
			first = out.String()
		} else if out.String() != first {
			t.Errorf("the order of outcomes shows:\n%s\n%s", first, out.String())
		}
	}
	rows, err := csv.NewReader(strings.NewReader(first)).ReadAll()
	must.Succeed(t, err)
	p99 := slices.Index(rows[0], P99)
	if len(rows) != 5 || len(rows[0]) != 3+len(Measures()) || p99 < 0 || rows[2][p99] != "" || rows[3][p99] != "10000000" {
		t.Errorf("rows are %q", rows)
	}
}
