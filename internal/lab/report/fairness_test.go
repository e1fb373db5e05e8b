package report

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/mbcas/mbcas/internal/lab/experiment"
)

// TestFairnessPicture: well formed, with the figures in words, and nothing is drawn of runs that do
// not match.
func TestFairnessPicture(t *testing.T) {
	run := func(spreads ...float64) (e experiment.FairnessResult) {
		for k, s := range spreads {
			e.Intervals = append(e.Intervals, experiment.Interval{At: time.Duration(k+1) * time.Minute, Spread: s, Worst: 0.2, Factors: 10 - k})
		}
		return e
	}
	var out bytes.Buffer
	if err := WriteFairness(&out, run(0.4, 0.4, 0.4), run(0.4, 0.2, 0.1)); err != nil {
		t.Fatal(err)
	}
	wellFormed(t, out.String())
	if want := "0.400 of what it wants more than the worst one without a coordinator, and 0.100 with it"; !strings.Contains(out.String(), want) {
		t.Errorf("%q is missing in %.500s", want, out.String())
	}
	out.Reset()
	for _, runs := range [][2]experiment.FairnessResult{{}, {run(1), run(1, 1)}} {
		if err := WriteFairness(&out, runs[0], runs[1]); err == nil || out.Len() > 0 {
			t.Errorf("runs of %d and %d intervals are drawn", len(runs[0].Intervals), len(runs[1].Intervals))
		}
	}
}
