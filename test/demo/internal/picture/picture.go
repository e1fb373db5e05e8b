// Package picture draws the runs of a show one below the other on one axis of time: first the latency
// of the service that matters in all runs, then limits and use of CPU in each.
//
// Promises:
//   - Any set of runs can be drawn, also none: TestDraws.
package picture

import (
	"fmt"
	"image/color"
	"time"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/mbcas/mbcas/test/demo/internal/record"
	"github.com/mbcas/mbcas/test/demo/internal/script"
	"github.com/mbcas/mbcas/test/internal/chart"
)

// Lane is one run and how it is called and coloured.
type Lane struct {
	Title string
	Color color.Color
	Run   record.Run
}

// tick is the time between two figures on the axis of time.
const tick = 20 * time.Second

// Write draws the lanes to path.svg and path.png.
func Write(path string, lanes []Lane) error {
	panels, err := panels(lanes)
	if err != nil {
		return fmt.Errorf("picture: %w", err)
	}
	return chart.Write(path, panels)
}

func panels(lanes []Lane) ([]chart.Panel, error) {
	p, err := latencies(lanes)
	if err != nil {
		return nil, err
	}
	all := []chart.Panel{p}
	for i, l := range lanes {
		p, err := capacity(l, i == len(lanes)-1)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// loaded are the pods that the phase is about.
func loaded(phase string) (service, hog string) {
	if phase == script.WithTold {
		return script.CheckoutTold, script.HogTold
	}
	return script.Checkout, script.Hog
}

// series are the values of the pod that each phase is about; a value that is not ok breaks the line.
func series(r record.Run, of func(phase string) string, value func(record.Sample) (float64, bool)) (lines []plotter.XYs) {
	var line plotter.XYs
	for _, s := range r.Samples {
		if s.App != of(s.Phase) || s.At > r.Script.Length() { // later ones only saw the last requests end
			continue
		}
		v, ok := value(s)
		if !ok {
			if len(line) > 0 {
				lines = append(lines, line)
			}
			line = nil
			continue
		}
		line = append(line, plotter.XY{X: s.At.Seconds(), Y: v})
	}
	if len(line) > 0 {
		lines = append(lines, line)
	}
	return lines
}

func ofService(phase string) string { s, _ := loaded(phase); return s }
func ofHog(phase string) string     { _, h := loaded(phase); return h }

// latencies is the first panel.
func latencies(lanes []Lane) (chart.Panel, error) {
	behind, until := chart.Spans{Named: true}, time.Duration(0)
	if len(lanes) > 0 {
		behind.Spans = spans(lanes[0].Run.Script)
	}
	for _, l := range lanes {
		until = max(until, l.Run.Script.Length())
	}
	p := chart.New("p99 latency of the service that matters, in ms, over 5 s (30,000: no answer)", chart.Tall, until, tick, behind)
	p.Decades(5, 80_000)
	for _, l := range lanes {
		lines := series(l.Run, ofService, func(s record.Sample) (float64, bool) { return max(s.P99, 5), s.P99 > 0 })
		if err := p.Line(l.Title, l.Color, vg.Points(2), false, lines...); err != nil {
			return p, err
		}
	}
	return p, nil
}

// capacity is the panel of one run.
func capacity(l Lane, last bool) (chart.Panel, error) {
	p := chart.New(l.Title+": CPU in cores", chart.Low, l.Run.Script.Length(), tick, chart.Spans{Spans: spans(l.Run.Script)})
	p.Ticks("%v", 0, 0.5, 1, 1.5, 2)
	if last {
		p.X.Label.Text = "seconds"
	}
	for _, x := range []struct {
		name  string
		of    func(string) string
		color color.RGBA
	}{
		{"hog", ofHog, chart.Red}, {"service", ofService, chart.Blue},
	} {
		use := series(l.Run, x.of, func(s record.Sample) (float64, bool) { return float64(s.Use) / 1000, true })
		if err := p.Area(x.name+" uses", chart.Pale(x.color), use...); err != nil {
			return p, err
		}
		limits := series(l.Run, x.of, func(s record.Sample) (float64, bool) { return float64(s.Quota) / 1000, s.Quota > 0 })
		if err := p.Line(x.name+"'s limit", x.color, vg.Points(1.6), true, limits...); err != nil {
			return p, err
		}
	}
	return p, nil
}

// spans are the phases of a script.
func spans(s script.Script) (all []chart.Span) {
	for _, t := range s.Timed() {
		all = append(all, chart.Span{Name: t.Name, From: t.From, To: t.To})
	}
	return all
}
