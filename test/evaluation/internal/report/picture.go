package report

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// A picture has one line for each service under each policy: a dot at the median of p99, a bar for its confidence
// interval, a ring at the worst repeat. Dots of MBCAS are filled.
const (
	pictureWidth = 760
	labelWidth   = 250
	lineHeight   = 22
	headHeight   = 34
	footHeight   = 30
)

// Colours that differ for colour-blind eyes, too (Okabe and Ito 2008).
const (
	ourColor   = "#009e73"
	otherColor = "#555555"
	gridColor  = "#d8d8d8"
)

// Picture draws a situation as SVG; "" where nothing was measured.
func Picture(s Section) string {
	low, high, lines := math.Inf(1), 0.0, 0
	for _, r := range s.Rows {
		for _, x := range r.Services {
			if x.P99.N > 0 {
				low, high = min(low, x.P99.Low, x.P99.Median), max(high, x.P99.Worst)
			}
			lines++
		}
	}
	if high <= 0 {
		return ""
	}
	low = max(low, 0.1)
	from, to := math.Floor(math.Log10(low)*2)/2, math.Ceil(math.Log10(high)*2+0.01)/2
	x := func(ms float64) float64 {
		return labelWidth + (math.Log10(max(ms, low))-from)/(to-from)*(pictureWidth-labelWidth-20)
	}
	height := headHeight + lines*lineHeight + footHeight
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 %d %d"`, pictureWidth, height)
	b.WriteString(` font-family="sans-serif" font-size="12">` + "\n")
	fmt.Fprintf(&b, "<title>%s: p99 of services in ms</title>\n", html.EscapeString(s.Title))
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", pictureWidth, height)
	fmt.Fprintf(&b, `<text x="8" y="20" font-size="14">%s: p99 in ms (left is better)</text>`+"\n",
		html.EscapeString(s.Title))
	bottom := height - footHeight
	for half := from; half <= to+0.01; half += 0.5 {
		ms := math.Pow(10, half)
		fmt.Fprintf(&b, `<line x1="%.1f" y1="%d" x2="%.1[1]f" y2="%[3]d" stroke="%[4]s"/>`,
			x(ms), headHeight-4, bottom, gridColor)
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle">%.2g</text>`+"\n", x(ms), bottom+16, ms)
	}
	y := headHeight + lineHeight/2
	for _, r := range s.Rows {
		color, fill := otherColor, "#ffffff"
		if r.Policy.MBCAS {
			color, fill = ourColor, ourColor
		}
		for _, service := range r.Services {
			name := html.EscapeString(r.Policy.Title + ", " + service.Name)
			fmt.Fprintf(&b, `<text x="8" y="%d" fill="%s">%s</text>`, y+4, color, name)
			if p := service.P99; p.N > 0 {
				fmt.Fprintf(&b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%[2]d" stroke="%[4]s" stroke-width="3"/>`,
					x(p.Low), y, x(p.High), color)
				fmt.Fprintf(&b, `<circle cx="%.1f" cy="%d" r="7" fill="none" stroke="%s" stroke-dasharray="2 2"/>`,
					x(p.Worst), y, color)
				fmt.Fprintf(&b, `<circle cx="%.1f" cy="%d" r="4.5" fill="%s" stroke="%s" stroke-width="2"/>`,
					x(p.Median), y, fill, color)
			} else {
				fmt.Fprintf(&b, `<text x="%d" y="%d" fill="%s">not measured</text>`, labelWidth, y+4, color)
			}
			b.WriteString("\n")
			y += lineHeight
		}
	}
	b.WriteString("</svg>\n")
	return b.String()
}
