// Package progress prints one line for each second of a run: the same for a run in the simulator
// and on a real node.
package progress

import (
	"fmt"
	"io"
	"time"

	"github.com/mbcas/mbcas/cpu"
)

// Line is one second.
type Line struct {
	At           time.Duration
	Phase        string
	Latencies    []string // of the service that the phase is about
	Price        string   // of the last published decision: one is published when a limit changes
	Replicas     int      // of the service
	Service, Hog Pod
	Left         time.Duration // 0: not known
}

// Pod is the limit and the usage of a pod.
type Pod struct {
	Limit cpu.Milli // 0: none
	Usage cpu.Milli
}

// Table is the lines under one head.
type Table struct {
	Latencies []string // heads of the latencies

	lines int
}

// headEvery is how many lines stand under a head.
const headEvery = 15

// Print prints a line, and a head where it is due.
func (t *Table) Print(out io.Writer, l Line) {
	if t.lines%headEvery == 0 {
		fmt.Fprintf(out, "\n%6s  %-20s", "second", "phase")
		for _, head := range t.Latencies {
			fmt.Fprintf(out, "  %12s", head)
		}
		fmt.Fprintf(out, "  %10s  %22s  %14s", "last price", "service: limit, usage", "hog: both")
		if l.Left > 0 {
			fmt.Fprintf(out, "  (%v left)", l.Left.Round(10*time.Second))
		}
		fmt.Fprintln(out)
	}
	t.lines++
	fmt.Fprintf(out, "%6.0f  %-20s", l.At.Seconds(), l.Phase)
	for _, x := range l.Latencies {
		fmt.Fprintf(out, "  %12s", x)
	}
	service := l.Service.String()
	if l.Replicas > 1 {
		service = fmt.Sprintf("%d x %s", l.Replicas, service)
	}
	fmt.Fprintf(out, "  %10s  %22s  %14s\n", l.Price, service, l.Hog)
}

// String is the limit and the usage; nothing for a pod that has neither.
func (p Pod) String() string {
	switch {
	case p == Pod{}:
		return "-"
	case p.Limit == 0:
		return fmt.Sprintf("none %6v", p.Usage)
	}
	return fmt.Sprintf("%v %6v", p.Limit, p.Usage)
}

// Price is text for a price. With no CPU to sell it is the highest that there is.
func Price(v float64) string {
	if v >= 1e6 {
		return "highest"
	}
	return fmt.Sprintf("%.2f", v)
}

// Latency is text for milliseconds; 0: no request ended.
func Latency(ms float64) string {
	if ms == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f ms", ms)
}
