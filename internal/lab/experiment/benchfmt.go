package experiment

import (
	"bufio"
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
)

// WriteLines writes the outcomes in the Go benchmark format
// (golang.org/design/14313-benchmark-format), one line per run:
//
//	BenchmarkCompare/scenario=contended/policy=mbcas/seed=1 1 41.2 p99-ms 2.9 batch-cores
//
// benchstat -ignore /seed -row /scenario -col /policy takes the seeds as repetitions.
func WriteLines(w io.Writer, r Results) error {
	out := bufio.NewWriter(w)
	fmt.Fprintln(out, "pkg: github.com/mbcas/mbcas/internal/eval")
	fmt.Fprintln(out)
	for _, m := range Measures() {
		if m.Better != Neither {
			fmt.Fprintf(out, "Unit %s better=%s\n", m.Unit, m.Better)
		}
	}
	for _, o := range r.Summaries {
		if len(o.Values) == 0 {
			continue
		}
		fmt.Fprintf(out, "BenchmarkCompare/scenario=%s/policy=%s/seed=%d 1", o.Scenario, o.Policy, o.Seed)
		for _, m := range Measures() {
			if v, ok := o.Values[m.Unit]; ok {
				fmt.Fprintf(out, " %s %s", figure(v), m.Unit)
			}
		}
		fmt.Fprintln(out)
	}
	return out.Flush()
}

// WriteCSV writes one row per run and one column per measure; what says nothing about the run is
// empty.
func WriteCSV(w io.Writer, r Results) error {
	out := csv.NewWriter(w)
	head := []string{"scenario", "policy", "seed"}
	for _, m := range Measures() {
		head = append(head, m.Unit)
	}
	out.Write(head) // an error stays until Flush
	for _, o := range r.Summaries {
		row := []string{o.Scenario, o.Policy, strconv.FormatUint(o.Seed, 10)}
		for _, m := range Measures() {
			text := ""
			if v, ok := o.Values[m.Unit]; ok {
				text = figure(v)
			}
			row = append(row, text)
		}
		out.Write(row)
	}
	out.Flush()
	return out.Error()
}

// figure writes six digits that count, never with an exponent.
func figure(v float64) string {
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 6, 64), 64)
	if err != nil {
		rounded = v
	}
	return strconv.FormatFloat(rounded, 'f', -1, 64)
}
