package report

import (
	"bytes"
	"encoding/xml"
	"io"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mbcas/mbcas/internal/lab/experiment"
	"github.com/mbcas/mbcas/internal/lab/sim"
)

// outcome is a run with a p99 in ms and a throughput of batch, and a little of all the rest.
func outcome(scenario, policy string, seed uint64, p99, batch float64) experiment.Summary {
	l := new(sim.Latencies)
	for i := range 200 {
		l.Add(time.Duration(p99*float64(i)/200*1e6) + time.Millisecond)
	}
	o := experiment.Summary{
		Key: experiment.Key{Scenario: scenario, Policy: policy, Seed: seed}, Latency: l,
		Values: experiment.Values{experiment.P99: p99, experiment.BatchCores: batch, experiment.WorstShare: 0.95, experiment.Changes: 2},
	}
	if seed == 1 {
		o.Series = &experiment.Series{Step: 1, Cores: 2, Price: []float64{0, 0.5, 0.4}, Idle: []float64{0.5, 0, 0}, Pods: []experiment.PodSeries{
			{Pod: "web", Role: "service", Usage: []float64{-1, 0.5, 0.6}, Limit: []float64{-1, 1, 0.7}},
			{Pod: "batch", Role: "batch", Usage: []float64{1, 1, 1}, Limit: []float64{0, 0, 0}},
		}}
	}
	return o
}

func results() experiment.Results {
	r := experiment.Results{
		Scenarios: []experiment.Named{{Name: "shop", Description: "Bursts & batch."}, {Name: "empty", Description: "nothing was played"}},
		Policies: []experiment.Named{
			{Name: "static", Description: "as declared"}, {Name: "captain", Description: "throttles"}, {Name: "fast", Description: "is unfair"}, {Name: "mbcas", Description: "what ships"},
		},
	}
	for seed := range uint64(2) {
		r.Summaries = append(r.Summaries,
			outcome("shop", "static", seed+1, 400+float64(seed), 2.0), outcome("shop", "captain", seed+1, 104, 2.99),
			outcome("shop", "fast", seed+1, 50, 2.5), outcome("shop", "mbcas", seed+1, 100, 3),
		)
	}
	each(r, "fast", func(o *experiment.Summary) { o.Values[experiment.WorstShare] = 0.5 })
	return r
}

// each changes the summaries of a policy.
func each(r experiment.Results, policy string, change func(*experiment.Summary)) {
	for i := range r.Summaries {
		if r.Summaries[i].Policy == policy {
			change(&r.Summaries[i])
		}
	}
}

func written(t *testing.T, r experiment.Results) string {
	t.Helper()
	var out bytes.Buffer
	if err := Write(&out, r); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestStandsAlone(t *testing.T) {
	page := written(t, results())
	for _, bad := range []string{"<script", "<link", "<img", "@import", "url(", "src=", "onload"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page contains %q", bad)
		}
	}
	for _, href := range regexp.MustCompile(`href="([^"]*)"`).FindAllStringSubmatch(page, -1) {
		id, ok := strings.CutPrefix(href[1], "#")
		if !ok || !strings.Contains(page, `id="`+id+`"`) {
			t.Errorf("link %q leads out of the page, or nowhere", href[1])
		}
	}
	if strings.Contains(page, "Bursts & batch") || !strings.Contains(page, "Bursts &amp; batch") {
		t.Error("text is not escaped")
	}
}

func wellFormed(t *testing.T, svg string) {
	t.Helper()
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		if _, err := d.Token(); err == io.EOF {
			return
		} else if err != nil {
			t.Fatalf("a picture is not well formed: %v", err)
		}
	}
}

func TestAccessible(t *testing.T) {
	page := written(t, results())
	pictures := regexp.MustCompile(`(?s)<svg.*?</svg>`).FindAllString(page, -1)
	if len(pictures) != 5 { // front, tail, and the course of three policies
		t.Errorf("%d pictures, want 5", len(pictures))
	}
	for _, svg := range pictures {
		if !regexp.MustCompile(`^<svg [^>]*role="img" aria-label="shop[^"]+" viewBox="[-0-9. ]+"><title>shop[^<]+</title><desc>[^<]+</desc>`).MatchString(svg) {
			t.Errorf("a picture begins with %.200q", svg)
		}
		if strings.Contains(svg[:200], "width=") {
			t.Error("a picture has a fixed width")
		}
		wellFormed(t, svg)
	}
	if tables, captions := strings.Count(page, "<table>"), strings.Count(page, "<caption>"); tables < 2 || tables != captions {
		t.Errorf("%d tables and %d captions", tables, captions)
	}
	for _, want := range []string{`<html lang="en">`, `name="viewport"`, "prefers-color-scheme:dark", `class="best">3.00 <b>best</b>`} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %s", want)
		}
	}
}

func TestMarksTheBest(t *testing.T) {
	r := results()
	table := newTable(r, "shop", experiment.Measures())
	column := func(unit string) int {
		for i, h := range table.Heads {
			if h.Unit == unit {
				return i
			}
		}
		t.Fatalf("no column %s", unit)
		return 0
	}
	if len(table.Heads) != 4 {
		t.Errorf("%d columns, want those four that have figures", len(table.Heads))
	}
	for policy, want := range map[string][2]string{"static": {"", ""}, "captain": {"", "near"}, "fast": {"best", ""}, "mbcas": {"", "best"}} {
		for _, row := range table.Rows {
			if got := [2]string{row.Cells[column(experiment.P99)].Mark, row.Cells[column(experiment.BatchCores)].Mark}; row.Policy == policy && got != want {
				t.Errorf("%s is marked %q, want %q", policy, got, want)
			}
		}
	}
	if got := table.Rows[0].Cells[column(experiment.P99)]; got.Text != "400" && got.Text != "401" || got.Spread != "400 to 401" {
		t.Errorf("two seeds of 400 and 401 ms are written %+v", got)
	}
	// "fast" is fastest, but does not respect entitlements.
	v, ok := judge(r, "shop")
	if !ok || !v.OK || v.Latency.Text != "first" || v.Work.Text != "first" {
		t.Errorf("the verdict is %+v", v)
	}
	for i := range r.Summaries {
		r.Summaries[i].Values[experiment.WorstShare] = 1
	}
	if v, _ = judge(r, "shop"); v.OK || v.Latency.Text != "+100 % against fast" || v.Work.Text != "first" {
		t.Errorf("behind a policy that is fair, the verdict is %+v", v)
	}
	if len(v.BeatenBy) != 0 {
		t.Errorf("beaten by %v: fast is faster, and does less work", v.BeatenBy)
	}
	each(r, "fast", func(o *experiment.Summary) { o.Values[experiment.BatchCores] = 100 })
	if v, _ = judge(r, "shop"); !slices.Equal(v.BeatenBy, []string{"fast"}) {
		t.Errorf("beaten by %v, want fast, which is better in both", v.BeatenBy)
	}
	each(r, "fast", func(o *experiment.Summary) { o.Policy = "vpa" })
	r.Policies[2].Name = "vpa" // was fast
	if v, _ = judge(r, "shop"); len(v.BeatenBy) != 0 || v.Latency.By == "vpa" {
		t.Errorf("held against a policy that changes requests: %+v", v)
	}
}

func TestFrontIsNotDominated(t *testing.T) {
	points := front(results(), "shop")
	best := map[string]bool{}
	for _, p := range points {
		best[p.policy] = p.best
	}
	if len(points) != 4 || !best["fast"] || !best["mbcas"] || best["captain"] || best["static"] {
		t.Errorf("the front is %+v, want fast and mbcas", points)
	}
	if got := front(results(), "empty"); got != nil {
		t.Errorf("an empty scenario has the front %v", got)
	}
}

func TestAnythingCanBeShown(t *testing.T) {
	written(t, experiment.Results{})
	r := results()
	for i := range r.Summaries {
		r.Summaries[i].Values = experiment.Values{experiment.P99: 0, experiment.BatchCores: 0}
		r.Summaries[i].Latency, r.Summaries[i].Series = nil, nil
	}
	written(t, r)
	r = results()
	r.Summaries, r.Missing = r.Summaries[:1], 7
	r.Summaries[0].Latency = new(sim.Latencies)
	r.Summaries[0].Series = &experiment.Series{Step: 1, Idle: []float64{0}, Price: []float64{0}, Pods: []experiment.PodSeries{{Pod: "a", Usage: []float64{-1}, Limit: []float64{-1}}}}
	if page := written(t, r); !strings.Contains(page, "7 runs were not done") {
		t.Error("the page does not say that runs are missing")
	}
}

func TestThin(t *testing.T) {
	l := new(sim.Latencies)
	for i := range 100_000 {
		l.Add(time.Duration(i) * 10 * time.Microsecond)
	}
	line := thinned(l.Distribution())
	if len(line) < 50 || len(line) > 500 {
		t.Errorf("%d points are drawn, want 50 to 500", len(line))
	}
	for i := 1; i < len(line); i++ {
		if line[i].X < line[i-1].X || line[i].Y < line[i-1].Y {
			t.Fatalf("point %d falls behind: %v after %v", i, line[i], line[i-1])
		}
	}
	if last := line[len(line)-1].Y; math.Abs(last-4) > 0.1 {
		t.Errorf("the line ends at %v nines, want 4", last)
	}
}
