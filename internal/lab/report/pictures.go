package report

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/mbcas/mbcas/internal/lab/experiment"
	"github.com/mbcas/mbcas/internal/lab/sim"
)

// minMS is the shortest latency that is drawn: the axis is logarithmic.
const minMS = 0.1

// drawFront is the latency of services against the throughput of batch; empty where a scenario has
// not both.
func drawFront(scenario string, points []point) (template.HTML, error) {
	if len(points) < 2 {
		return "", nil
	}
	p := blank("p99 latency of services, ms (left is better)", "batch, cores (up is better)")
	low, high := math.Inf(1), 0.0
	var best, others plotter.XYs
	var bestLabels, otherLabels []string
	var words []string
	for _, x := range points {
		at := plotter.XY{X: max(minMS, x.p99), Y: x.batch}
		low, high = min(low, at.X), max(high, at.X)
		if x.best {
			best, bestLabels = append(best, at), append(bestLabels, fmt.Sprintf("%d %s", x.number, x.policy))
			words = append(words, fmt.Sprintf("%s %s ms and %s cores", x.policy, short(x.p99), short(x.batch)))
		} else {
			others, otherLabels = append(others, at), append(otherLabels, fmt.Sprint(x.number))
		}
	}
	p.X.Scale = plot.LogScale{}
	p.X.Min, p.X.Max = low/1.5, high*2.5
	p.X.Tick.Marker = plot.ConstantTicks(decades(p.X.Min, p.X.Max))
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = faint, faint
	p.Add(grid)
	for _, set := range []struct {
		at     plotter.XYs
		labels []string
		name   string
		color  int
		shape  draw.GlyphDrawer
	}{{others, otherLabels, "others, by number", 1, draw.CrossGlyph{}}, {best, bestLabels, "on the front", 0, draw.CircleGlyph{}}} {
		if len(set.at) == 0 {
			continue
		}
		dots, err := plotter.NewScatter(set.at)
		if err != nil {
			return "", err
		}
		dots.GlyphStyle = draw.GlyphStyle{Color: palette[set.color], Radius: vg.Points(4), Shape: set.shape}
		names, err := plotter.NewLabels(plotter.XYLabels{XYs: set.at, Labels: set.labels})
		if err != nil {
			return "", err
		}
		for i := range names.TextStyle {
			names.TextStyle[i].Font.Typeface, names.TextStyle[i].Font.Variant = "Liberation", "Sans"
			names.TextStyle[i].Font.Size, names.TextStyle[i].Color = vg.Points(10), dark
		}
		names.Offset = vg.Point{X: vg.Points(6), Y: vg.Points(2)}
		p.Add(dots, names)
		p.Legend.Add(set.name, dots)
	}
	p.Legend.Top = false
	return picture(scenario+": latency against throughput", "On the front: "+strings.Join(words, "; ")+".", p)
}

// tailTo is the last share that is drawn of a distribution.
const tailTo = 0.9999

// tailScale stretches the tail: 90 %, 99 % and 99.9 % lie at equal distances.
func tailScale(share float64) float64 { return -math.Log10(1 - min(share, tailTo)) }

// drawTail is the distribution of the latency of services.
func drawTail(r experiment.Results, scenario string) (template.HTML, error) {
	p := blank("latency of services, ms", "share of requests that took at most as long")
	low, high := math.Inf(1), 0.0
	var words []string
	for i, policy := range plottedPolicies(r, scenario, len(palette)) {
		all := new(sim.Latencies)
		for _, o := range r.Select(scenario, policy) {
			if o.Latency != nil {
				all.Merge(o.Latency)
			}
		}
		if all.Count == 0 {
			continue
		}
		line, err := plotter.NewLine(thinned(all.Distribution()))
		if err != nil {
			return "", err
		}
		line.Color, line.Dashes, line.Width = palette[i], dashes[i], vg.Points(1.8)
		low, high = min(low, line.XYs[0].X), max(high, line.XYs[len(line.XYs)-1].X)
		p.Add(line)
		p.Legend.Add(policy, line)
		words = append(words, fmt.Sprintf("%s p50 %s, p99 %s", policy, short(all.Quantile(0.5).Seconds()*1000), short(all.Quantile(0.99).Seconds()*1000)))
	}
	if len(words) == 0 {
		return "", nil
	}
	p.X.Scale = plot.LogScale{}
	p.X.Min, p.X.Max = low, high*1.01
	p.X.Tick.Marker = plot.ConstantTicks(decades(p.X.Min, p.X.Max))
	p.Y.Min, p.Y.Max = 0, tailScale(tailTo)
	p.Y.Tick.Marker = plot.ConstantTicks{
		{Value: 0, Label: "0"}, {Value: tailScale(0.5), Label: "50 %"}, {Value: 1, Label: "90 %"}, {Value: 2, Label: "99 %"}, {Value: 3, Label: "99.9 %"}, {Value: 4, Label: "99.99 %"},
	}
	p.Legend.Top, p.Legend.Left = true, true
	return picture(scenario+": latency of services", "In ms: "+strings.Join(words, "; ")+".", p)
}

// thinned leaves points out that cannot be told apart.
func thinned(points []sim.LatencyPoint) plotter.XYs {
	var line plotter.XYs
	for i, x := range points {
		at := plotter.XY{X: max(minMS, x.At.Seconds()*1000), Y: tailScale(x.Fraction)}
		if n := len(line); n > 0 && i < len(points)-1 && at.Y-line[n-1].Y < 0.02 && at.X < 1.02*line[n-1].X {
			continue
		}
		line = append(line, at)
		if x.Fraction >= tailTo {
			break
		}
	}
	return line
}

// drawSeries is what pods used, what they were limited to, and the price, over time.
func drawSeries(r experiment.Results, scenario, policy string) (template.HTML, error) {
	var s *experiment.Series
	for _, o := range r.Select(scenario, policy) {
		if o.Series != nil {
			s = o.Series
			break
		}
	}
	if s == nil || len(s.Idle) == 0 {
		return "", nil
	}
	p := blank("seconds", "cores")
	p.Title.Text = policy + ": limits (thick) and use (thin)"
	p.X.Min, p.X.Max = 0, s.Step*float64(len(s.Idle))
	p.Y.Min, p.Y.Max = 0, 0.1
	var words []string
	for i, pod := range s.Pods {
		changes := 0
		for k := 1; k < len(pod.Limit); k++ {
			if pod.Limit[k] != pod.Limit[k-1] {
				changes++
			}
		}
		words = append(words, fmt.Sprintf("the limit of %s (%s) takes %d steps", pod.Pod, pod.Role, changes))
		for j, values := range [][]float64{pod.Usage, pod.Limit} {
			for l, xys := range segments(values, s.Step, j == 1) {
				line, err := plotter.NewLine(xys)
				if err != nil {
					return "", err
				}
				line.Color, line.Width = palette[(i+3)%len(palette)], vg.Points(0.7)
				if j == 1 {
					line.StepStyle, line.Width, line.Dashes = plotter.PreStep, vg.Points(2), dashes[i]
				}
				for _, xy := range xys {
					p.Y.Max = max(p.Y.Max, 1.05*xy.Y)
				}
				p.Add(line)
				if l == 0 && j == 1 {
					p.Legend.Add(pod.Pod, line)
				} else if l == 0 && !slices.ContainsFunc(pod.Limit, func(l float64) bool { return l > 0 }) {
					p.Legend.Add(pod.Pod+" (no limit)", line)
				}
			}
		}
	}
	p.Legend.Left = true
	p.Y.Max = min(p.Y.Max, 1.05*s.Cores)
	plots := []*plot.Plot{p}
	if len(s.Price) > 0 {
		q := blank("seconds", "price")
		q.X.Min, q.X.Max = p.X.Min, p.X.Max
		line, err := plotter.NewLine(segments(s.Price, s.Step, false)[0])
		if err != nil {
			return "", err
		}
		line.Color, line.Width = dark, vg.Points(1.2)
		q.Add(line)
		q.Y.Min = 0
		p.X.Label.Text = ""
		plots = append(plots, q)
	}
	return picture(fmt.Sprintf("%s under %s: limits, use and price over time", scenario, policy), strings.Join(words, "; ")+".", plots...)
}

// segments are the lines of a figure over time; it has gaps where the pod does not run, or has no
// limit.
func segments(values []float64, step float64, skipZero bool) []plotter.XYs {
	var lines []plotter.XYs
	open := false
	for k, v := range values {
		if v < 0 || skipZero && v == 0 {
			open = false
			continue
		}
		if !open {
			lines, open = append(lines, nil), true
		}
		last := len(lines) - 1
		lines[last] = append(lines[last], plotter.XY{X: step * (float64(k) + 1), Y: v})
	}
	return lines
}
