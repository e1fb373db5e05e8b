// Package report writes the results of a comparison as one page that needs nothing else: no
// network, no script, no other file.
//
// What it promises, each a test of the same name:
//   - StandsAlone: the page names no other file and runs no script.
//   - Accessible: every picture has a name and a description, every table a caption, and marks are
//     text as well as colour.
//   - MarksTheBest: the best policy of each measure is marked, and those within 5 % of it.
//   - FrontIsNotDominated: no policy is better in both latency and throughput than one on the
//     front.
//   - AnythingCanBeShown: results with nothing in them, or with parts missing, still make a page.
package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"

	"github.com/mbcas/mbcas/internal/lab/experiment"
)

//go:embed page.html
var page string

var layout = template.Must(template.New("page").Parse(page))

// Write writes the page. Every policy of the results has a row in every table; pictures show a few.
func Write(w io.Writer, r experiment.Results) error {
	p, err := newPage(r)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return layout.Execute(w, p)
}

// pageData is what the page shows.
type pageData struct {
	Runs, Missing int
	Seeds         int
	Default       string
	Verdicts      []verdict
	Sections      []section
	Measures      []experiment.Measure
	Policies      []row
}

// section is one scenario.
type section struct {
	ID, Name, About string
	Main, Rest      table
	Front, Tail     template.HTML
	OnFront         string
	Series          []template.HTML
}

func newPage(r experiment.Results) (pageData, error) {
	v := pageData{Runs: len(r.Summaries), Missing: r.Missing, Default: experiment.Default, Measures: experiment.Measures()}
	seeds := map[uint64]bool{}
	for _, o := range r.Summaries {
		seeds[o.Seed] = true
	}
	v.Seeds = len(seeds)
	for i, p := range r.Policies {
		v.Policies = append(v.Policies, row{Number: i + 1, Policy: p.Name, About: p.Description})
	}
	for i, s := range r.Scenarios {
		sec, err := newSection(r, s, fmt.Sprintf("s%d", i+1))
		if err != nil {
			return v, fmt.Errorf("scenario %s: %w", s.Name, err)
		}
		if len(sec.Main.Rows) == 0 {
			continue
		}
		v.Sections = append(v.Sections, sec)
		if x, ok := judge(r, s.Name); ok {
			v.Verdicts = append(v.Verdicts, x)
		}
	}
	return v, nil
}

func newSection(r experiment.Results, s experiment.Named, id string) (section, error) {
	sec := section{ID: id, Name: s.Name, About: s.Description}
	var main, rest []experiment.Measure
	for _, m := range experiment.Measures() {
		if m.Main {
			main = append(main, m)
		} else {
			rest = append(rest, m)
		}
	}
	sec.Main = newTable(r, s.Name, main)
	sec.Rest = newTable(r, s.Name, rest)
	points := front(r, s.Name)
	var names []string
	for _, p := range points {
		if p.best {
			names = append(names, p.policy)
		}
	}
	sec.OnFront = strings.Join(names, ", ")
	var err error
	if sec.Front, err = drawFront(s.Name, points); err != nil {
		return sec, err
	}
	if sec.Tail, err = drawTail(r, s.Name); err != nil {
		return sec, err
	}
	for _, policy := range plottedPolicies(r, s.Name, 3) {
		course, err := drawSeries(r, s.Name, policy)
		if err != nil {
			return sec, err
		}
		if course != "" {
			sec.Series = append(sec.Series, course)
		}
	}
	return sec, nil
}
