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
