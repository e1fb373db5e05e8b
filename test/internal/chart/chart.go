// Package chart draws panels below one another on one axis of time, with their legends beside them.
//
// Promises:
//   - Any panels can be drawn, also none, and also empty ones: TestDraws.
package chart

import (
	"fmt"
	"image/color"
	"os"
	"path/filepath"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Colours that differ for colour-blind eyes, too (Okabe and Ito).
var (
	Grey   = color.RGBA{0x8a, 0x8a, 0x8a, 0xff}
	Orange = color.RGBA{0xe6, 0x9f, 0x00, 0xff}
	Green  = color.RGBA{0x00, 0x9e, 0x73, 0xff}
	Blue   = color.RGBA{0x00, 0x72, 0xb2, 0xff}
	Red    = color.RGBA{0xd5, 0x5e, 0x00, 0xff}

	faint = color.RGBA{0xe4, 0xe4, 0xe4, 0xff}
	shade = color.RGBA{0xf4, 0xf5, 0xf7, 0xff}
	dark  = color.RGBA{0x33, 0x33, 0x33, 0xff}
)

// Pale is a transparent colour.
func Pale(c color.RGBA) color.Color { return color.NRGBA{c.R, c.G, c.B, 0x3c} }

// Heights of panels.
const (
	Tall = 8 * vg.Centimeter
	Low  = 4.6 * vg.Centimeter
)

const (
	width  = 26 * vg.Centimeter
	margin = 0.3 * vg.Centimeter
	aside  = 4.4 * vg.Centimeter // for the legends
	gap    = 0.3 * vg.Centimeter
	dpi    = 110
)

// Panel is a plot with a legend beside it.
type Panel struct {
	*plot.Plot
	height vg.Length
	legend plot.Legend
}

// Span is a part of the time, shaded where it is every second one.
type Span struct {
	Name     string
	From, To time.Duration
}

// Spans are drawn behind the series. Named ones have their names in the panel, where there is room.
type Spans struct {
	Spans []Span
	Named bool
}

// New is a panel without data. Time goes to until, with a tick every so many seconds.
func New(title string, height vg.Length, until, tick time.Duration, behind Spans) Panel {
	p := Panel{plot.New(), height, plot.NewLegend()}
	p.BackgroundColor = color.Transparent
	sans := font.Font{Typeface: "Liberation", Variant: "Sans"}
	for _, style := range []*text.Style{
		&p.Title.TextStyle, &p.X.Label.TextStyle, &p.Y.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label,
		&p.legend.TextStyle,
	} {
		style.Font.Typeface, style.Font.Variant = sans.Typeface, sans.Variant
		style.Font.Size, style.Color = vg.Points(9), dark
	}
	p.Title.Text = title
	p.Title.TextStyle.Font.Size, p.Title.TextStyle.Font.Weight = vg.Points(10.5), 2
	p.Title.TextStyle.XAlign = draw.XCenter
	p.Title.Padding = vg.Points(4)
	p.legend.Top, p.legend.Left = true, true
	p.legend.ThumbnailWidth = vg.Points(16)
	p.legend.Padding = vg.Points(3)
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.LineStyle.Color, axis.Tick.LineStyle.Color = faint, faint
	}
	p.X.Min, p.X.Max = 0, max(1, until.Seconds())
	p.X.Tick.Marker = plot.TickerFunc(func(_, to float64) (ticks []plot.Tick) {
		for t := 0.0; t <= to; t += max(1, tick.Seconds()) {
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

// Ticks puts these values on the axis of values, which goes from the first to just above the last.
func (p *Panel) Ticks(form string, values ...float64) {
	var ticks []plot.Tick
	for _, v := range values {
		ticks = append(ticks, plot.Tick{Value: v, Label: fmt.Sprintf(form, v)})
	}
	p.Y.Tick.Marker = plot.ConstantTicks(ticks)
	p.Y.Min, p.Y.Max = values[0], values[len(values)-1]*1.025
}

// Decades makes the axis one of milliseconds, in powers of ten.
func (p *Panel) Decades(from, to float64) {
	p.Ticks("%.0f", 10, 30, 100, 300, 1000, 3000, 10000, 30000)
	p.Y.Scale = plot.LogScale{}
	p.Y.Min, p.Y.Max = from, to
}

// Line draws the lines of one series, which is interrupted where its value is not known. With steps
// each value extends to the next.
func (p *Panel) Line(name string, c color.Color, width vg.Length, steps bool, lines ...plotter.XYs) error {
	for i, xys := range lines {
		l, err := plotter.NewLine(xys)
		if err != nil {
			return err
		}
		l.Color, l.Width = c, width
		if steps {
			l.StepStyle = plotter.PreStep
		}
		p.Add(l)
		if i == 0 {
			p.legend.Add(name, l)
		}
	}
	return nil
}

// Area fills the area below the lines of one series.
func (p *Panel) Area(name string, c color.Color, lines ...plotter.XYs) error {
	for i, xys := range lines {
		below := append(plotter.XYs{{X: xys[0].X, Y: 0}}, xys...)
		a, err := plotter.NewPolygon(append(below, plotter.XY{X: xys[len(xys)-1].X, Y: 0}))
		if err != nil {
			return err
		}
		a.Color, a.LineStyle.Width = c, 0
		p.Add(a)
		if i == 0 {
			p.legend.Add(name, a)
		}
	}
	return nil
}

// Write draws the panels to path.svg and path.png.
func Write(path string, panels []Panel) error {
	height := 2 * margin
	for _, p := range panels {
		height += p.height
	}
	svg := vgsvg.New(width, height)
	compose(draw.New(svg), panels)
	png := vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(dpi))
	compose(draw.New(png), panels)
	for _, err := range []error{
		save(path+".svg", func(f *os.File) error { _, err := svg.WriteTo(f); return err }),
		save(path+".png", func(f *os.File) error { _, err := (vgimg.PngCanvas{Canvas: png}).WriteTo(f); return err }),
	} {
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

// compose puts the panels below one another and aligns their axes of time.
func compose(c draw.Canvas, panels []Panel) {
	c.SetColor(color.White)
	c.Fill(c.Rectangle.Path())
	inner := draw.Crop(c, margin, -margin, margin, -margin)
	tiles := make([]draw.Canvas, len(panels))
	top := inner.Max.Y
	for i, p := range panels {
		tiles[i] = draw.Canvas{Canvas: inner.Canvas, Rectangle: vg.Rectangle{
			Min: vg.Point{X: inner.Min.X, Y: top - p.height}, Max: vg.Point{X: inner.Max.X - aside, Y: top},
		}}
		top -= p.height
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

// Plot implements plot.Plotter.
func (s Spans) Plot(c draw.Canvas, plt *plot.Plot) {
	x, _ := plt.Transforms(&c)
	for i, t := range s.Spans {
		from, to := x(t.From.Seconds()), x(t.To.Seconds())
		if i%2 == 1 {
			low, high := c.Min.Y, c.Max.Y
			c.FillPolygon(shade, []vg.Point{{X: from, Y: low}, {X: to, Y: low}, {X: to, Y: high}, {X: from, Y: high}})
		}
		if s.Named {
			style := plt.X.Tick.Label
			style.XAlign, style.YAlign = draw.XCenter, draw.YTop
			if style.Width(t.Name) > to-from {
				continue // it would run into its neighbours
			}
			c.FillText(style, vg.Point{X: (from + to) / 2, Y: c.Max.Y - vg.Points(3)}, t.Name)
		}
	}
}
