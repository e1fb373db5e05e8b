// Package verdict compares figures with targets. A figure that was not measured meets none.
//
// Promises:
//   - A figure that was not measured has no verdict, and says so: TestUnmeasured.
//   - Bounds are inclusive: TestBounds.
package verdict

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// Check is one target.
type Check struct {
	What   string `json:"what"`
	Got    string `json:"got"`
	Target string `json:"target"`
	// Met is null where the figure was not measured.
	Met *bool `json:"met"`
}

// unmeasured is what a check says without a figure.
const unmeasured = "not measured"

// AtMost is met by a figure that is no larger than the target; nil: not measured.
func AtMost(what string, got *float64, form string, target float64, how string) Check {
	return judge(what, got, form, how, func(v float64) bool { return v <= target })
}

// Below is met by a figure that is smaller than the target.
func Below(what string, got *float64, form string, target float64, how string) Check {
	return judge(what, got, form, how, func(v float64) bool { return v < target })
}

// Above is met by a figure that is larger than the target.
func Above(what string, got *float64, form string, target float64, how string) Check {
	return judge(what, got, form, how, func(v float64) bool { return v > target })
}

func judge(what string, got *float64, form, how string, met func(float64) bool) Check {
	c := Check{What: what, Got: unmeasured, Target: how}
	if got != nil {
		c.Got, c.Met = fmt.Sprintf(form, *got), new(met(*got))
	}
	return c
}

// Ratio is met where a is at most the target times b, both in milliseconds.
func Ratio(what string, a, b *float64, target float64, how string) Check {
	if a == nil || b == nil || *b == 0 {
		return Check{What: what, Got: unmeasured, Target: how}
	}
	c := AtMost(what, new(*a / *b), "%.3f", target, how)
	c.Got += fmt.Sprintf(" (%.0f / %.0f ms)", *a, *b)
	return c
}

// Never is met where nothing is listed of what must not happen; measured says whether it would have been seen.
func Never(what string, measured bool, faults []string, how string) Check {
	c := Check{What: what, Got: unmeasured, Target: how}
	if !measured {
		return c
	}
	c.Met, c.Got = new(len(faults) == 0), how
	if len(faults) > 0 {
		c.Got = fmt.Sprintf("%d times, first: %s", len(faults), faults[0])
	}
	return c
}

// Write prints the checks as a table, and how many are met.
func Write(out io.Writer, checks []Check) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TARGET\tWANTED\tMEASURED\tMET")
	for _, c := range checks {
		met := "-"
		if c.Met != nil {
			met = map[bool]string{true: "yes", false: "NO"}[*c.Met]
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", c.What, c.Target, c.Got, met)
	}
	w.Flush()
}

// Count is how many checks are met, of those that were judged.
func Count(checks []Check) (met, judged int) {
	for _, c := range checks {
		if c.Met != nil {
			judged++
			if *c.Met {
				met++
			}
		}
	}
	return met, judged
}
