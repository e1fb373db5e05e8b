package format

import (
	"fmt"
	"strings"
	"text/tabwriter"
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
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	for _, row := range append([][]string{t.Header}, t.Rows...) {
		if row != nil {
			fmt.Fprintln(w, strings.Join(row, "\t"))
		}
	}
	_ = w.Flush() // a Builder returns no error
	return b.String()
}
