package whatif

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// maxShown is how many pods the text names of those that lose, and of those that gain.
const maxShown = 10

// Text is the comparison as tables and sentences.
func (c Comparison) Text() string {
	var b strings.Builder
	round := func(d time.Duration) time.Duration { return d.Round(100 * time.Millisecond) }
	of := ""
	if c.Asked != "" {
		of = ", that of " + c.Asked + ","
	}
	fmt.Fprintf(&b, "Node %s%s from %s to %s: what the market would have decided on the counters of that time.\n\n", c.Node, of,
		c.From.UTC().Format("2006-01-02 15:04:05"), c.To.UTC().Format("15:04:05 UTC"))
	fmt.Fprintf(&b, "%-34s %12s %12s\n", "", "DECIDED", "CHANGED")
	row := func(what, before, after string) { fmt.Fprintf(&b, "%-34s %12s %12s\n", what, before, after) }
	row("reserve", fmt.Sprintf("%.4g%%", 100*c.Before.Reserve), fmt.Sprintf("%.4g%%", 100*c.After.Reserve))
	row("supply, mean", c.Before.Supply.String(), c.After.Supply.String())
	row("price, mean", fmt.Sprintf("%.3f", c.Before.Price), fmt.Sprintf("%.3f", c.After.Price))
	row(fmt.Sprintf("time with a price, of %v", c.Covered.Round(time.Second)), c.Before.Scarce.Round(time.Second).String(), c.After.Scarce.Round(time.Second).String())
	row("withheld of what pods demand", round(c.Before.Withheld).String(), round(c.After.Withheld).String())
	if len(c.Pods) == 0 {
		b.WriteString("\nNo limit would have been another.\n")
	} else {
		if c.Asked != "" && !slices.ContainsFunc(c.Pods, func(p Pod) bool { return p.Pod == c.Asked }) {
			fmt.Fprintf(&b, "\nThe limit of %s would have been the same. Those of other pods of the node:\n", c.Asked)
		}
		fmt.Fprintf(&b, "\n%-34s %12s %12s %12s %12s\n", "POD", "LIMIT", "CHANGED", "WITHHELD", "CHANGED")
	}
	for i, p := range c.Pods {
		if i >= maxShown && i < len(c.Pods)-maxShown {
			if i == maxShown {
				fmt.Fprintf(&b, "%d more\n", len(c.Pods)-2*maxShown)
			}
			continue
		}
		withheld := round(p.After.Withheld).String()
		if p.After.OptedOut {
			withheld = "-"
		}
		fmt.Fprintf(&b, "%-34s %12s %12s %12s %12s\n", p.Pod, p.Before.Limit, p.After.Limit, round(p.Before.Withheld), withheld)
	}
	b.WriteString("\nLimits are means over the time, as decided: in mode recommend, and until a resize is carried out, the limits in force were\n" +
		"others (explain --at, story). The counters stay as they were: what the pods would have done with these limits is not\n" +
		"played, and looks between rounds are left out of both columns.\n")
	return b.String()
}
