//go:build linux

package testbed

import (
	"encoding/gob"
	"fmt"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// report is what a process says at the end.
type report struct {
	Arrived, Served uint64
	Useful, Backlog time.Duration
	// Latencies of the requests that were done after the warm-up, and the ages of those that were not done.
	Latencies []time.Duration
}

// Serve is a process of the test bed: it reads its plan from in, does what it says, and writes its
// report to out.
func Serve(in io.Reader, out io.Writer) error {
	var p plan
	if err := gob.NewDecoder(in).Decode(&p); err != nil {
		return fmt.Errorf("read the plan: %w", err)
	}
	spinners := 0
	for _, s := range p.Spin {
		spinners = max(spinners, s.Threads)
	}
	// Every thread of the plan must be one of the system's, with one left for the clock.
	runtime.GOMAXPROCS(p.Threads + spinners + 1)
	var wg sync.WaitGroup
	for i := range spinners {
		wg.Go(func() { spin(p, i) })
	}
	rep := serve(p)
	wg.Wait()
	if err := gob.NewEncoder(out).Encode(rep); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

// serve works on the requests.
func serve(p plan) report {
	line := make(chan request, len(p.Arrivals))
	end := p.Start.Add(p.End)
	var mu sync.Mutex
	var rep report
	var wg sync.WaitGroup
	for range p.Threads {
		wg.Go(func() {
			runtime.LockOSThread()
			for q := range line {
				left := burn(q.Work, end)
				done := time.Since(p.Start)
				mu.Lock()
				rep.take(p, q, left, done)
				mu.Unlock()
			}
		})
	}
	for _, q := range p.Arrivals {
		time.Sleep(time.Until(p.Start.Add(q.At)))
		line <- q
	}
	close(line)
	wg.Wait()
	return rep
}

func (r *report) take(p plan, q request, left, done time.Duration) {
	if left > 0 {
		r.Backlog += left
		done = p.End
	} else if done >= p.Warm {
		r.Served++
	}
	if q.At >= p.Warm {
		r.Arrived++
	}
	if done >= p.Warm {
		r.Useful += q.Work - left
		r.Latencies = append(r.Latencies, done-q.At)
	}
}

// spin uses CPU while the plan has more than i threads do so.
func spin(p plan, i int) {
	runtime.LockOSThread()
	for k, s := range p.Spin {
		until := p.End
		if k+1 < len(p.Spin) {
			until = p.Spin[k+1].At
		}
		if s.Threads <= i {
			time.Sleep(time.Until(p.Start.Add(until)))
			continue
		}
		time.Sleep(time.Until(p.Start.Add(s.At)))
		for end := p.Start.Add(until); time.Now().Before(end); {
			chunk()
		}
	}
}

// burn uses as much CPU time as asked for, as the kernel counts it for this thread, and returns what is left
// of it at the end of the run.
func burn(work time.Duration, end time.Time) (left time.Duration) {
	from := threadTime()
	for {
		if left = work - (threadTime() - from); left <= 0 || time.Now().After(end) {
			return max(0, left)
		}
		chunk()
	}
}

var sink atomic.Uint64

// chunk is some ten microseconds of work.
func chunk() {
	x := sink.Load() | 1
	for range 8000 {
		x = x*6364136223846793005 + 1442695040888963407
	}
	sink.Store(x)
}

func threadTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		panic(fmt.Sprintf("clock of the thread: %v", err)) // the kernel has had it since 2.6.12
	}
	return time.Duration(ts.Nano())
}
