package main

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// reportEvery is how long a suite may print nothing before a line of progress: compiling takes minutes on
// a small machine.
const reportEvery = 30 * time.Second

// progress is a writer that adds a line of progress when nothing was written for a while.
type progress struct {
	out io.Writer

	mu      sync.Mutex
	step    string
	started time.Time
	last    time.Time
}

func (p *progress) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = time.Now()
	return p.out.Write(text)
}

// begin prints the name of a step and reports it from now on.
func (p *progress) begin(step string) {
	fmt.Fprintf(p, "\n== %s\n", step)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.step, p.started = step, time.Now()
}

// report prints lines of progress until done is closed.
func (p *progress) report(done <-chan struct{}) {
	tick := time.NewTicker(reportEvery)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case now := <-tick.C:
			p.mu.Lock()
			if now.Sub(p.last) >= reportEvery {
				fmt.Fprintf(p.out, "   %s: running for %s\n", p.step, now.Sub(p.started).Round(time.Second))
				p.last = now
			}
			p.mu.Unlock()
		}
	}
}
