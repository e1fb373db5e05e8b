package report

import (
	"bytes"
	"fmt"
	"html"
	"html/template"
	"image/color"
	"math"
	"regexp"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Colours that differ for colour-blind eyes, too (Okabe and Ito 2008).
var (
	palette = []color.RGBA{
		{0x00, 0x9e, 0x73, 0xff}, {0x55, 0x55, 0x55, 0xff}, {0xe6, 0x9f, 0x00, 0xff},
		{0x00, 0x72, 0xb2, 0xff}, {0xd5, 0x5e, 0x00, 0xff}, {0xcc, 0x79, 0xa7, 0xff},
	}
	faint = color.RGBA{0xe0, 0xe0, 0xe0, 0xff}
	dark  = color.RGBA{0x22, 0x22, 0x22, 0xff}
)

// Lines differ by dashes as well as by colour.
var dashes = [][]vg.Length{nil, {vg.Points(6), vg.Points(3)}, {vg.Points(2), vg.Points(2)}, {vg.Points(8), vg.Points(2), vg.Points(2), vg.Points(2)}, {vg.Points(12), vg.Points(3)}, {vg.Points(1), vg.Points(3)}}

const (
	width  = 620 // points of a picture
	height = 300
)

// blank is a plot without data in the style of the page.
func blank(x, y string) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = color.Transparent
	p.X.Label.Text, p.Y.Label.Text = x, y
	for _, style := range []*text.Style{&p.Title.TextStyle, &p.X.Label.TextStyle, &p.Y.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label, &p.Legend.TextStyle} {
		style.Font.Typeface, style.Font.Variant = "Liberation", "Sans"
		style.Font.Size, style.Color = vg.Points(11), dark
	}
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.LineStyle.Color, axis.Tick.LineStyle.Color = faint, faint
	}
	p.Legend.Top = true
	p.Legend.ThumbnailWidth = vg.Points(24)
	p.Legend.Padding = vg.Points(2)
	return p
}

var opening = regexp.MustCompile(`(?s)^.*?<svg [^>]*viewBox="([^"]*)"[^>]*>`)

// picture is plots below one another as inline SVG. The title names it, and the description says
// what is to be seen.
func picture(title, description string, plots ...*plot.Plot) (template.HTML, error) {
	tall := vg.Length(height + height/2*(len(plots)-1))
	c := vgsvg.New(width, tall)
	canvas := draw.New(c)
	top := tall
	left := vg.Length(0)
	for _, p := range plots {
		left = max(left, p.DataCanvas(canvas).Min.X)
	}
	for i, p := range plots {
		h := vg.Length(height)
		if i > 0 {
			h = height / 2
		}
		tile := draw.Canvas{Canvas: canvas.Canvas, Rectangle: vg.Rectangle{Min: vg.Point{Y: top - h}, Max: vg.Point{X: width, Y: top}}}
		p.Draw(draw.Crop(tile, left-p.DataCanvas(tile).Min.X, 0, 0, 0))
		top -= h
	}
	var out bytes.Buffer
	if _, err := c.WriteTo(&out); err != nil {
		return "", err
	}
	svg := out.Bytes()
	found := opening.FindSubmatchIndex(svg)
	if found == nil {
		return "", fmt.Errorf("picture %q: the drawing does not begin as SVG does", title)
	}
	head := fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="%s" viewBox="%s"><title>%s</title><desc>%s</desc>`,
		html.EscapeString(title+". "+description), svg[found[2]:found[3]], html.EscapeString(title), html.EscapeString(description))
	return template.HTML(head + string(svg[found[1]:])), nil
}

// decades are ticks at 1, 3, 10, 30 and so on, for an axis with a logarithmic scale.
func decades(from, to float64) []plot.Tick {
	var ticks []plot.Tick
	for e := math.Floor(math.Log10(from)); e <= math.Ceil(math.Log10(to)); e++ {
		for _, m := range []float64{1, 3} {
			if v := m * math.Pow(10, e); v >= from && v <= to {
				ticks = append(ticks, plot.Tick{Value: v, Label: short3(v)})
			}
		}
	}
	return ticks
}

func short3(v float64) string { return fmt.Sprintf("%.3g", v) }
