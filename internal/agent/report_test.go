package agent

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/mbcas/mbcas/internal/sense"
)

// TestReportTellsStalls: where they are not read the fields are absent, and a pod that is not
// stalled is told as such.
func TestReportTellsStalls(t *testing.T) {
	r := decided(t0, 600)
	text := func() string {
		t.Helper()
		b, err := json.Marshal(report(r))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if s := text(); strings.Contains(s, "memoryPressure") || strings.Contains(s, "ioPressure") {
		t.Errorf("not read, and told: %s", s)
	}
	r.Output.Decisions[0].Stalls = &sense.Stalls{
		Memory: sense.Ratio{Known: true},
		IO:     sense.Ratio{Known: true, Value: 0.875},
	}
	if s := text(); !strings.Contains(s, `"memoryPressure":0,"ioPressure":0.875`) {
		t.Errorf("read, and not told: %s", s)
	}
}
