//go:build linux

package testbed

import (
	"encoding/binary"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// order is what one process is told to do. Times count from Start.
type order struct {
	Start     time.Time
	End, Warm time.Duration // what is done before Warm does not count
	Spin      []piece       // empty: it serves requests
}

// piece is whether the process spins from a time on.
type piece struct {
	At    time.Duration
	Spins bool
}

// request is one request, as it comes through the line.
type request struct{ At, Work time.Duration }

// size of a request in the line, which is a pipe: so short a piece is written and read as a whole.
const size = 16

// report is what a process says at the end.
type report struct {
	Served          uint64
	Useful, Backlog time.Duration
	// Latencies of the requests that were done after the warm-up, and the ages of those that were not done.
	Latencies []time.Duration
}

// lineFile is the process's end of the line.
const lineFile = 3

// Serve is one thread of a pod, as a process of its own: the Go runtime would stop a thread among others every 10 ms, and
// that would be measured. It reads its order from in, does it, and writes its report to out.
func Serve(in io.Reader, out io.Writer) error {
	var o order
	if err := gob.NewDecoder(in).Decode(&o); err != nil {
		return fmt.Errorf("read the order: %w", err)
	}
	var rep report
	var err error
	if len(o.Spin) > 0 {
		spin(o)
	} else {
		rep, err = serve(o)
	}
	if err != nil {
		return err
	}
	if err := gob.NewEncoder(out).Encode(rep); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

// serve works on requests until the line ends.
func serve(o order) (rep report, err error) {
	var buf [size]byte
	end := o.Start.Add(o.End)
	if err := unix.SetNonblock(lineFile, false); err != nil {
		return rep, fmt.Errorf("the line: %w", err)
	}
	for {
		n, err := unix.Read(lineFile, buf[:])
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return rep, fmt.Errorf("read the line: %w", err)
		case n == 0:
			return rep, nil
		case n != size:
			return rep, fmt.Errorf("read the line: %d bytes, want %d", n, size)
		}
		q := request{
			At:   time.Duration(binary.NativeEndian.Uint64(buf[:])),
			Work: time.Duration(binary.NativeEndian.Uint64(buf[8:])),
		}
		left := burn(q.Work, end)
		rep.take(o, q, left, time.Since(o.Start))
	}
}

// take counts a request with what is left of its work.
func (r *report) take(o order, q request, left, done time.Duration) {
	if left > 0 {
		r.Backlog += left
		done = o.End
	} else if done >= o.Warm {
		r.Served++
	}
	if done >= o.Warm {
		r.Useful += q.Work - left
		r.Latencies = append(r.Latencies, done-q.At)
	}
}

func spin(o order) {
	for i, p := range o.Spin {
		until := o.End
		if i+1 < len(o.Spin) {
			until = o.Spin[i+1].At
		}
		if !p.Spins {
			time.Sleep(time.Until(o.Start.Add(until)))
			continue
		}
		time.Sleep(time.Until(o.Start.Add(p.At)))
		for end := o.Start.Add(until); time.Now().Before(end); {
			chunk()
		}
	}
}

// burn uses as much CPU time as asked for, as the kernel counts it for this process, and returns what is left
// of it at the end of the run.
func burn(work time.Duration, end time.Time) (left time.Duration) {
	from := cpuTime()
	for {
		if left = work - (cpuTime() - from); left <= 0 || time.Now().After(end) {
			return max(0, left)
		}
		chunk()
	}
}

var sink atomic.Uint64

// chunk is some tens of microseconds of work.
func chunk() {
	x := sink.Load() | 1
	for range 20_000 {
		x = x*6364136223846793005 + 1442695040888963407
	}
	sink.Store(x)
}

func cpuTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts); err != nil {
		panic(fmt.Sprintf("clock of the process: %v", err)) // the kernel has had it since 2.6.12
	}
	return time.Duration(ts.Nano())
}
