package stages

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/mbcas/mbcas/test/internal/traffic"
)

// Row is one stage of all steps of a kind; Whole is the step itself.
type Row struct {
	Kind   string  `json:"kind"`
	Stages string  `json:"stages"`
	N      int     `json:"n"`
	P50    float64 `json:"p50_s"`
	P99    float64 `json:"p99_s"`
	Max    float64 `json:"max_s"`
}

// Whole is the row of the time from the step to the kernel.
const Whole = "step to kernel"

// All is the kind of every step.
const All = "all"

// Table has the stages of each kind, then of all kinds. A step without a reaction counts in the
// stages that it left, and not in the whole.
type Table []Row

// Tabulate makes the table of splits, each of the kind of the same place.
func Tabulate(kinds []string, splits []Split) (t Table) {
	seconds := map[[2]string][]float64{}
	var order [][2]string // within a kind, by stage; the whole comes last
	add := func(kind, stages string, s float64) {
		key := [2]string{kind, stages}
		if seconds[key] == nil {
			order = append(order, key)
		}
		seconds[key] = append(seconds[key], s)
	}
	for _, kind := range kindsOf(kinds) {
		from := len(order)
		for i, s := range splits {
			if kind != All && kind != kinds[i] {
				continue
			}
			sum := 0.0
			for _, x := range s.Spans {
				add(kind, x.Stages, x.Seconds)
				sum += x.Seconds
			}
			if s.Open == "" {
				add(kind, Whole, sum)
			}
		}
		slices.SortStableFunc(order[from:], func(a, b [2]string) int { return cmp.Compare(place(a[1]), place(b[1])) })
	}
	for _, key := range order {
		all := seconds[key]
		p50, _ := traffic.Quantile(all, 0.50)
		p99, _ := traffic.Quantile(all, 0.99)
		most, _ := traffic.Quantile(all, 1)
		t = append(t, Row{key[0], key[1], len(all), p50, p99, most})
	}
	return t
}

// place is where a row stands: that of its last stage.
func place(stages string) int {
	all := []Stage{Sampling, Evidence, Publish, Queue, Decide, DryRun, Resize, Kubelet, Whole}
	names := strings.Split(stages, separator)
	return slices.Index(all, Stage(names[len(names)-1]))
}

// kindsOf are the kinds in the order of their first step, then All.
func kindsOf(kinds []string) (order []string) {
	seen := map[string]bool{}
	for _, kind := range kinds {
		if !seen[kind] {
			seen[kind], order = true, append(order, kind)
		}
	}
	if len(order) > 1 {
		order = append(order, All)
	}
	return order
}

// Write prints the table for people.
func (t Table) Write(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "STEP\tSTAGE\tN\tP50 s\tP99 s\tMAX s")
	last := ""
	for _, r := range t {
		kind := r.Kind
		if kind == last {
			kind = ""
		}
		last = r.Kind
		fmt.Fprintf(w, "%s\t%s\t%d\t%.3f\t%.3f\t%.3f\n", kind, r.Stages, r.N, r.P50, r.P99, r.Max)
	}
	w.Flush()
}
