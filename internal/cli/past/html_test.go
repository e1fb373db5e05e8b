package past

import (
	"html"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mbcas/mbcas/internal/benefit"
)

var (
	htmlRow  = regexp.MustCompile(`<tr>(.*)</tr>`)
	htmlCell = regexp.MustCompile(`<(?:td|th)[^>]*>([^<]*)</(?:td|th)>`)
)

// TestHTML: the page has the cells of the wide table, each column with its meaning, and a bar of the full width for the
// largest value of a column. Names are text, whatever they are.
func TestHTML(t *testing.T) {
	const hostile = `shop/<script>alert("1")</script>&amp;`
	r := Report{
		Nodes: 1, Of: 2, Covered: time.Minute, Failed: []string{"node <b>: no route"},
		Rows: []ReportRow{
			{Group: hostile, Mode: "enforce", Figures: benefit.Figures{ThrottledIdle: 4 * time.Second, ThrottledScarce: time.Second, Raises: 3}},
			{Group: "shop/web", Mode: "before 12:00", Figures: benefit.Figures{ThrottledScarce: 1500 * time.Millisecond, Lowers: 2, Changes: 1}},
		},
	}
	for _, row := range r.Rows {
		r.Sum.Add(row.Figures)
	}
	text, err := r.HTML()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(text, "<script") || strings.Contains(text, "<b>") || strings.Contains(text, "ZgotmplZ") {
		t.Errorf("a name is no text:\n%s", text)
	}
	var got [][]string
	for _, row := range htmlRow.FindAllStringSubmatch(text, -1) {
		var cells []string
		for _, cell := range htmlCell.FindAllStringSubmatch(row[1], -1) {
			cells = append(cells, html.UnescapeString(cell[1]))
		}
		got = append(got, cells)
	}
	want := [][]string{{"What", "Mode"}}
	for _, row := range append(slices.Clone(r.Rows), r.all()) {
		want = append(want, []string{row.Group, row.Mode})
	}
	for _, c := range columns {
		want[0] = append(want[0], c.name)
		for i, row := range append(slices.Clone(r.Rows), r.all()) {
			want[i+1] = append(want[i+1], c.text(row))
		}
	}
	if !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("rows\n%q, want\n%q", got, want)
	}
	for _, bar := range []string{`100% 100%">5s<`, `30% 100%">1.5s<`, `100% 100%">4s<`, `0% 100%">0s<`, `100% 100%">3<`} {
		if !strings.Contains(text, `style="background-size: `+bar) {
			t.Errorf("no bar %s in:\n%s", bar, text)
		}
	}
	for _, note := range append(r.notes(), r.about()) {
		if !strings.Contains(html.UnescapeString(text), "<p>"+note+"</p>") {
			t.Errorf("the page does not say %q", note)
		}
	}
	if len(r.notes()) != 2 {
		t.Errorf("notes %q, want one about rows before a mode, and one about the node that was not read", r.notes())
	}
}

// TestHTMLOfNothing: a report without rows is a page, too.
func TestHTMLOfNothing(t *testing.T) {
	text, err := Report{Nodes: 1, Of: 1}.HTML()
	if err != nil || !strings.Contains(text, `<th scope="row">all</th>`) {
		t.Errorf("%v\n%s", err, text)
	}
}
