package report

import (
	"errors"
	"fmt"
	"io"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/mbcas/mbcas/internal/lab/experiment"
)

// WriteFairness draws as SVG how evenly replicas are served over time, without a coordinator and
// with it, and how many factors it changes in each turn.
func WriteFairness(w io.Writer, off, on experiment.FairnessResult) error {
	last := len(on.Intervals) - 1
	if last < 0 || len(off.Intervals) != len(on.Intervals) {
		return errors.New("report: want two runs of the same length")
	}
	p, q := blank("", "share of what is wanted"), blank("minutes", "factors changed")
	p.Y.Min, p.Y.Max, q.Y.Min, q.Y.Max = 0, 0.1, 0, 1
	for _, x := range []struct {
		to    *plot.Plot
		name  string
		style int
		run   experiment.FairnessResult
		value func(experiment.Interval) float64
	}{
		{p, "best less worst replica, without coordinator", 4, off, func(i experiment.Interval) float64 { return i.Spread }},
		{p, "the same with it", 0, on, func(i experiment.Interval) float64 { return i.Spread }},
		{p, "worst replica, without", 1, off, func(i experiment.Interval) float64 { return i.Worst }},
		{p, "the same with it", 3, on, func(i experiment.Interval) float64 { return i.Worst }},
		{q, "", 3, on, func(i experiment.Interval) float64 { return float64(i.Factors) }},
	} {
		var points plotter.XYs
		for _, i := range x.run.Intervals {
			points = append(points, plotter.XY{X: i.At.Minutes(), Y: x.value(i)})
			x.to.Y.Max = max(x.to.Y.Max, legendRoom*x.value(i))
		}
		line, err := plotter.NewLine(points)
		if err != nil {
			return fmt.Errorf("report: %q: %w", x.name, err)
		}
		line.Color, line.Dashes, line.Width = palette[x.style], dashes[x.style], vg.Points(1.8)
		x.to.Add(line)
		if x.name != "" {
			x.to.Legend.Add(x.name, line)
		}
	}
	svg, err := picture("Evenness over time", fmt.Sprintf("In the end the best replica of a workload has %.3f of what it wants more than the worst one without a coordinator, and %.3f with it.",
		off.Intervals[last].Spread, on.Intervals[last].Spread), p, q)
	if err != nil {
		return err
	}
	_, err = io.WriteString(w, string(svg))
	return err
}

// legendRoom is how much higher than its highest line a picture is, for the legend.
const legendRoom = 1.3
