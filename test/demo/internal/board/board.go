// Package board shows a run while it is played: a live table on a terminal, and plain lines elsewhere.
package board

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/mbcas/mbcas/test/demo/internal/record"
	"github.com/mbcas/mbcas/test/demo/internal/shop"
)

// Board is safe for use by several goroutines.
type Board struct {
	Out io.Writer
	// Terminal: Out is one, so a table is drawn over the last one.
	Terminal bool
	// PlainEvery is the time between two tables where Out is no terminal.
	PlainEvery time.Duration

	mu    sync.Mutex
	drawn int // lines of the table on the terminal
	phase string
	next  time.Duration
	rest  time.Duration // of the show, after the run that is played
}

// Rest says how long what follows the present run will take.
func (b *Board) Rest(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rest, b.phase = d, ""
}

// Say prints a line that stays.
func (b *Board) Say(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drawn = 0
	fmt.Fprintf(b.Out, format+"\n", args...)
}

// Show draws one second of a run.
func (b *Board) Show(run, phase string, at, end time.Duration, samples []record.Sample) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.Terminal {
		if phase == b.phase && at < b.next {
			return
		}
		b.phase, b.next = phase, at+b.PlainEvery
	}
	text := b.text(run, phase, at, end, samples)
	if b.Terminal && b.drawn > 0 {
		fmt.Fprintf(b.Out, "\x1b[%dA\x1b[J", b.drawn) // over the last table
	}
	io.WriteString(b.Out, text)
	b.drawn = strings.Count(text, "\n")
}

func (b *Board) text(run, phase string, at, end time.Duration, samples []record.Sample) string {
	var s strings.Builder
	fmt.Fprintf(&s, "\nrun %s, %s: second %.0f of %.0f; the show ends in about %v\n", run, phase,
		at.Seconds(), end.Seconds(), (max(0, end-at) + b.rest).Round(10*time.Second))
	w := tabwriter.NewWriter(&s, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "pod\trequest\tlimit\tin kernel\tuse\tthrottled ms/s\tdemand\tprice\tp50 ms\tp99 ms\t")
	for _, x := range samples {
		name := x.App
		if p, ok := shop.Find(x.App); ok && !p.Managed() {
			name = "(" + name + ")"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%dm\t%.0f\t%s\t%s\t%s\t%s\t\n", name, milli(x.Request), milli(x.Limit), milli(x.Quota),
			x.Use, x.Throttled, milli(x.Demand), or(x.Price), latency(x.P50), latency(x.P99))
	}
	w.Flush()
	return s.String()
}

func milli(v int64) string {
	if v == 0 {
		return "-"
	}
	return fmt.Sprintf("%dm", v)
}

func or(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func latency(ms float64) string {
	if ms == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f", ms)
}
