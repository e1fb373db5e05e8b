package summary

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/mbcas/mbcas/test/demo/internal/show"
	"github.com/mbcas/mbcas/test/internal/verdict"
)

// The targets.
const (
	reactionSteps = 20
	reactionP50   = 1.5 // seconds
	reactionP99   = 3.0
	staticAtLeast = 100.0 // throttled ms/s
	mbcasBelow    = 20.0
	steadyAtMost  = 2.0   // changes per pod in 5 minutes
	leastLimit    = 100.0 // every pod of the demo declares more
	toNoLimit     = 1.15  // p99 in relation to the run without limits, while CPU is idle
	toStatic      = 1.0 / 5
	hogToNoLimit  = 1.0 / 10
	toldToNoLimit = 1.0
	// reserve is the share of the node that the market does not sell: 10 % of 1600m.
	reserve = 160.0
	// TooBusy is how much CPU, in thousandths of a core, may be in use before the first run, so that the figures
	// can be trusted. An idle cluster uses about 300.
	TooBusy = 600
)

func (s *Summary) checks() []verdict.Check {
	var n *float64
	if len(s.Steps) > 0 {
		n = new(float64(s.Reaction.N))
	}
	checks := []verdict.Check{
		verdict.Above("steps of which each had its limit lowered before", n, "%.0f", reactionSteps-1, ">= 20"),
		verdict.AtMost("load step to kernel quota, p50", s.Reaction.P50, "%.2f s", reactionP50, "<= 1.5 s"),
		verdict.AtMost("load step to kernel quota, p99", s.Reaction.P99, "%.2f s", reactionP99, "<= 3 s"),
		verdict.Above("throttled time in the step, static", s.Throttled.Static, "%.0f ms/s", staticAtLeast, "> 100 ms/s"),
		verdict.Below("throttled time 5 s after the step, mbcas", s.Throttled.MBCAS, "%.1f ms/s", mbcasBelow, "< 20 ms/s"),
		verdict.AtMost("limit changes per pod in 5 min of steady load", s.SteadyChanges, "%.0f", steadyAtMost, "<= 2"),
		verdict.Above("lowest limit of a managed pod", s.MinLimit, "%.0fm", leastLimit-1, ">= 100m"),
		verdict.Above("idle CPU in the step, mbcas", s.IdleInStep, "%.0fm", reserve, "> 160m, the reserve"),
		verdict.Ratio("p99 in the step: mbcas / no limits", s.P99.MBCAS, s.P99.NoLimit, toNoLimit, "<= 1.15"),
		verdict.Ratio("p99 in the step: mbcas / static", s.P99.MBCAS, s.P99.Static, toStatic, "<= 1/5"),
		verdict.Ratio("p99 with the hog: mbcas / no limits", s.Hog.MBCAS, s.Hog.NoLimit, hogToNoLimit, "<= 1/10"),
		verdict.Ratio("p99 with the hog, requests tell importance: mbcas / no limits", s.Told.MBCAS, s.Told.NoLimit, toldToNoLimit, "<= 1"),
	}
	var astray []string
	if s.Restored != nil && !*s.Restored {
		astray = []string{"at least one is not"}
	}
	return append(checks,
		verdict.Never("restore: every pod at its declared limits", s.Restored != nil, astray, "exactly"),
		verdict.Never("requests, memory, witnesses", len(s.Phases) > 0, s.Faults, "never changed"))
}

// Write prints the summary for people.
func (s Summary) Write(out io.Writer) {
	fmt.Fprintf(out, "\nKubernetes %s, cgroup %s; %d resizes accepted, %d refused; limits changed: %s\n\n",
		s.Kubernetes, s.Node.Cgroup, s.Resizes, s.Failed, names(s.ChangesByPod))
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "checkout, p99 in ms\tas declared\twithout limits\tMBCAS\t")
	for _, row := range []struct {
		what string
		l    Latencies
	}{
		{"load steps up, CPU is idle", s.P99},
		{"a hog with a larger request", s.Hog},
		{"a hog, requests tell importance", s.Told},
	} {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t\n", row.what, figure(row.l.Static), figure(row.l.NoLimit), figure(row.l.MBCAS))
	}
	fmt.Fprintf(w, "throttled after the step, ms/s\t%s\t0\t%s\t\n", figure(s.Throttled.Static), figure(s.Throttled.MBCAS))
	w.Flush()
	fmt.Fprintf(out, "(%d ms means no answer in that time: the true figure is larger)\n\n", show.Timeout.Milliseconds())

	verdict.Write(out, s.Checks)
	if s.Busy > TooBusy {
		fmt.Fprintf(out, "\nBefore the first run %d.%d cores were in use by something else: these figures are not those of a quiet machine.\n",
			s.Busy/1000, s.Busy%1000/100)
	}
	if s.Quick {
		fmt.Fprintln(out, "\n--quick: the phases were too short for these figures to count.")
	}
	met, judged := verdict.Count(s.Checks)
	fmt.Fprintf(out, "\n%d of %d targets met\n", met, judged)
	for _, fault := range s.Faults {
		fmt.Fprintln(out, "FAULT:", fault)
	}
}

func figure(v *float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.0f", *v)
}
