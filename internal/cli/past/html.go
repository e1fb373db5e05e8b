package past

import (
	"fmt"
	"html/template"
	"strings"
)

// page loads nothing and runs nothing. A bar in a cell is its part of the largest value of the column.
var page = template.Must(template.New("report").Parse(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>MBCAS: benefit and cost</title>
<style>
:root { color-scheme: light dark; --bar: #c9dcf5; --line: #767676; }
@media (prefers-color-scheme: dark) { :root { --bar: #24405f; --line: #9a9a9a; } }
body { font: 1rem/1.5 system-ui, sans-serif; margin: 2rem; max-width: 100rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th:first-child, td:nth-child(2), th:nth-child(2) { text-align: left; }
td { background: linear-gradient(var(--bar), var(--bar)) no-repeat right / 0 100%; }
tfoot { font-weight: bold; }
dt { font-weight: bold; }
</style>
</head>
<body>
<main>
<h1>Benefit and cost of MBCAS</h1>
<p>{{.About}}</p>
<div class="scroll" role="region" aria-label="Benefit and cost" tabindex="0">
<table>
<thead><tr><th scope="col">What</th><th scope="col">Mode</th>{{range .Columns}}<th scope="col">{{.Name}}</th>{{end}}</tr></thead>
<tbody>
{{range .Rows}}<tr><th scope="row">{{.Group}}</th><td>{{.Mode}}</td>{{range .Cells}}<td style="background-size: {{.Percent}}% 100%">{{.Text}}</td>{{end}}</tr>
{{end}}</tbody>
<tfoot><tr><th scope="row">{{.Sum.Group}}</th><td></td>{{range .Sum.Cells}}<td>{{.Text}}</td>{{end}}</tr></tfoot>
</table>
</div>
<h2>What the columns mean</h2>
<dl>
{{range .Columns}}<dt>{{.Name}}</dt><dd>{{.Mean}}</dd>
{{end}}</dl>
{{range .Notes}}<p>{{.}}</p>
{{end}}</main>
</body>
</html>
`))

// What page shows.
type (
	pageOf struct {
		About   string
		Columns []pageColumn
		Rows    []pageRow
		Sum     pageRow
		Notes   []string
	}
	pageColumn struct{ Name, Mean string }
	pageRow    struct {
		Group, Mode string
		Cells       []pageCell
	}
	pageCell struct {
		Text    string
		Percent int64
	}
)

// HTML is the report as one file for a browser, with all columns.
func (r Report) HTML() (string, error) {
	p := pageOf{About: r.about(), Notes: r.notes(), Sum: pageRow{Group: r.all().Group}}
	for _, row := range r.Rows {
		p.Rows = append(p.Rows, pageRow{Group: row.Group, Mode: row.Mode})
	}
	for _, c := range columns {
		p.Columns = append(p.Columns, pageColumn{c.name, c.mean})
		most := int64(0)
		for _, row := range r.Rows {
			most = max(most, c.value(row))
		}
		for i, row := range r.Rows {
			cell := pageCell{Text: c.text(row)}
			if most > 0 {
				cell.Percent = 100 * c.value(row) / most
			}
			p.Rows[i].Cells = append(p.Rows[i].Cells, cell)
		}
		p.Sum.Cells = append(p.Sum.Cells, pageCell{Text: c.text(r.all())})
	}
	var b strings.Builder
	if err := page.Execute(&b, p); err != nil {
		return "", fmt.Errorf("write the report as HTML: %w", err)
	}
	return b.String(), nil
}

// value is what the bar of a row shows: a count, or a time in milliseconds.
func (c column) value(r ReportRow) int64 {
	if c.count != nil {
		return int64(c.count(r))
	}
	return c.time(r).Milliseconds()
}
