package cli

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// progress reports the state of long work: one line that is redrawn on a terminal, a plain line
// from time to time elsewhere.
type progress struct {
	out      io.Writer
	unit     string // in the plural
	terminal bool
	now      func() time.Time

	mu               sync.Mutex
	began, said      time.Time
	all, finished    int
	cost, costBehind float64
}

// sayEvery is the time between two plain lines, and redrawEvery that between two on a terminal.
const (
	sayEvery    = 15 * time.Second
	redrawEvery = 200 * time.Millisecond
)

func newProgress(out io.Writer, unit string) *progress {
	p := &progress{out: out, unit: unit, now: time.Now}
	if f, ok := out.(*os.File); ok {
		info, err := f.Stat()
		p.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return p
}

// begin starts work of so many units with a total cost, in any unit of cost.
func (p *progress) begin(all int, cost float64) {
	p.began = p.now()
	p.said = p.began
	p.all, p.cost = all, cost
}

// done counts a unit of that cost and name.
func (p *progress) done(cost float64, name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.finished++
	p.costBehind += cost
	now := p.now()
	every := sayEvery
	if p.terminal {
		every = redrawEvery
	}
	if now.Sub(p.said) < every {
		return
	}
	p.said = now
	left := time.Duration(float64(now.Sub(p.began)) * (p.cost - p.costBehind) / p.costBehind).Round(time.Second)
	line := fmt.Sprintf("%d/%d %s, about %v left (%s)", p.finished, p.all, p.unit, left, name)
	if p.terminal {
		fmt.Fprintf(p.out, "\r\033[K%s", line)
		return
	}
	fmt.Fprintln(p.out, line)
}

// end stops reporting and returns how many units are done.
func (p *progress) end() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.terminal {
		fmt.Fprint(p.out, "\r\033[K")
	}
	fmt.Fprintf(p.out, "%d/%d %s\n", p.finished, p.all, p.unit)
	p.out = io.Discard
	return p.finished
}
