package lab

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// progress says how far a comparison is: one line that is written over on a terminal, and a plain line now and then elsewhere.
type progress struct {
	out      io.Writer
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

func newProgress(out io.Writer) *progress {
	p := &progress{out: out, now: time.Now}
	if f, ok := out.(*os.File); ok {
		info, err := f.Stat()
		p.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return p
}

func (p *progress) begin(jobs []job) {
	p.began = p.now()
	p.said = p.began
	p.all = len(jobs)
	for _, j := range jobs {
		p.cost += j.cost
	}
}

// done counts one run.
func (p *progress) done(j job) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.finished++
	p.costBehind += j.cost
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
	line := fmt.Sprintf("%d/%d runs, about %v left (%s under %s)", p.finished, p.all, left, j.scenario.Name, j.policy.Name)
	if p.terminal {
		fmt.Fprintf(p.out, "\r\033[K%s", line)
		return
	}
	fmt.Fprintln(p.out, line)
}

func (p *progress) end() {
	if p.terminal {
		fmt.Fprint(p.out, "\r\033[K")
	}
	fmt.Fprintf(p.out, "%d/%d runs\n", p.finished, p.all)
}
