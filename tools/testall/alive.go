package main

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// alive is a writer that says "still at it" when nothing was written for a while.
type alive struct {
	out io.Writer

	mu    sync.Mutex
	what  string
	since time.Time
	last  time.Time
}

func (a *alive) Write(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last = time.Now()
	return a.out.Write(p)
}

// begin names what is done from here on.
func (a *alive) begin(what string) {
	fmt.Fprintf(a, "\n== %s\n", what)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.what, a.since = what, time.Now()
}

// watch prints until done is closed.
func (a *alive) watch(done <-chan struct{}) {
	tick := time.NewTicker(silence)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case now := <-tick.C:
			a.mu.Lock()
			if now.Sub(a.last) >= silence {
				fmt.Fprintf(a.out, "   %s: still at it, %s\n", a.what, now.Sub(a.since).Round(time.Second))
				a.last = now
			}
			a.mu.Unlock()
		}
	}
}
