package figures

import (
	"errors"
	"fmt"
	"image/color"
	"os"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	_ "gonum.org/v1/plot/vg/vgimg" // formats of pictures
	_ "gonum.org/v1/plot/vg/vgsvg"

	"github.com/mbcas/mbcas/test/measure/internal/recorder"
	"github.com/mbcas/mbcas/test/measure/internal/script"
)

// Colours that differ for colour-blind eyes, too (Okabe and Ito).
var (
	grey   = color.RGBA{0x8a, 0x8a, 0x8a, 0xff}
	orange = color.RGBA{0xe6, 0x9f, 0x00, 0xff}
	green  = color.RGBA{0x00, 0x9e, 0x73, 0xff}
	blue   = color.RGBA{0x00, 0x72, 0xb2, 0xff}
	red    = color.RGBA{0xd5, 0x5e, 0x00, 0xff}

	faint = color.RGBA{0xe4, 0xe4, 0xe4, 0xff}
	shade = color.RGBA{0xf4, 0xf5, 0xf7, 0xff}
	dark  = color.RGBA{0x33, 0x33, 0x33, 0xff}
)

const (
	width  = 26 * vg.Centimeter
	height = 5.4 * vg.Centimeter // of a panel
	margin = 0.3 * vg.Centimeter
	aside  = 4.4 * vg.Centimeter // for the legends
)

// panel is a plot over time with a legend beside it.
type panel struct {
	*plot.Plot
	legend plot.Legend
	run    *recorder.Run // of a chart about one run
}

// newPanel is a panel without data over the time of a plan. With names, the phases are named.
func newPanel(title string, plan script.Plan, names bool) *panel {
	p := &panel{Plot: plot.New(), legend: plot.NewLegend()}
	p.BackgroundColor = color.Transparent
	for _, style := range []*text.Style{
		&p.Title.TextStyle, &p.X.Label.TextStyle, &p.Y.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label,
		&p.legend.TextStyle,
	} {
		style.Font.Typeface, style.Font.Variant = "Liberation", "Sans"
		style.Font.Size, style.Color = vg.Points(9), dark
	}
	p.Title.Text, p.Title.Padding = title, vg.Points(4)
	p.Title.TextStyle.Font.Size, p.Title.TextStyle.Font.Weight = vg.Points(10.5), 2
	p.legend.Top, p.legend.Left = true, true
	p.legend.ThumbnailWidth, p.legend.Padding = vg.Points(16), vg.Points(3)
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.LineStyle.Color, axis.Tick.LineStyle.Color = faint, faint
	}
	p.X.Min, p.X.Max = 0, max(1, plan.Length().Seconds())
	every := 20.0
	if plan.Length() > 4*time.Minute {
		every = 60
	}
	var ticks plot.ConstantTicks
	for t := 0.0; t <= p.X.Max; t += every {
		ticks = append(ticks, plot.Tick{Value: t, Label: fmt.Sprintf("%.0f", t)})
	}
	p.X.Tick.Marker = ticks
	p.Add(phases{plan.Phases(), names})
	grid := plotter.NewGrid()
	grid.Vertical.Width, grid.Horizontal.Color = 0, faint
	p.Add(grid)
	return p
}

// ticks puts these values on the axis of values, which goes from the first to just above the last.
func (p *panel) ticks(form string, values ...float64) {
	var ticks plot.ConstantTicks
	for _, v := range values {
		ticks = append(ticks, plot.Tick{Value: v, Label: fmt.Sprintf(form, v)})
	}
	p.Y.Tick.Marker = ticks
	p.Y.Min, p.Y.Max = values[0], values[len(values)-1]*1.025
}

// decades makes the axis one of milliseconds, in powers of ten.
func (p *panel) decades(from, to float64) {
	p.ticks("%.0f", 10, 30, 100, 300, 1000, 3000, 10000, 30000)
	p.Y.Scale = plot.LogScale{}
	p.Y.Min, p.Y.Max = from, to
}

// series draws the lines of one series, which is interrupted where its value is not known.
func (p *panel) series(name string, style plotter.Line, lines ...plotter.XYs) {
	for i, xys := range lines {
		l := style
		l.XYs = xys
		p.Add(&l)
		if i == 0 {
			p.legend.Add(name, &l)
		}
	}
}

// write draws the panels to path.svg and path.png; none where there are none.
func write(path string, panels []*panel) error {
	for _, format := range []string{"svg", "png"} {
		if len(panels) == 0 {
			continue
		}
		picture, err := draw.NewFormattedCanvas(width, height*vg.Length(len(panels)), format)
		if err != nil {
			return err
		}
		compose(draw.New(picture), panels)
		f, err := os.Create(path + "." + format)
		if err != nil {
			return err
		}
		_, err = picture.WriteTo(f)
		if err := errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("picture: %w", err)
		}
	}
	return nil
}

// compose puts the panels below one another, with their axes of time aligned.
func compose(c draw.Canvas, panels []*panel) {
	c.SetColor(color.White)
	c.Fill(c.Rectangle.Path())
	var column [][]*plot.Plot
	for _, p := range panels {
		column = append(column, []*plot.Plot{p.Plot})
	}
	tiles := draw.Tiles{Rows: len(panels), Cols: 1, PadLeft: margin, PadTop: margin, PadBottom: margin, PadY: margin}
	for i, tile := range plot.Align(column, tiles, draw.Crop(c, 0, -aside, 0, 0)) {
		panels[i].Draw(tile[0])
		beside := tile[0]
		beside.Min.X, beside.Max.X = beside.Max.X+margin, c.Max.X
		beside.Max.Y -= vg.Points(20) // below the title
		panels[i].legend.Draw(beside)
	}
}

// phases are drawn behind the series: every second one is shaded. Where they are named, their names
// stand in the panel as far as there is room.
type phases struct {
	all   []script.Step
	named bool
}

// Plot implements plot.Plotter.
func (s phases) Plot(c draw.Canvas, plt *plot.Plot) {
	x, _ := plt.Transforms(&c)
	for i, t := range s.all {
		from, to := x(t.From.Seconds()), x(t.To.Seconds())
		if i%2 == 1 {
			low, high := c.Min.Y, c.Max.Y
			c.FillPolygon(shade, []vg.Point{{X: from, Y: low}, {X: to, Y: low}, {X: to, Y: high}, {X: from, Y: high}})
		}
		style := plt.X.Tick.Label
		style.XAlign, style.YAlign = draw.XCenter, draw.YTop
		if s.named && style.Width(t.Name) <= to-from { // else it would run into its neighbours
			c.FillText(style, vg.Point{X: (from + to) / 2, Y: c.Max.Y - vg.Points(3)}, t.Name)
		}
	}
}
