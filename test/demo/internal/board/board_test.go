package board

import (
	"strings"
	"testing"
	"time"

	"github.com/mbcas/mbcas/test/demo/internal/record"
)

var samples = []record.Sample{{App: "checkout", Request: 100, Limit: 500, Quota: 500, Use: 123, Throttled: 45.6, P50: 9.4, P99: 88.8}}

func TestPlainLinesAreRare(t *testing.T) {
	var out strings.Builder
	b := Board{Out: &out, PlainEvery: 10 * time.Second}
	for s := range 20 {
		phase := "base"
		if s >= 15 {
			phase = "step up"
		}
		b.Show("static", phase, time.Duration(s)*time.Second, time.Minute, samples)
	}
	if n := strings.Count(out.String(), "run static"); n != 3 { // at 0, 10 and when the phase changes
		t.Errorf("%d tables in 20 s, want 3:\n%s", n, &out)
	}
	if strings.Contains(out.String(), "\x1b") {
		t.Error("escape codes where there is no terminal")
	}
	for _, want := range []string{"checkout", "100m", "500m", "123m", "46", "9", "89"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("table lacks %s:\n%s", want, &out)
		}
	}
}

func TestTerminalIsDrawnOver(t *testing.T) {
	var out strings.Builder
	b := Board{Out: &out, Terminal: true}
	b.Show("mbcas", "base", 0, time.Minute, samples)
	lines := strings.Count(out.String(), "\n")
	b.Show("mbcas", "base", time.Second, time.Minute, samples)
	if !strings.Contains(out.String(), "\x1b["+string(rune('0'+lines))+"A") {
		t.Errorf("the second table does not go back over %d lines: %q", lines, out.String())
	}
	b.Say("done")
	before := out.Len()
	b.Show("mbcas", "base", 2*time.Second, time.Minute, samples)
	if strings.Contains(out.String()[before:], "\x1b") {
		t.Error("a line that should stay is drawn over")
	}
}
