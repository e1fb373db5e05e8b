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
	out   io.Writer
	quiet *time.Timer

	mu      sync.Mutex
	step    string // "" reports nothing
	started time.Time
}

func newProgress(out io.Writer) *progress {
	p := &progress{out: out}
	p.quiet = time.AfterFunc(reportEvery, p.report)
	return p
}

func (p *progress) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.quiet.Reset(reportEvery)
	return p.out.Write(text)
}

// begin prints the name of a step and reports it from now on.
func (p *progress) begin(step string) {
	fmt.Fprintf(p, "\n== %s\n", step)
	p.follow(step)
}

// follow reports a step from now on.
func (p *progress) follow(step string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.step, p.started = step, time.Now()
}

func (p *progress) report() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.step != "" {
		fmt.Fprintf(p.out, "   %s: running for %s\n", p.step, time.Since(p.started).Round(time.Second))
		p.quiet.Reset(reportEvery)
	}
}
