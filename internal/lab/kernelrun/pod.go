//go:build linux

package kernelrun

import (
	"bufio"
	"cmp"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/lab/sim"
)

// pod is a cgroup with one process per thread.
type pod struct {
	spec     sim.PodSpec
	group    *group
	procs    []*process
	arrivals []request
	pipe     *os.File        // into which requests are written; nil: none come
	writer   sync.WaitGroup  // of the requests
	quit     chan struct{}   // closed to make them stop
	unsent   []request       // at the end
	lateness []time.Duration // of each that was sent

	limit             cpu.Milli
	now, before, warm counters
	changes           []sim.Change
	points            []sim.PodPoint
	failed            error
}

// process is one thread of a pod.
type process struct {
	cmd   *exec.Cmd
	out   *bufio.Reader
	ended bool
}

// request is one request, and when it is to arrive.
type request struct{ At, Work time.Duration }

// processReport is what the processes of a pod say at the end. What was done before the warm-up was
// over does not count.
type processReport struct {
	Served          uint64
	Useful, Backlog time.Duration
	// Latencies of the requests that were done, and the ages of those that were not.
	Latencies []time.Duration
}

// worker is the program that every process runs.
//
//go:embed worker.pl
var worker string

// interpreter runs it.
const interpreter = "perl"

// newPod makes the cgroup and, in it, the processes, which begin at the given time. What it has
// made is in the pod also when it fails.
func newPod(tree *tree, s sim.Setup, spec sim.PodSpec, start instant) (*pod, error) {
	p := &pod{spec: spec, limit: spec.Limit, arrivals: arrivals(s, spec), quit: make(chan struct{})}
	var err error
	if p.group, err = tree.add(spec.Name); err != nil {
		return p, err
	}
	if err := p.group.setRequest(spec.Request); err != nil {
		return p, err
	}
	if err := p.group.setLimit(spec.Limit); err != nil {
		return p, err
	}
	for _, times := range spins(s, spec) {
		if err := p.add(nil, append([]string{"spin", start.String()}, times...)...); err != nil {
			return p, err
		}
	}
	if spec.Requests.Rate == nil {
		return p, nil
	}
	end, line, err := os.Pipe()
	if err != nil {
		return p, err
	}
	defer end.Close() // the processes have it
	p.pipe = line
	for range cmp.Or(spec.Threads, s.Machine.Cores) {
		if err := p.add(end, "serve", start.String(), seconds(s.Length), seconds(s.WarmUp)); err != nil {
			return p, err
		}
	}
	return p, nil
}

// instant is a time on the machine's monotonic clock, since it was started.
type instant time.Duration

func monotonicIn(after time.Duration) (instant, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0, fmt.Errorf("read the monotonic clock: %w", err)
	}
	return instant(time.Duration(ts.Nano()) + after), nil
}

func (i instant) String() string { return seconds(time.Duration(i)) }

func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', 9, 64) }

// arrivals are the requests that a pod gets.
func arrivals(s sim.Setup, spec sim.PodSpec) (all []request) {
	if spec.Requests.Rate == nil {
		return nil
	}
	for a := spec.Arrivals(s.Seed, 0); ; {
		at, work := a.Next()
		if at >= s.Length {
			return all
		}
		all = append(all, request{at, work})
	}
}

// spins are the busy threads: the start and end times of each, as arguments of the worker.
func spins(s sim.Setup, spec sim.PodSpec) (all [][]string) {
	if spec.Spin == nil {
		return nil
	}
	for at := time.Duration(0); at < s.Length; {
		v, until := spec.Spin.At(at)
		until = min(until, s.Length)
		for i := range max(0, int(math.Round(v))) {
			if i == len(all) {
				all = append(all, nil)
			}
			all[i] = append(all[i], seconds(at), seconds(until))
		}
		at = until
	}
	return all
}

// add starts one process.
func (p *pod) add(requests *os.File, task ...string) error {
	c := &process{cmd: exec.Command(interpreter, append([]string{"-e", worker, "--"}, task...)...)}
	c.cmd.Stderr = os.Stderr
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // a run that is killed leaves none behind
	if requests != nil {
		c.cmd.Stdin = requests
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	c.out = bufio.NewReader(out)
	if err := c.cmd.Start(); err != nil {
		return err
	}
	p.procs = append(p.procs, c)
	return p.group.enter(c.cmd.Process.Pid)
}

// begin lets the requests come.
func (p *pod) begin(s sim.Setup, start time.Time) {
	if p.pipe != nil {
		p.writer.Go(func() { p.write(start, start.Add(s.Length)) })
	}
}

// requestSize of a request in the line, which is a pipe: so short a piece is written and read as a
// whole.
const requestSize = 16

// write writes the requests, each at its time. Where the line is full it waits; what is not taken
// at the end is unsent.
func (p *pod) write(start, end time.Time) {
	// The thread sleeps to the microsecond, so it is locked, and not returned to the runtime. It
	// has ordinary priority. A nice value of -20 weighs as much as pods of 87 cores where the
	// kernel does not group processes by session (autogroup in sched(7)), and the load balancer
	// clears its core for it. A real-time thread may spin for a lock of this language's runtime,
	// and keep the holder from the CPU for as long as the kernel lets it, which is most of a
	// second.
	runtime.LockOSThread()
	var buf [requestSize]byte
	_ = p.pipe.SetWriteDeadline(end) // a pipe has one; without, it would wait for the processes
	for i, q := range p.arrivals {
		if !p.sleepUntil(start.Add(q.At)) {
			break
		}
		late := time.Since(start) - q.At
		binary.NativeEndian.PutUint64(buf[:], math.Float64bits(q.At.Seconds()))
		binary.NativeEndian.PutUint64(buf[8:], math.Float64bits(q.Work.Seconds()))
		if _, err := p.pipe.Write(buf[:]); err != nil {
			p.unsent = p.arrivals[i:]
			break
		}
		p.lateness = append(p.lateness, late)
	}
	_ = p.pipe.Close() // its end is the end of the work
}

// sleepUntil is as exact as the kernel is; a timer alone is up to a millisecond late. It is false
// where the pod was stopped meanwhile.
func (p *pod) sleepUntil(t time.Time) bool {
	if early := time.Until(t) - 3*time.Millisecond; early > 0 {
		select {
		case <-p.quit:
			return false
		case <-time.After(early):
		}
	}
	if left := time.Until(t); left > 0 {
		ts := unix.NsecToTimespec(left.Nanoseconds())
		_ = unix.Nanosleep(&ts, nil) // interrupted, it is early by less than the 3 ms
	}
	return true
}

// late is how late 99 of 100 requests were sent at most; 0 where none was. The writer must have
// ended.
func (p *pod) late() time.Duration {
	if len(p.lateness) == 0 {
		return 0
	}
	slices.Sort(p.lateness)
	return p.lateness[len(p.lateness)*99/100]
}

// collect waits for the reports. It removes the limit first, as the run is over.
func (p *pod) collect(s sim.Setup) (all processReport, err error) {
	if err := p.group.setLimit(0); err != nil {
		return all, err
	}
	p.writer.Wait()
	for _, c := range p.procs {
		if p.pipe != nil {
			if err := all.read(c.out); err != nil {
				return all, fmt.Errorf("read what a process reports: %w", err)
			}
		}
		c.ended = true
		if err := c.cmd.Wait(); err != nil {
			return all, err
		}
	}
	for _, q := range p.unsent {
		all.Backlog += q.Work
		all.Latencies = append(all.Latencies, s.Length-q.At)
	}
	return all, nil
}

// read adds what one process says.
func (r *processReport) read(in io.Reader) error {
	var served uint64
	var useful, backlog float64
	if _, err := fmt.Fscan(in, &served, &useful, &backlog); err != nil {
		return err
	}
	r.Served += served
	r.Useful += duration(useful)
	r.Backlog += duration(backlog)
	for {
		var latency float64
		if _, err := fmt.Fscan(in, &latency); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		r.Latencies = append(r.Latencies, duration(latency))
	}
}

func duration(seconds float64) time.Duration { return time.Duration(math.Round(seconds * 1e9)) }

// stop ends what has not ended by itself.
func (p *pod) stop() {
	close(p.quit)
	for _, c := range p.procs {
		if c.ended {
			continue
		}
		c.ended = true
		_ = c.cmd.Process.Kill() // it may be gone
		_ = c.cmd.Wait()         // killed: what it says is known
	}
	if p.pipe != nil {
		_ = p.pipe.Close() // it may be closed; the writer ends
	}
	p.writer.Wait()
}
