package cli

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/mbcas/mbcas/internal/lab/experiment"
	"github.com/mbcas/mbcas/internal/testing/must"
)

// TestFairness: text and files, the same on one CPU as in any order on several.
func TestFairness(t *testing.T) {
	dir := t.TempDir()
	args := []string{"fairness", "--nodes", "6", "--length", "60s", "--coordination-interval", "20s"}
	out, err := lab(t, append(args, "--out", dir)...)
	must.Succeed(t, err)
	_, text, _ := strings.Cut(out, "36/36 rounds of nodes\n")
	if !strings.HasPrefix(text, "6 nodes, seed 1: ") || !strings.Contains(text, "with 12 replicas beside 2 to 10 tenants") {
		t.Errorf("it says\n%s", out)
	}
	rows := readCSV(t, filepath.Join(dir, "fairness.csv"))
	if len(rows) != 6 || rows[0]["coordinator"] != "off" || rows[3]["coordinator"] != "on" || rows[4]["factors"] == "0" || rows[1]["factors"] != "0" {
		t.Errorf("fairness.csv: %v", rows)
	}
	if svg, err := os.ReadFile(filepath.Join(dir, "fairness.svg")); err != nil || !bytes.HasPrefix(svg, []byte("<svg ")) {
		t.Errorf("the picture: %v, %.40s", err, svg)
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	other := t.TempDir()
	if again, err := lab(t, append(args, "--out", other)...); err != nil || !strings.HasSuffix(again, text) {
		t.Errorf("on one CPU it says (%v)\n%s\nand not\n%s", err, again, text)
	}
	if content(t, other, "fairness.csv") != content(t, dir, "fairness.csv") {
		t.Error("on one CPU the files differ")
	}
}

func TestFairnessStops(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := labIn(ctx, "fairness", "--nodes", "2", "--length", "30s", "--coordination-interval", "10s"); err == nil || err.Error() != "stopped after 0 of 12 rounds of nodes: context canceled" {
		t.Errorf("stopped: %v", err)
	}
}

// TestFairnessLine: the sentence at the end, from figures that can be checked by hand.
func TestFairnessLine(t *testing.T) {
	run := func(spreads []float64, factors []int) (e experiment.FairnessResult) {
		for k := range spreads {
			e.Intervals = append(e.Intervals, experiment.Interval{
				At: time.Duration(k+1) * time.Minute, Spread: spreads[k], Wide: 2 * spreads[k], Worst: 0.5 - spreads[k], Mean: 0.5, Factors: factors[k],
			})
		}
		return e
	}
	off := run([]float64{0.4, 0.4, 0.4, 0.4}, []int{0, 0, 0, 0})
	for want, on := range map[string]experiment.FairnessResult{
		"In the end the spread is 75% less than without it (0.100 instead of 0.400; in one workload of ten more than 0.200 instead of 0.800), and the worst replica " +
			"has 300% more. All replicas together have +0.0%. It is less than half after round 2. No factor changes after round 2 of 3.\n": run([]float64{0.4, 0.3, 0.1, 0.1}, []int{5, 2, 0, 0}),
		"In the end the spread is 25% less than without it (0.300 instead of 0.400; in one workload of ten more than 0.600 instead of 0.800), and the worst replica " +
			"has 100% more. All replicas together have +0.0%. Factors still change.\n": run([]float64{0.4, 0.3, 0.3, 0.3}, []int{5, 2, 1, 0}),
	} {
		if got := fairnessLine(off, on); got != want {
			t.Errorf("it says\n%s\nwant\n%s", got, want)
		}
	}
}
