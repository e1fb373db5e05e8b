package figures

import (
	"image/color"
	"time"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/test/internal/chart"
	"github.com/mbcas/mbcas/test/measure/internal/recorder"
	"github.com/mbcas/mbcas/test/measure/internal/script"
)

// charts are the kinds of panels, by the name that scripts use.
var charts = map[string]func(*Facts, *panel) error{
	"latency":  drawLatency,
	"cpu":      drawCPU,
	"replicas": drawReplicas,
	"usage":    drawUsage,
	"quota":    drawQuota,
}

// colors of the runs, the last one first: MBCAS is green.
var colors = []color.RGBA{chart.Green, chart.Grey, chart.Orange}

// panel is one panel while it is drawn.
type panel struct {
	chart.Panel
	run *recorder.Run // of a chart about one run
}

// draw draws the panels of the script below one another to path.svg and path.png.
func (f *Facts) draw(path string) error {
	var all []chart.Panel
	var longest script.Plan
	for _, r := range f.Runs {
		if r.Plan.Length() > longest.Length() {
			longest = r.Plan
		}
	}
	tick := 20 * time.Second
	if longest.Length() > 4*time.Minute {
		tick = time.Minute
	}
	for i, c := range f.Script.Charts {
		behind, height := chart.Spans{Named: i == 0}, chart.Low
		if i == 0 {
			height = chart.Tall
		}
		for _, s := range longest.Phases() {
			behind.Spans = append(behind.Spans, chart.Span{Name: s.Name, From: s.From, To: s.To})
		}
		p := panel{chart.New(c.Title, height, longest.Length(), tick, behind), f.run(c.Run)}
		if i == len(f.Script.Charts)-1 {
			p.X.Label.Text = "seconds"
		}
		if err := charts[c.Kind](f, &p); err != nil {
			return err
		}
		all = append(all, p.Panel)
	}
	return chart.Write(path, all)
}

// lines are the values over time of the workload that each phase is about. A value that is not ok
// interrupts the line.
func lines(
	r *recorder.Run, app func(script.Step) string, value func(recorder.Sample) (float64, bool),
) (all []plotter.XYs) {
	var line plotter.XYs
	end := func() {
		if len(line) > 0 {
			all = append(all, line)
		}
		line = nil
	}
	for _, s := range r.Samples {
		if s.At > r.Plan.Length() || s.App != app(r.Plan.At(max(0, s.At-time.Second/2))) {
			continue
		}
		if v, ok := value(s); ok {
			line = append(line, plotter.XY{X: s.At.Seconds(), Y: v})
		} else {
			end()
		}
	}
	end()
	return all
}

func service(s script.Step) string { return s.Service }
func hog(s script.Step) string     { return s.Hog }

// each draws something for every run, in its colour.
func (f *Facts) each(do func(r *recorder.Run, title string, c color.RGBA) error) error {
	for i, r := range f.Script.Runs {
		if played := f.run(r.Name); played != nil {
			if err := do(played, r.Title, colors[(len(f.Script.Runs)-1-i)%len(colors)]); err != nil {
				return err
			}
		}
	}
	return nil
}

func drawLatency(f *Facts, p *panel) error {
	p.Decades(5, 80_000)
	return f.each(func(r *recorder.Run, title string, c color.RGBA) error {
		p99 := lines(r, service, func(s recorder.Sample) (float64, bool) { return max(s.P99, 5), s.P99 > 0 })
		return p.Line(title, c, vg.Points(2), false, p99...)
	})
}

func drawCPU(_ *Facts, p *panel) error {
	p.Ticks("%v", 0, 0.5, 1, 1.5, 2)
	if p.run == nil {
		return nil
	}
	for _, x := range []struct {
		name  string
		app   func(script.Step) string
		color color.RGBA
	}{{"hog", hog, chart.Red}, {"service", service, chart.Blue}} {
		usage := lines(p.run, x.app, func(s recorder.Sample) (float64, bool) { return s.Usage.Cores(), true })
		if err := p.Area(x.name+": usage", chart.Pale(x.color), usage...); err != nil {
			return err
		}
		limit := lines(p.run, x.app, func(s recorder.Sample) (float64, bool) { return s.Quota.Cores(), s.Quota > 0 })
		if err := p.Line(x.name+": limit", x.color, vg.Points(1.6), true, limit...); err != nil {
			return err
		}
	}
	return nil
}

func drawReplicas(f *Facts, p *panel) error {
	p.Ticks("%.0f", 0, 2, 4, 6, 8, 10)
	return f.each(func(r *recorder.Run, title string, c color.RGBA) error {
		desired := lines(r, service, func(s recorder.Sample) (float64, bool) { return float64(s.Desired), true })
		return p.Line(title, c, vg.Points(2), true, desired...)
	})
}

func drawUsage(f *Facts, p *panel) error {
	p.Ticks("%v", 0, 0.5, 1, 1.5, 2)
	return f.each(func(r *recorder.Run, title string, c color.RGBA) error {
		usage := lines(r, service, func(s recorder.Sample) (float64, bool) { return s.Usage.Cores(), true })
		return p.Area(title, chart.Pale(c), usage...)
	})
}

func drawQuota(f *Facts, p *panel) error {
	p.Ticks("%v", 0, 1, 2, 3, 4)
	if p.run == nil || len(p.run.Node) == 0 || f.Script.Quota == nil {
		return nil
	}
	over := func(value func(recorder.NodeSample) cpu.Milli) (xys plotter.XYs) {
		for _, s := range p.run.Node {
			xys = append(xys, plotter.XY{X: s.At.Seconds(), Y: value(s).Cores()})
		}
		return xys
	}
	mark := f.Script.Quota.Mark()
	all := over(func(s recorder.NodeSample) cpu.Milli { return s.Used })
	if err := p.Area("limits of all pods", chart.Pale(chart.Green), all); err != nil {
		return err
	}
	for _, x := range []struct {
		name  string
		color color.RGBA
		value cpu.Milli
	}{{"the quota", chart.Red, f.Script.Quota.LimitsCPU}, {"without its headroom", chart.Orange, mark}} {
		level := over(func(recorder.NodeSample) cpu.Milli { return x.value })
		if err := p.Line(x.name, x.color, vg.Points(1.2), true, level); err != nil {
			return err
		}
	}
	return nil
}
