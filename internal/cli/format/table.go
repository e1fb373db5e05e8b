package format

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// Style is how text may look. The zero value is plain text, as wide as it is.
type Style struct {
	// Width is that of the terminal; 0: unbounded.
	Width int
	Color bool
}

// Meaning is what a cell says beside its words. A color only repeats it.
type Meaning int

// The meanings of cells.
const (
	Plain     Meaning = iota
	Capped            // the price sets the limit, or the node has a price
	Throttled         // the quota stops the pod often
	Failed            // something failed, or is silent
)

// colors are the SGR parameters of ECMA-48 for each meaning.
var colors = map[Meaning]string{Capped: "36", Throttled: "33", Failed: "31"}

// Table writes rows in columns as wide as their widest cell, three spaces apart. The header is
// optional.
type Table struct {
	Header []string
	Rows   [][]string
	// Drop names the columns that a narrow terminal leaves out, the first to go first.
	Drop []string
	// Meaning is that of a cell below a header; nil: all cells are plain.
	Meaning func(header, cell string) Meaning
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

// DropFirst removes the first column.
func (t *Table) DropFirst() {
	t.Header = t.Header[1:]
	for i, row := range t.Rows {
		t.Rows[i] = row[1:]
	}
}

func (t *Table) String() string { return t.Text(Style{}) }

const between = "   "

// Text is the table in a style. Columns that do not fit are left out, and the last line names them.
func (t *Table) Text(s Style) string {
	widths := t.widths()
	shown := make([]bool, len(widths))
	for i := range shown {
		shown[i] = true
	}
	var dropped []string
	for _, name := range t.Drop {
		i := slices.Index(t.Header, name)
		if s.Width == 0 || total(widths, shown) <= s.Width {
			break
		}
		if i >= 0 {
			shown[i] = false
			dropped = append(dropped, name)
		}
	}
	var b strings.Builder
	if t.Header != nil {
		writeRow(&b, t.Header, widths, shown, nil)
	}
	for _, row := range t.Rows {
		writeRow(&b, row, widths, shown, t.painter(s))
	}
	if len(dropped) > 0 {
		b.WriteString(Wrap("Left out, the terminal is too narrow: "+strings.Join(dropped, ", ")+".", s.Width))
	}
	return b.String()
}

// painter colors a cell by its meaning; nil where nothing is colored.
func (t *Table) painter(s Style) func(column int, cell string) string {
	if !s.Color || t.Meaning == nil {
		return nil
	}
	return func(column int, cell string) string {
		if color := colors[t.Meaning(t.Header[column], cell)]; color != "" {
			return "\x1b[" + color + "m" + cell + "\x1b[0m"
		}
		return cell
	}
}

func (t *Table) widths() []int {
	var widths []int
	for _, row := range append([][]string{t.Header}, t.Rows...) {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	return widths
}

func total(widths []int, shown []bool) (sum int) {
	for i, w := range widths {
		if shown[i] {
			sum += w + len(between)
		}
	}
	return sum - len(between)
}

func writeRow(b *strings.Builder, row []string, widths []int, shown []bool, paint func(int, string) string) {
	gap := ""
	for i, cell := range row {
		if !shown[i] {
			continue
		}
		b.WriteString(gap)
		gap = strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)) + between
		if paint != nil {
			cell = paint(i, cell)
		}
		b.WriteString(cell)
	}
	b.WriteByte('\n')
}
