//go:build linux

package main

import (
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/mbcas/mbcas/test/measure/internal/progress"
	"github.com/mbcas/mbcas/test/measure/internal/recorder"
	"github.com/mbcas/mbcas/test/measure/internal/script"
)

// console prints progress. It is safe for use by several goroutines.
type console struct {
	mu     sync.Mutex
	out    io.Writer
	table  progress.Table
	after  time.Duration // that what follows the run takes
	script *script.Script
}

// Begin begins the lines of a run.
func (c *console) Begin(s *script.Script, after time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.script, c.after, c.table = s, after, progress.Table{Latencies: []string{"p99"}}
}

// Say prints a line.
func (c *console) Say(format string, args ...any) { fmt.Fprintf(c, format+"\n", args...) }

// Write prints text.
func (c *console) Write(text []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out.Write(text)
}

// Show prints one second of a run.
func (c *console) Show(run *recorder.Run, at time.Duration, samples []recorder.Sample) {
	c.mu.Lock()
	defer c.mu.Unlock()
	step := run.Plan.At(max(0, at-time.Second/2))
	line := progress.Line{At: at, Phase: run.Name + ", " + step.Name, Left: max(0, run.Plan.Length()-at) + c.after}
	var p99, price float64
	var pricedAt time.Time
	for _, x := range samples {
		w, _ := c.script.Find(x.App)
		switch {
		case step.Service == "" || x.App == step.Service:
			line.Service.Limit, line.Service.Usage = line.Service.Limit+x.Quota, line.Service.Usage+x.Usage
			line.Replicas += x.Ready
			p99 = max(p99, x.P99)
		case x.App == step.Hog:
			line.Hog.Limit, line.Hog.Usage = x.Quota, x.Usage
		}
		if v, err := strconv.ParseFloat(x.Price, 64); err == nil && w.Managed() && !x.PriceAt.Before(pricedAt) {
			price, pricedAt = v, x.PriceAt
		}
	}
	line.Price, line.Latencies = progress.Price(price), []string{progress.Latency(p99)}
	c.table.Print(c.out, line)
}
