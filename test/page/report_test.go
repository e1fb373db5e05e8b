package page_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestReport: axe finds nothing wrong with what `report -o html` writes, in light and dark, and the console has no
// complaint.
func TestReport(t *testing.T) {
	t.Parallel()
	golden, err := os.ReadFile("../../internal/cli/testdata/report-html.txt")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(golden), "\n") // after the command
	file := filepath.Join(t.TempDir(), "report.html")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, scheme := range []string{"light", "dark"} {
		b := browse(t, "file://"+file, scheme)
		want := strings.Count(text, "<tr>") - 2 // without head and sum
		if rows := evaluate[int](b, "document.querySelectorAll('tbody tr').length"); rows != want {
			t.Errorf("%s: %d rows, want %d", scheme, rows, want)
		}
		for _, v := range b.axe() {
			t.Errorf("%s: %s: %s: %+v", scheme, v.ID, v.Help, v.Nodes)
		}
		b.calm()
	}
}
