package report

import (
	"math"
	"strconv"

	"github.com/mbcas/mbcas/internal/lab/experiment"
)

// table has policies as rows and measures as columns.
type table struct {
	Heads []head
	Rows  []row
}

type head struct{ Title, Unit, Formula string }

type row struct {
	Number        int
	Policy, About string
	Default       bool
	Cells         []cell
}

// cell is one figure. Mark is "best", "near" or nothing.
type cell struct{ Text, Spread, Mark string }

// nearBest is how close to the best a figure must come to be marked, as a share of the best.
const nearBest = 0.05

// newTable leaves out columns that say nothing about the scenario, and policies that did not play.
func newTable(r experiment.Results, scenario string, measures []experiment.Measure) table {
	var t table
	var columns []experiment.Measure
	best := map[string]float64{}
	for _, m := range measures {
		any := false
		for _, p := range r.Policies {
			s := experiment.Aggregate(r.Select(scenario, p.Name), m.Unit)
			if s.Count == 0 {
				continue
			}
			if b, ok := best[m.Unit]; !ok || better(m, s.Mean, b) {
				best[m.Unit] = s.Mean
			}
			any = true
		}
		if any {
			columns = append(columns, m)
			t.Heads = append(t.Heads, head{m.Title, m.Unit, m.Formula})
		}
	}
	for i, p := range r.Policies {
		outcomes := r.Select(scenario, p.Name)
		if len(outcomes) == 0 {
			continue
		}
		line := row{Number: i + 1, Policy: p.Name, About: p.Description, Default: p.Name == experiment.Default}
		for _, m := range columns {
			s := experiment.Aggregate(outcomes, m.Unit)
			c := cell{Text: "–"}
			if s.Count > 0 {
				c.Text = short(s.Mean)
				c.Mark = mark(m, s.Mean, best[m.Unit])
			}
			if s.Count > 1 && short(s.Low) != short(s.High) {
				c.Spread = short(s.Low) + " to " + short(s.High)
			}
			line.Cells = append(line.Cells, c)
		}
		t.Rows = append(t.Rows, line)
	}
	return t
}

func better(m experiment.Measure, a, b float64) bool {
	return m.Better == experiment.Lower && a < b || m.Better == experiment.Higher && a > b
}

func mark(m experiment.Measure, v, best float64) string {
	switch {
	case m.Better == experiment.Neither:
		return ""
	case v == best || short(v) == short(best):
		return "best"
	case math.Abs(v-best) <= nearBest*math.Abs(best):
		return "near"
	}
	return ""
}

// short writes about three digits that count.
func short(v float64) string {
	digits := 0
	switch a := math.Abs(v); {
	case a < 0.0005:
		return "0"
	case a < 1:
		digits = 3
	case a < 10:
		digits = 2
	case a < 100:
		digits = 1
	}
	return strconv.FormatFloat(v, 'f', digits, 64)
}
