package figures

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/mbcas/mbcas/test/measure/internal/player"
	"github.com/mbcas/mbcas/test/measure/internal/recorder"
)

// WriteFiles writes summary.json, the samples and the picture into a folder.
func (f *Facts) WriteFiles(folder string, s Summary) error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, "summary.json"), append(text, '\n'), 0o644); err != nil {
		return err
	}
	for name, write := range map[string]func(io.Writer, []*recorder.Run) error{
		"samples.csv": recorder.WriteSamples, "node.csv": recorder.WriteNode,
	} {
		out, err := os.Create(filepath.Join(folder, name))
		if err != nil {
			return err
		}
		if err := write(out, f.Runs); err != nil {
			return err
		}
		if err := out.Close(); err != nil {
			return err
		}
	}
	return f.draw(filepath.Join(folder, f.Script.Name))
}

// Write prints the summary for people.
func (f *Facts) Write(out io.Writer, s Summary) {
	fmt.Fprintf(out, "\n%s\n", f.Script.Title)
	x := s.Setup
	fmt.Fprintf(out, "MBCAS %s, Kubernetes %s, %s, %s, cgroup %s, %d cores, seed %d, %.0f ms of CPU per request\n\n",
		x.MBCAS, s.Kubernetes, x.Runtime, x.Kernel, s.Node.Cgroup, x.Cores, x.Seed, x.RequestMS)
	f.writeSetup(out)
	f.writeRows(out, s)
	f.writeOnsets(out, s)
	if len(s.Stages) > 0 {
		s.Stages.Write(out)
		fmt.Fprintln(out)
	}
	fmt.Fprintf(out, "%d resizes accepted, %d refused\n", s.Resizes, s.Failed)
	for _, p := range s.NewPods {
		fmt.Fprintf(out, "new pod at second %3.0f: %dm free before, Ready after %s s, headroom free after %s s %s\n",
			p.Second, p.Free, number(p.Ready), number(p.FreeAgain), p.Refused)
	}
	fmt.Fprintln(out)
	writeTargets(out, s)
	if s.Busy > TooBusy {
		fmt.Fprintf(out, "\nOther programs used %d.%d cores before the first run; that shows in the latencies.\n",
			s.Busy/1000, s.Busy%1000/100)
	}
	met, of := s.Judged()
	fmt.Fprintf(out, "\n%d of %d targets met\n", met, of)
	for _, n := range s.Notes {
		fmt.Fprintln(out, "note:", n)
	}
	for _, fault := range s.Faults {
		fmt.Fprintln(out, "FAULT:", fault)
	}
}

// writeTargets prints the results, and the targets that only the full version can judge.
func writeTargets(out io.Writer, s Summary) {
	var later []string
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TARGET\tWANTED\tMEASURED\tMET")
	for _, c := range s.Checks {
		met := "-"
		switch {
		case c.Met != nil:
			met = map[bool]string{true: "yes", false: "NO"}[*c.Met]
		case !s.Setup.Full:
			later = append(later, c.Title)
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", c.Title, c.Target, c.Got, met)
	}
	w.Flush()
	if len(later) > 0 {
		fmt.Fprintf(out, "\nonly the full version (FULL=1) measures: %s\n", strings.Join(later, "; "))
	}
}

// writeSetup prints the requests and priorities, which decide every comparison.
func (f *Facts) writeSetup(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "pod\trequest\tdeclared limit\tPriorityClass value\tbudget = request x\t")
	var seen []string
	for _, x := range f.Setup.Workloads {
		if !slices.Contains(seen, x.Name) {
			seen = append(seen, x.Name)
			fmt.Fprintf(w, "%s\t%dm\t%dm\t%d\t%.2f\t\n", x.Name, x.Request, x.Limit, x.Priority, x.Multiplier)
		}
	}
	w.Flush()
	fmt.Fprintln(out)
}

func (f *Facts) writeRows(out io.Writer, s Summary) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "p99 in ms, where nothing else is said\t")
	for _, r := range f.Script.Runs {
		fmt.Fprintf(w, "%s\t", r.Title)
	}
	fmt.Fprintln(w)
	for _, row := range s.Rows {
		fmt.Fprintf(w, "%s\t", row.Title)
		for _, r := range f.Script.Runs {
			fmt.Fprintf(w, "%s\t", number(row.Runs[r.Name]))
		}
		fmt.Fprintln(w)
	}
	w.Flush()
	fmt.Fprintf(out, "%d ms means no answer in that time: the true figure is larger\n\n", player.Timeout.Milliseconds())
}

// writeOnsets prints the first seconds of contention, which are a phase of their own.
func (f *Facts) writeOnsets(out io.Writer, s Summary) {
	figures := map[[2]string]map[string]*float64{} // by phase and service, then by run
	var order [][2]string
	for _, r := range f.Script.Runs {
		for _, x := range s.Onsets[r.Name] {
			key := [2]string{x.Phase, x.Service}
			if figures[key] == nil {
				figures[key], order = map[string]*float64{}, append(order, key)
			}
			figures[key][r.Name] = x.P99
		}
	}
	if len(order) == 0 {
		return
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "p99 in ms, in the first %v of contention\t", recorder.Onset)
	for _, r := range f.Script.Runs {
		fmt.Fprintf(w, "%s\t", r.Title)
	}
	fmt.Fprintln(w)
	for _, key := range order {
		fmt.Fprintf(w, "%s: %s\t", key[0], key[1])
		for _, r := range f.Script.Runs {
			fmt.Fprintf(w, "%s\t", number(figures[key][r.Name]))
		}
		fmt.Fprintln(w)
	}
	w.Flush()
	fmt.Fprintln(out)
}

func number(v *float64) string {
	switch {
	case v == nil:
		return "-"
	case *v < 10:
		return fmt.Sprintf("%.1f", *v)
	}
	return fmt.Sprintf("%.0f", *v)
}
