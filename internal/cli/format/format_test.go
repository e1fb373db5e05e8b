package format

import (
	"strings"
	"testing"
)

// TestWrap: no line is longer than the width, unless one word is, and no word is lost.
func TestWrap(t *testing.T) {
	sentence := strings.Repeat("The limit is 100m. ", 20) + strings.Repeat("x", 50)
	got := Wrap(sentence, 40)
	if flat := OneLine(got); flat != OneLine(sentence) {
		t.Errorf("words changed: %q", flat)
	}
	for i, line := range strings.Split(strings.TrimSuffix(got, "\n"), "\n") {
		if len(line) > 40 && strings.Contains(strings.TrimSpace(line), " ") || i > 0 && !strings.HasPrefix(line, "  ") {
			t.Errorf("line %d: %q", i, line)
		}
	}
}

// TestLists: lists of no, one, some and many names.
func TestLists(t *testing.T) {
	for _, c := range []struct {
		names     []string
		join, few string
	}{
		{nil, "", ""},
		{[]string{"a"}, "a", "a"},
		{[]string{"a", "b"}, "a and b", "a, b"},
		{[]string{"a", "b", "c", "d", "e"}, "a, b, c, d and e", "a, b, c and 2 more"},
	} {
		if join, few := Join(c.names), Few(c.names); join != c.join || few != c.few {
			t.Errorf("%v: %q and %q, want %q and %q", c.names, join, few, c.join, c.few)
		}
	}
}

// TestTable: a terminal that is too narrow gets fewer columns, in the order of Drop, and a line that names them; color
// changes no character.
func TestTable(t *testing.T) {
	table := func() *Table {
		return &Table{
			Header: []string{"POD", "LIMIT", "PHASE", "NOTE"}, Drop: []string{"NOTE", "LIMIT"},
			Rows: [][]string{{"cart", "900m", "Failed", "ü"}, {"b", "1", "Applied", "-"}},
			Meaning: func(header, cell string) Meaning {
				if header == "PHASE" && cell == "Failed" {
					return Failed
				}
				return Plain
			},
		}
	}
	whole := "POD    LIMIT   PHASE     NOTE\ncart   900m    Failed    ü\nb      1       Applied   -\n"
	for width, want := range map[int]string{
		0:  whole,
		29: whole,
		28: "POD    LIMIT   PHASE\ncart   900m    Failed\nb      1       Applied\nLeft out, the terminal is\n  too narrow: NOTE.\n",
		21: "POD    PHASE\ncart   Failed\nb      Applied\nLeft out, the\n  terminal is too\n  narrow: NOTE,\n  LIMIT.\n",
	} {
		if got := table().Text(Style{Width: width}); got != want {
			t.Errorf("width %d:\n%s\nwant\n%s", width, got, want)
		}
	}
	colored := table().Text(Style{Color: true})
	if !strings.Contains(colored, "900m    \x1b[31mFailed\x1b[0m    ü\n") {
		t.Errorf("colored: %q", colored)
	}
	if plain := strings.NewReplacer("\x1b[31m", "", "\x1b[0m", "").Replace(colored); plain != whole {
		t.Errorf("color changes the text:\n%s", plain)
	}
	if got := (&Table{Rows: [][]string{{"a", "b"}, {"ccc", "d"}}}).String(); got != "a     b\nccc   d\n" {
		t.Errorf("without a header: %q", got)
	}
}

// TestPrintable: what a terminal obeys is replaced, and lines stay.
func TestPrintable(t *testing.T) {
	if got, want := Printable("a\x1b[2Jb\r\n\tc\u009b"), "a\ufffd[2Jb\ufffd\n\tc\ufffd"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
