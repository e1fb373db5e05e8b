package chart

import (
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

func TestDraws(t *testing.T) {
	spans := Spans{Named: true, Spans: []Span{{"before", 0, 10 * time.Second}, {"after", 10 * time.Second, 30 * time.Second}}}
	full := New("Full", Tall, 30*time.Second, 10*time.Second, spans)
	full.Ticks("%.0f", 0, 5, 10)
	line := plotter.XYs{{X: 0, Y: 1}, {X: 10, Y: 9}, {X: 30, Y: 2}}
	if err := full.Area("used", Pale(Blue), line); err != nil {
		t.Fatal(err)
	}
	if err := full.Line("limit", Blue, vg.Points(2), true, line); err != nil {
		t.Fatal(err)
	}
	latency := New("Latency", Low, 30*time.Second, 10*time.Second, Spans{})
	latency.Decades(5, 80000)
	for name, panels := range map[string][]Panel{
		"nothing": nil, "empty": {New("Empty", Low, 0, 0, Spans{})}, "full": {full, latency},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "out", "chart")
			if err := Write(path, panels); err != nil {
				t.Fatal(err)
			}
			f, err := os.Open(path + ".png")
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if _, err := png.Decode(f); err != nil {
				t.Error(err)
			}
			svg, err := os.ReadFile(path + ".svg")
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range panels {
				if !strings.Contains(string(svg), p.Title.Text) {
					t.Errorf("the picture has no panel %q", p.Title.Text)
				}
			}
		})
	}
}
