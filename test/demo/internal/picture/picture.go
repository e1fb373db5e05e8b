// Package picture draws the runs of a show one below the other on one axis of time: first the latency
// of the service that matters in all runs, then limits and use of CPU in each.
//
// Promises:
//   - Any set of runs can be drawn, also none: TestDraws.
package picture

import (
	"fmt"
	"image/color"
	"os"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/mbcas/mbcas/test/demo/internal/record"
	"github.com/mbcas/mbcas/test/demo/internal/script"
)

// Lane is one run and how it is called and coloured.
type Lane struct {
	Title string
	Color color.Color
	Run   record.Run
}

// Colours that differ for colour-blind eyes, too (Okabe and Ito).
var (
	Grey   = color.RGBA{0x8a, 0x8a, 0x8a, 0xff}
	Orange = color.RGBA{0xe6, 0x9f, 0x00, 0xff}
	Green  = color.RGBA{0x00, 0x9e, 0x73, 0xff}

	blue      = color.RGBA{0x00, 0x72, 0xb2, 0xff}
	red       = color.RGBA{0xd5, 0x5e, 0x00, 0xff}
	faint     = color.RGBA{0xe4, 0xe4, 0xe4, 0xff}
	shade     = color.RGBA{0xf4, 0xf5, 0xf7, 0xff}
	dark      = color.RGBA{0x33, 0x33, 0x33, 0xff}
	paleBlue  = color.NRGBA{0x00, 0x72, 0xb2, 0x40}
	paleRed   = color.NRGBA{0xd5, 0x5e, 0x00, 0x38}
	pageColor = color.White
)

const (
	width     = 26 * vg.Centimeter
	tall      = 8 * vg.Centimeter // the latency
	low       = 4.6 * vg.Centimeter
	margin    = 0.3 * vg.Centimeter
	aside     = 4.4 * vg.Centimeter // for the legends
	gap       = 0.3 * vg.Centimeter
	dpi       = 110
	cores     = 2.05 // height of the panels of CPU
	latencyTo = 80_000
)

// Write draws the lanes to path.svg and path.png.
func Write(path string, lanes []Lane) error {
	panels, err := panels(lanes)
	if err != nil {
		return fmt.Errorf("picture: %w", err)
	}
	height := tall + low*vg.Length(len(panels)-1) + 2*margin
	svg := vgsvg.New(width, height)
	compose(draw.New(svg), panels)
	png := vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(dpi))
	compose(draw.New(png), panels)
	return errorsFirst(
		save(path+".svg", func(f *os.File) error { _, err := svg.WriteTo(f); return err }),
		save(path+".png", func(f *os.File) error { _, err := (vgimg.PngCanvas{Canvas: png}).WriteTo(f); return err }),
	)
}

func errorsFirst(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return fmt.Errorf("picture: %w", err)
		}
	}
	return nil
}

func save(path string, write func(*os.File) error) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := write(f); err != nil {
		return err
	}
	return f.Close()
}

// compose puts the panels below one another, with their axes of time in line.
func compose(c draw.Canvas, panels []panel) {
	c.SetColor(pageColor)
	c.Fill(c.Rectangle.Path())
	inner := draw.Crop(c, margin, -margin, margin, -margin)
	tiles := make([]draw.Canvas, len(panels))
	top := inner.Max.Y
	for i, p := range panels {
		h := low
		if i == 0 {
			h = tall
		}
		tiles[i] = draw.Canvas{Canvas: inner.Canvas, Rectangle: vg.Rectangle{
			Min: vg.Point{X: inner.Min.X, Y: top - h}, Max: vg.Point{X: inner.Max.X - aside, Y: top},
		}}
		top -= h
		beside := tiles[i]
		beside.Min.X, beside.Max.X = tiles[i].Max.X+gap, inner.Max.X
		beside.Max.Y -= vg.Points(20) // below the title
		p.legend.Draw(beside)
	}
	left := vg.Length(0)
	for i, p := range panels {
		left = max(left, p.DataCanvas(tiles[i]).Min.X-tiles[i].Min.X)
	}
	for i, p := range panels {
		has := p.DataCanvas(tiles[i]).Min.X - tiles[i].Min.X
		p.Draw(draw.Crop(tiles[i], left-has, 0, 0, 0))
	}
}

// panel is a plot with its legend, which stands beside it.
type panel struct {
	*plot.Plot
	legend plot.Legend
}

func panels(lanes []Lane) ([]panel, error) {
	p, err := latencies(lanes)
	if err != nil {
		return nil, err
	}
	all := []panel{p}
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
func latencies(lanes []Lane) (panel, error) {
	names := phases{named: true}
	if len(lanes) > 0 {
		names.script = lanes[0].Run.Script
	}
	p := blank(lanes, names)
	p.Title.Text = "p99 latency of the service that matters, in ms, over 5 s (30,000: no answer)"
	p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.ConstantTicks(decades())
	p.Y.Min, p.Y.Max = 5, latencyTo
	for _, l := range lanes {
		for i, line := range series(l.Run, ofService, func(s record.Sample) (float64, bool) { return max(s.P99, 5), s.P99 > 0 }) {
			drawn, err := plotter.NewLine(line)
			if err != nil {
				return p, err
			}
			drawn.Color, drawn.Width = l.Color, vg.Points(2)
			p.Add(drawn)
			if i == 0 {
				p.legend.Add(l.Title, drawn)
			}
		}
	}
	return p, nil
}

// capacity is the panel of one run.
func capacity(l Lane, last bool) (panel, error) {
	p := blank([]Lane{l}, phases{script: l.Run.Script})
	p.Title.Text = l.Title + ": CPU in cores"
	p.Y.Min, p.Y.Max = 0, cores
	p.Y.Tick.Marker = plot.ConstantTicks{{Value: 0, Label: "0"}, {Value: 0.5, Label: "0.5"}, {Value: 1, Label: "1"}, {Value: 1.5, Label: "1.5"}, {Value: 2, Label: "2"}}
	if last {
		p.X.Label.Text = "seconds"
	}
	for _, x := range []struct {
		name       string
		of         func(string) string
		line, fill color.Color
	}{
		{"hog", ofHog, red, paleRed},
		{"service", ofService, blue, paleBlue},
	} {
		use := series(l.Run, x.of, func(s record.Sample) (float64, bool) { return float64(s.Use) / 1000, true })
		for i, line := range use {
			area, err := plotter.NewPolygon(under(line))
			if err != nil {
				return p, err
			}
			area.Color, area.LineStyle.Width = x.fill, 0
			p.Add(area)
			if i == 0 {
				p.legend.Add(x.name+" uses", area)
			}
		}
		limits := series(l.Run, x.of, func(s record.Sample) (float64, bool) { return float64(s.Quota) / 1000, s.Quota > 0 })
		for i, line := range limits {
			drawn, err := plotter.NewLine(line)
			if err != nil {
				return p, err
			}
			drawn.Color, drawn.Width, drawn.StepStyle = x.line, vg.Points(1.6), plotter.PreStep
			p.Add(drawn)
			if i == 0 {
				p.legend.Add(x.name+"'s limit", drawn)
			}
		}
	}
	return p, nil
}

// under is the area below a line.
func under(line plotter.XYs) plotter.XYs {
	area := append(plotter.XYs{{X: line[0].X, Y: 0}}, line...)
	return append(area, plotter.XY{X: line[len(line)-1].X, Y: 0})
}

// blank is a panel without data.
func blank(lanes []Lane, behind phases) panel {
	p := panel{plot.New(), plot.NewLegend()}
	p.BackgroundColor = color.Transparent
	sans := font.Font{Typeface: "Liberation", Variant: "Sans"}
	for _, style := range []*text.Style{
		&p.Title.TextStyle, &p.X.Label.TextStyle, &p.Y.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label, &p.legend.TextStyle,
	} {
		style.Font.Typeface, style.Font.Variant = sans.Typeface, sans.Variant
		style.Font.Size, style.Color = vg.Points(9), dark
	}
	p.Title.TextStyle.Font.Size, p.Title.TextStyle.Font.Weight = vg.Points(10.5), 2
	p.Title.TextStyle.XAlign = draw.XCenter
	p.Title.Padding = vg.Points(4)
	p.legend.Top, p.legend.Left = true, true
	p.legend.ThumbnailWidth = vg.Points(16)
	p.legend.Padding = vg.Points(3)
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.LineStyle.Color, axis.Tick.LineStyle.Color = faint, faint
	}
	p.X.Min, p.X.Max = 0, 1
	for _, l := range lanes {
		p.X.Max = max(p.X.Max, l.Run.Script.Length().Seconds())
	}
	p.X.Tick.Marker = plot.TickerFunc(func(from, to float64) (ticks []plot.Tick) {
		for t := 0.0; t <= to; t += 20 {
			ticks = append(ticks, plot.Tick{Value: t, Label: fmt.Sprintf("%.0f", t)})
		}
		return ticks
	})
	p.Add(behind)
	grid := plotter.NewGrid()
	grid.Vertical.Width = 0
	grid.Horizontal.Color = faint
	p.Add(grid)
	return p
}

func decades() []plot.Tick {
	var ticks []plot.Tick
	for _, ms := range []float64{10, 30, 100, 300, 1000, 3000, 10000, 30000} {
		ticks = append(ticks, plot.Tick{Value: ms, Label: fmt.Sprintf("%.0f", ms)})
	}
	return ticks
}

// phases shades every second phase, and names them.
type phases struct {
	script script.Script
	named  bool
}

// Plot implements plot.Plotter.
func (p phases) Plot(c draw.Canvas, plt *plot.Plot) {
	x, _ := plt.Transforms(&c)
	for i, t := range p.script.Timed() {
		from, to := x(t.From.Seconds()), x(t.To.Seconds())
		if i%2 == 1 {
			c.FillPolygon(shade, []vg.Point{{X: from, Y: c.Min.Y}, {X: to, Y: c.Min.Y}, {X: to, Y: c.Max.Y}, {X: from, Y: c.Max.Y}})
		}
		if p.named {
			style := plt.X.Tick.Label
			style.XAlign, style.YAlign = draw.XCenter, draw.YTop
			c.FillText(style, vg.Point{X: (from + to) / 2, Y: c.Max.Y - vg.Points(3)}, t.Name)
		}
	}
}
