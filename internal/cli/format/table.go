package format

import (
	"strings"
	"unicode/utf8"
)

// Table writes rows in columns as wide as their widest cell, three spaces apart. The header is
// optional.
type Table struct {
	Header []string
	Rows   [][]string
}

// Add appends a row; an empty cell is shown as "-".
func (t *Table) Add(cells ...string) {
	for i := range cells {
		if cells[i] == "" {
			cells[i] = "-"
		}
	}
	t.Rows = append(t.Rows, cells)
}

func (t *Table) String() string {
	all := t.Rows
	if t.Header != nil {
		all = append([][]string{t.Header}, t.Rows...)
	}
	var widths []int
	for _, row := range all {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for _, row := range all {
		for i, cell := range row {
			b.WriteString(cell)
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+3))
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}
