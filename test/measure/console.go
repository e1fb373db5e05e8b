//go:build linux

package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"golang.org/x/term"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/test/measure/internal/recorder"
	"github.com/mbcas/mbcas/test/measure/internal/script"
)

// plainEvery is the time between two tables where the output is no terminal.
const plainEvery = 10 * time.Second

// console prints progress: a live table on a terminal, and a table every ten seconds elsewhere. It is safe for use by several goroutines.
type console struct {
	out      io.Writer
	terminal bool

	mu    sync.Mutex
	drawn int // lines of the table on the terminal
	phase string
	next  time.Duration
	rest  time.Duration // after the run that is played
}

func newConsole(out io.Writer) *console {
	f, ok := out.(*os.File)
	return &console{out: out, terminal: ok && term.IsTerminal(int(f.Fd()))}
}

// Rest sets how long what follows the present run takes.
func (c *console) Rest(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rest, c.phase = d, ""
}

// Say prints a line that stays.
func (c *console) Say(format string, args ...any) { fmt.Fprintf(c, format+"\n", args...) }

// Write prints text that stays.
func (c *console) Write(text []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drawn = 0
	return c.out.Write(text)
}

// Show draws one second of a run.
func (c *console) Show(s *script.Script, run *recorder.Run, at time.Duration, samples []recorder.Sample) {
	c.mu.Lock()
	defer c.mu.Unlock()
	phase := run.Plan.At(max(0, at-time.Second/2)).Name
	if !c.terminal {
		if phase == c.phase && at < c.next {
			return
		}
		c.phase, c.next = phase, at+plainEvery
	}
	end := run.Plan.Length()
	var text strings.Builder
	fmt.Fprintf(&text, "\nrun %s, %s: second %.0f of %.0f; about %v left in all\n", run.Name, phase,
		at.Seconds(), end.Seconds(), (max(0, end-at) + c.rest).Round(10*time.Second))
	table(&text, s, samples)
	if c.terminal && c.drawn > 0 {
		fmt.Fprintf(c.out, "\x1b[%dA\x1b[J", c.drawn) // over the last table
	}
	io.WriteString(c.out, text.String())
	c.drawn = strings.Count(text.String(), "\n")
}

// table has a line for each workload of the script; those of one group share a line with their sums.
func table(out io.Writer, s *script.Script, samples []recorder.Sample) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "pods\tReady\trequest\tlimit\tin kernel\tusage\tthrottled ms/s\tdemand\tprice\tp50 ms\tp99 ms\t")
	var line recorder.Sample
	flush := func() {
		if line.App != "" {
			fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%dm\t%.0f\t%s\t%s\t%s\t%s\t\n", line.App, line.Ready, milli(line.Request), milli(line.Limit),
				milli(line.Quota), int64(line.Usage), line.Throttled, milli(line.Demand), line.Price, latency(line.P50), latency(line.P99))
		}
	}
	for _, x := range samples {
		workload, _ := s.Find(x.App)
		x.App = workload.Group()
		if !workload.Managed() {
			x.App = "(" + x.App + ")"
		}
		if x.App != line.App {
			flush()
			line = x
			continue
		}
		line.Ready += x.Ready
		line.Request, line.Limit, line.Quota = line.Request+x.Request, line.Limit+x.Limit, line.Quota+x.Quota
		line.Usage, line.Demand, line.Throttled = line.Usage+x.Usage, line.Demand+x.Demand, line.Throttled+x.Throttled
		line.P50, line.P99 = max(line.P50, x.P50), max(line.P99, x.P99)
	}
	flush()
	w.Flush()
}

func milli(v cpu.Milli) string {
	if v == 0 {
		return "-"
	}
	return v.String()
}

func latency(ms float64) string {
	if ms == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f", ms)
}
