//go:build linux

package testbed

import (
	"encoding/binary"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/sim"
	"github.com/mbcas/mbcas/internal/sim/load"
)

// pod is a cgroup with one process per thread.
type pod struct {
	spec     sim.Spec
	group    *group
	procs    []*process
	arrivals []request
	line     *os.File       // into which requests are written; nil: none come
	writer   sync.WaitGroup // who writes them
	unsent   []request      // at the end

	limit             cpu.Milli
	now, before, warm counters
	changes           []sim.Change
	points            []sim.PodPoint
	failed            error
}

// process is one thread of a pod.
type process struct {
	cmd   *exec.Cmd
	spin  []piece
	in    io.WriteCloser
	out   io.ReadCloser
	ended bool
}

// start makes the cgroup and, in it, the processes. What it has made is in the pod also when it fails.
func (b Bed) start(tree *tree, s sim.Setup, spec sim.Spec) (*pod, error) {
	p := &pod{spec: spec, limit: spec.Limit, arrivals: arrivals(s, spec)}
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
	for _, pieces := range spins(s, spec) {
		if err := b.add(p, pieces, nil); err != nil {
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
	p.line = line
	threads := spec.Threads
	if threads == 0 {
		threads = s.Machine.Cores
	}
	for range threads {
		if err := b.add(p, nil, end); err != nil {
			return p, err
		}
	}
	return p, nil
}

// arrivals are the requests that a pod gets.
func arrivals(s sim.Setup, spec sim.Spec) (all []request) {
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

// spins are the threads that spin, and when each does.
func spins(s sim.Setup, spec sim.Spec) (all [][]piece) {
	if spec.Spin == nil {
		return nil
	}
	for at := time.Duration(0); at < s.Length; {
		v, until := spec.Spin.At(at)
		n := int(v + 0.5)
		for len(all) < n {
			all = append(all, []piece{{At: 0}})
		}
		for i := range all {
			all[i] = append(all[i], piece{at, i < n})
		}
		if until == load.Forever {
			break
		}
		at = until
	}
	return all
}

// add starts one process.
func (b Bed) add(p *pod, spin []piece, line *os.File) error {
	c := &process{cmd: exec.Command(b.Self[0], b.Self[1:]...), spin: spin}
	c.cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "GOGC=off", "GODEBUG=asyncpreemptoff=1")
	c.cmd.Stderr = os.Stderr
	if line != nil {
		c.cmd.ExtraFiles = []*os.File{line}
	}
	var err error
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return err
	}
	if c.out, err = c.cmd.StdoutPipe(); err != nil {
		return err
	}
	if err := c.cmd.Start(); err != nil {
		return err
	}
	p.procs = append(p.procs, c)
	return p.group.enter(c.cmd.Process.Pid)
}

// send tells the processes what to do, and begins to write requests.
func (p *pod) send(s sim.Setup, start time.Time) error {
	for _, c := range p.procs {
		err := gob.NewEncoder(c.in).Encode(order{Start: start, End: s.Length, Warm: s.Warm, Spin: c.spin})
		if err := errors.Join(err, c.in.Close()); err != nil {
			return fmt.Errorf("send the order: %w", err)
		}
	}
	if p.line != nil {
		p.writer.Go(func() { p.write(start, start.Add(s.Length)) })
	}
	return nil
}

// write writes the requests, each at its time. Where the line is full it waits; what is not taken at the end is unsent.
func (p *pod) write(start, end time.Time) {
	var buf [size]byte
	_ = p.line.SetWriteDeadline(end) // a pipe has one; without, it would wait for the processes
	for i, q := range p.arrivals {
		time.Sleep(time.Until(start.Add(q.At)))
		binary.NativeEndian.PutUint64(buf[:], uint64(q.At))
		binary.NativeEndian.PutUint64(buf[8:], uint64(q.Work))
		if _, err := p.line.Write(buf[:]); err != nil {
			p.unsent = p.arrivals[i:]
			break
		}
	}
	_ = p.line.Close() // its end is the end of the work
}

// collect waits for the reports. The limit is lifted first: the run is over.
func (p *pod) collect(s sim.Setup) (all report, err error) {
	if err := p.group.setLimit(0); err != nil {
		return all, err
	}
	p.writer.Wait()
	for _, c := range p.procs {
		var r report
		if err := gob.NewDecoder(c.out).Decode(&r); err != nil {
			return all, fmt.Errorf("read the report: %w", err)
		}
		c.ended = true
		if err := c.cmd.Wait(); err != nil {
			return all, err
		}
		all.Served += r.Served
		all.Useful += r.Useful
		all.Backlog += r.Backlog
		all.Latencies = append(all.Latencies, r.Latencies...)
	}
	for _, q := range p.unsent {
		all.Backlog += q.Work
		all.Latencies = append(all.Latencies, s.Length-q.At)
	}
	return all, nil
}

// stop ends what has not ended by itself.
func (p *pod) stop() {
	for _, c := range p.procs {
		if c.ended {
			continue
		}
		c.ended = true
		_ = c.cmd.Process.Kill() // it may be gone
		_ = c.cmd.Wait()         // killed: what it says is known
	}
	if p.line != nil {
		_ = p.line.Close() // it may be closed; the writer ends
	}
	p.writer.Wait()
}
