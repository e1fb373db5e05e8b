//go:build linux

package testbed

import (
	"encoding/gob"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/sim"
)

// pod is a process in its own cgroup.
type pod struct {
	spec  sim.Spec
	plan  plan
	group *group
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   io.ReadCloser
	ended bool

	limit             cpu.Milli
	now, before, warm counters
	changes           []sim.Change
	points            []sim.PodPoint
	failed            error
}

// start makes the cgroup and, in it, the process.
func (b Bed) start(tree *tree, s sim.Setup, spec sim.Spec) (*pod, error) {
	p := &pod{spec: spec, plan: planOf(s, spec), limit: spec.Limit}
	var err error
	if p.group, err = tree.add(spec.Name); err != nil {
		return nil, err
	}
	if err := p.group.setRequest(spec.Request); err != nil {
		return nil, err
	}
	if err := p.group.setLimit(spec.Limit); err != nil {
		return nil, err
	}
	p.cmd = exec.Command(b.Self[0], b.Self[1:]...)
	p.cmd.Stderr = os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if p.out, err = p.cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	if err := p.group.enter(p.cmd.Process.Pid); err != nil {
		p.stop()
		return nil, err
	}
	return p, nil
}

// send tells the process what to do.
func (p *pod) send(start time.Time) error {
	p.plan.Start = start
	if err := gob.NewEncoder(p.in).Encode(p.plan); err != nil {
		return fmt.Errorf("send the plan: %w", err)
	}
	return p.in.Close()
}

// collect waits for the report. The limit is lifted first: the run is over.
func (p *pod) collect() (r report, err error) {
	if err := p.group.setLimit(0); err != nil {
		return r, err
	}
	if err := gob.NewDecoder(p.out).Decode(&r); err != nil {
		return r, fmt.Errorf("read the report: %w", err)
	}
	p.ended = true
	return r, p.cmd.Wait()
}

// stop ends a process that has not ended by itself.
func (p *pod) stop() {
	if p.ended {
		return
	}
	p.ended = true
	_ = p.cmd.Process.Kill() // it may be gone
	_ = p.cmd.Wait()         // killed: what it says is known
}
