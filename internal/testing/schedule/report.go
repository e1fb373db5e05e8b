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
	broken := map[int]int{}
	for _, f := range c.Failures {
		broken[f.Invariant]++
	}
	invariants(&b, "broken by", broken)
	counts(&b, "step or fault", c.Counts)
	counts(&b, "event", c.Checked)
	for _, f := range c.Failures {
		p("\n## Seed %d\n\nInvariant %d: %s\n\n```\n%s```", f.Seed, f.Invariant, f.Text, f.Steps)
	}
	return b.String()
}

// invariants is a table of how often each is broken.
func invariants(b *strings.Builder, head string, broken map[int]int) {
	fmt.Fprintf(b, "| invariant | | %s |\n| --- | --- | --- |\n", head)
	for i, invariant := range history.Invariants {
		if invariant == "" {
			continue
		}
		fmt.Fprintf(b, "| %d | %s | %d |\n", i, invariant, broken[i])
	}
}

// counts is a table of how often each thing was.
func counts[K ~string](b *strings.Builder, head string, of map[K]int) {
	fmt.Fprintf(b, "\n| %s | times |\n| --- | --- |\n", head)
	for _, name := range slices.Sorted(maps.Keys(of)) {
		fmt.Fprintf(b, "| `%s` | %d |\n", name, of[name])
	}
}

// Report is a soak in words.
func (r *SoakResult) Report() string {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	load := "generated load (no recorded traces were given)"
	if n := len(r.Traces); n > 0 {
		load = fmt.Sprintf("the load of %d recorded traces", n)
	}
	p("# Soak\n")
	p("%v on the clock of the test, %d nodes, %d pods, %s, seed %d: %d events, %.0f pod minutes, %d resizes, %d pods that came or went.\n",
		r.Length, r.Nodes, r.Pods, load, r.Seed, len(r.Events), r.PodMinutes, r.Writes.Resizes, r.Writes.Moves)
	broken := map[int]int{}
	for _, v := range r.Violations {
		broken[v.Invariant]++
	}
	invariants(&b, "broken", broken)
	p("\n| writes of MBCAS | all | beyond changes of limits and pods |\n| --- | --- | --- |")
	for _, kind := range slices.Sorted(maps.Keys(r.Writes.Kinds)) {
		p("| %s | %d | %d |", kind, r.Writes.Kinds[kind], r.Writes.Beyond[kind])
	}
	p("\nBeyond: %.4f per pod and minute. What the records beyond say:\n", r.Beyond())
	for _, why := range slices.Sorted(maps.Keys(r.Writes.Why)) {
		p("- %s: %d", why, r.Writes.Why[why])
	}
	counts(&b, "trouble", r.Counts)
	counts(&b, "requests of agents", r.Requests)
	p("\nLeft in the controller's memory after all pods are gone, beyond what was there before the first:\n")
	for _, path := range slices.Sorted(maps.Keys(r.After)) {
		if more := r.After[path] - r.Before[path]; more > 0 {
			p("- %s: %d", path, more)
		}
	}
	p("- ledgers: at most %d entries in one", r.Ledgered)
	for _, v := range r.Violations {
		p("\n%s: %v", r.Events[v.Event].At.Format("15:04:05"), v)
	}
	return b.String()
}

// Beyond is how many writes per pod and minute were neither changes of limits nor of pods.
func (r *SoakResult) Beyond() float64 { return float64(r.Writes.Total()) / r.PodMinutes }
