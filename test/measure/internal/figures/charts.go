package figures

import (
	"image/color"
	"time"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/test/measure/internal/recorder"
	"github.com/mbcas/mbcas/test/measure/internal/script"
)

// charts are the kinds of panels, by the name that scripts use.
var charts = map[string]func(*Facts, *panel){
	"latency":  drawLatency,
	"cpu":      drawCPU,
	"replicas": drawReplicas,
	"usage":    drawUsage,
	"quota":    drawQuota,
}

// colorOf is the colour of a run: runs of one policy have the same.
func colorOf(r script.Run) color.RGBA {
	switch {
	case r.NoLimits:
		return orange
	case r.Mode == "enforce":
		return green
	}
	return grey
}

// draw draws the panels of the script below one another to path.svg and path.png.
func (f *Facts) draw(path string) error {
	if len(f.Script.Charts) == 0 {
		return nil
	}
	var longest script.Plan
	for _, r := range f.Runs {
		if r.Plan.Length() > longest.Length() {
			longest = r.Plan
		}
	}
	var all []*panel
	for i, c := range f.Script.Charts {
		p := newPanel(c.Title, longest, i == 0)
		p.run = f.run(c.Run)
		if i == len(f.Script.Charts)-1 {
			p.X.Label.Text = "seconds"
		}
		charts[c.Kind](f, p)
		all = append(all, p)
	}
	return write(path, all)
}

// lines are the values over time of the workload that each phase is about. A value that is not ok
// interrupts the line.
func lines(
	r *recorder.Run, app func(script.Step) string, value func(recorder.Sample) (float64, bool),
) (all []plotter.XYs) {
	open := false
	for _, s := range r.Samples {
		if s.At > r.Plan.Length() || s.App != app(r.Plan.At(max(0, s.At-time.Second/2))) {
			continue
		}
		v, ok := value(s)
		if ok && !open {
			all = append(all, nil)
		}
		if open = ok; ok {
			last := &all[len(all)-1]
			*last = append(*last, plotter.XY{X: s.At.Seconds(), Y: v})
		}
	}
	return all
}

func service(s script.Step) string { return s.Service }
func hog(s script.Step) string     { return s.Hog }

func usage(s recorder.Sample) (float64, bool) { return s.Usage.Cores(), true }

// each draws a series for every run: a value of the service that each phase is about.
func (f *Facts) each(p *panel, draw func(color.RGBA) plotter.Line, value func(recorder.Sample) (float64, bool)) {
	for _, r := range f.Script.Runs {
		if played := f.run(r.Name); played != nil {
			p.series(r.Title, draw(colorOf(r)), lines(played, service, value)...)
		}
	}
}

func drawLatency(f *Facts, p *panel) {
	p.decades(5, 80_000)
	f.each(p, line(2), func(s recorder.Sample) (float64, bool) { return max(s.P99, 5), s.P99 > 0 })
}

func drawCPU(_ *Facts, p *panel) {
	p.ticks("%v", 0, 0.5, 1, 1.5, 2)
	if p.run == nil {
		return
	}
	for _, x := range []struct {
		name  string
		app   func(script.Step) string
		color color.RGBA
	}{{"hog", hog, red}, {"service", service, blue}} {
		p.series(x.name+": usage", area(x.color), lines(p.run, x.app, usage)...)
		limit := func(s recorder.Sample) (float64, bool) { return s.Quota.Cores(), s.Quota > 0 }
		p.series(x.name+": limit", steps(1.6)(x.color), lines(p.run, x.app, limit)...)
	}
}

func drawReplicas(f *Facts, p *panel) {
	p.ticks("%.0f", 0, 2, 4, 6, 8, 10)
	f.each(p, steps(2), func(s recorder.Sample) (float64, bool) { return float64(s.Desired), true })
}

func drawUsage(f *Facts, p *panel) {
	p.ticks("%v", 0, 0.5, 1, 1.5, 2)
	f.each(p, area, usage)
}

func drawQuota(f *Facts, p *panel) {
	p.ticks("%v", 0, 1, 2, 3, 4)
	if p.run == nil || len(p.run.Node) == 0 || f.Script.Quota == nil {
		return
	}
	quota := f.Script.Quota
	for _, x := range []struct {
		name  string
		style plotter.Line
		value func(recorder.NodeSample) cpu.Milli
	}{
		{"limits of all pods", area(green), func(s recorder.NodeSample) cpu.Milli { return s.Used }},
		{"the quota", steps(1.2)(red), func(recorder.NodeSample) cpu.Milli { return quota.LimitsCPU }},
		{"without its headroom", steps(1.2)(orange), func(recorder.NodeSample) cpu.Milli { return quota.Mark() }},
	} {
		var xys plotter.XYs
		for _, s := range p.run.Node {
			xys = append(xys, plotter.XY{X: s.At.Seconds(), Y: x.value(s).Cores()})
		}
		p.series(x.name, x.style, xys)
	}
}

// line is a style of a width in points, by colour. With steps each value extends to the next.
func line(width float64) func(color.RGBA) plotter.Line {
	return func(c color.RGBA) (l plotter.Line) {
		l.Color, l.Width = c, vg.Points(width)
		return l
	}
}

func steps(width float64) func(color.RGBA) plotter.Line {
	return func(c color.RGBA) plotter.Line {
		l := line(width)(c)
		l.StepStyle = plotter.PreStep
		return l
	}
}

// area is filled below the line, with a transparent colour.
func area(c color.RGBA) plotter.Line {
	return plotter.Line{FillColor: color.NRGBA{c.R, c.G, c.B, 0x3c}}
}
