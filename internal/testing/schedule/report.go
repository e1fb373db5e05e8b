package schedule

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/mbcas/mbcas/internal/testing/history"
)

// Report is a campaign in words.
func (c *Campaign) Report() string {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	p("# Random schedules of faults\n")
	p("%d schedules, %d events, %v; %d schedules broke an invariant.\n", c.Schedules, c.Events, c.Took.Round(time.Second), len(c.Failures))
	p("| invariant | | broken by |\n| --- | --- | --- |")
	for i := 1; i < len(history.Invariants); i++ {
		n := 0
		for _, f := range c.Failures {
			if f.Invariant == i {
				n++
			}
		}
		p("| %d | %s | %d |", i, history.Invariants[i], n)
	}
	p("\n| step or fault | times |\n| --- | --- |")
	for _, name := range slices.Sorted(maps.Keys(c.Counts)) {
		p("| `%s` | %d |", name, c.Counts[name])
	}
	p("\n| event | times |\n| --- | --- |")
	for _, kind := range slices.Sorted(maps.Keys(c.Checked)) {
		p("| %s | %d |", kind, c.Checked[kind])
	}
	for _, f := range c.Failures {
		p("\n## Seed %d\n\nInvariant %d: %s\n\n```\n%s```", f.Seed, f.Invariant, f.Text, f.Steps)
	}
	return b.String()
}
