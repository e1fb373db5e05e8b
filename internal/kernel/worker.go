//go:build linux

package kernel

import (
	"maps"
	"sync"
	"time"
)

// batch is the pods of one Read, in the order of the targets. It belongs to the worker that reads them.
type batch struct {
	targets []Target
	pods    []*pod // nil: not to be read
	out     []PodSample
	stalls  []Stalls // of all containers; nil: not read
	// countersOnly: of each cgroup the usage and the throttling are read, and nothing else.
	countersOnly bool
	busy         bool // CPUs are, so the pressure of every container is read
}

// worker reads pods in a goroutine of its own. A read that blocks in the kernel cannot be ended, so its
// worker is abandoned with the pod, and another one reads the rest.
type worker struct {
	host   *Host // what never changes of it
	start  func()
	reader reader
	own    Group // of the pod that is being read, as its containers
	found  []Group
	stalls []Stalls
	faults []fault
	noPSI  bool
	// countersOnly is that of the batch.
	countersOnly bool
	// pressures and quotas: those of the pod that is being read are read, though they may be read rarely.
	pressures, quotas bool

	mu        sync.Mutex
	next      int // target
	busy      bool
	abandoned bool
}

func (h *Host) newWorker(from int) *worker {
	w := &worker{host: h, reader: reader{pread: h.reader.pread}, next: from}
	w.start = w.run
	return w
}

// fault is one to log.
type fault struct {
	kind string
	err  error
}

const (
	// blockedTick is how often it is checked that a Read goes on. A pod whose read makes no
	// progress from one check to the next is blocked. To read a pod takes some tenths of a
	// millisecond; where the agent gets no CPU for a while, a pod may lose a sample.
	blockedTick = 250 * time.Millisecond
	// maxBlocked is how many pods may be blocked: each holds a thread of the program. With more the
	// whole tree is taken to be blocked, and the Read waits.
	maxBlocked = 16
)

// readAll reads the pods of h.batch. Every tick it checks that it goes on.
func (h *Host) readAll(tick time.Duration) {
	h.worker.next = 0
	go h.worker.start()
	h.check.Reset(tick)
	defer h.check.Stop()
	for last := -1; ; {
		select {
		case <-h.done:
			h.takeFaults()
			return
		case <-h.check.C:
			h.check.Reset(tick)
		}
		at, abandoned := h.worker.abandon(last, len(h.blocked) < maxBlocked)
		if last = at; abandoned {
			h.block(at)
			h.worker, last = h.newWorker(at+1), -1
			if h.batch.countersOnly { // the rest waits for the Read
				h.leaveRest(at + 1)
				return
			}
			go h.worker.start()
		}
	}
}

// run reads from the next target on.
func (w *worker) run() {
	r := &w.host.batch
	for {
		p, t, stalls := w.begin(r)
		if p == nil {
			break
		}
		w.readPod(p, t, stalls)
		if !w.end(r) {
			for _, m := range p.members() {
				m.group.close()
			}
			p.released.Store(true)
			return
		}
	}
	w.host.done <- struct{}{}
}

// begin is the next pod to read; nil: there is none. Until end it belongs to the worker.
func (w *worker) begin(r *batch) (p *pod, t Target, stalls bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.next < len(r.pods) && r.pods[w.next] == nil {
		w.next++
	}
	if w.next == len(r.pods) {
		return nil, Target{}, false
	}
	w.busy, w.countersOnly, w.pressures = true, r.countersOnly, r.busy
	return r.pods[w.next], r.targets[w.next], r.stalls != nil
}

// end hands over what was read; not ok if the worker was abandoned.
func (w *worker) end(r *batch) (ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.abandoned {
		return false
	}
	out := &r.out[w.next]
	out.Own = w.own
	copy(out.Containers, w.found)
	for i := range w.stalls {
		if out.Containers[i].Found {
			r.stalls[0] = w.stalls[i]
			out.Containers[i].Stalls, r.stalls = &r.stalls[0], r.stalls[1:]
		}
	}
	w.next++
	w.busy = false
	return true
}

// abandon says which pod is read if it was already at the last check, and leaves the worker alone with it.
func (w *worker) abandon(last int, may bool) (at int, abandoned bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.abandoned = may && w.busy && w.next == last
	return w.next, w.abandoned
}

// block leaves a pod to the worker that reads it.
func (h *Host) block(at int) {
	r := &h.batch
	p := r.pods[at]
	key := r.targets[at].Pod
	h.blocked[key] = p
	delete(h.pods, key)
	for i := range r.pods {
		if r.pods[i] == p {
			r.pods[i], r.out[i].Blocked = nil, true
		}
	}
}

// leaveRest marks what a Look has not read.
func (h *Host) leaveRest(from int) {
	for i := from; i < len(h.batch.out); i++ {
		h.batch.out[i].Blocked = true
	}
}

// forgetReleased has the pods read again whose worker has ended.
func (h *Host) forgetReleased() {
	maps.DeleteFunc(h.blocked, func(_ string, p *pod) bool { return p.released.Load() })
}

// takeFaults takes over what the worker found, which is done.
func (h *Host) takeFaults() {
	w := h.worker
	for _, f := range w.faults {
		h.logFault(f.kind, f.err)
	}
	if w.faults = w.faults[:0]; w.noPSI {
		h.noPSI()
	}
}

// readPod reads the pod's own cgroup and its containers.
func (w *worker) readPod(p *pod, t Target, stalls bool) {
	w.own, w.found, w.stalls = Group{ID: t.Whole}, w.found[:0], w.stalls[:0]
	w.pressures, w.quotas = w.pressures || p.due, p.due || !p.enforces(t)
	w.read(p, &p.own, &w.own)
	for i, id := range t.Containers {
		w.found = append(w.found, Group{ID: id})
		m := p.container(id)
		if m != nil {
			w.read(p, m, &w.found[i])
		}
		if !stalls {
			continue
		}
		var s Stalls // what the kernel does not have stays unknown
		if w.found[i].Found {
			s = Stalls{Memory: w.stall(m.group, memoryFile), IO: w.stall(m.group, ioFile)}
		}
		w.stalls = append(w.stalls, s)
	}
}

// read fills out from m, if that is open. A cgroup that was removed, or whose counters are invalid,
// is closed.
func (w *worker) read(p *pod, m *member, out *Group) {
	if m.group == nil {
		return
	}
	err := w.readGroup(m.group, out)
	if err == nil {
		return
	}
	*out = Group{ID: out.ID}
	m.group.close()
	m.group = nil
	p.lookups = 0 // look it up in the next Read
	if !gone(err) {
		w.fault("container", err)
	}
}

func (w *worker) fault(kind string, err error) { w.faults = append(w.faults, fault{kind, err}) }

func (w *worker) readGroup(g *group, out *Group) (err error) {
	h := w.host
	if out.Stat, out.At, err = g.stat(h.tree, &w.reader, h.now); err != nil {
		return err
	}
	if w.countersOnly {
		out.Found = true
		return nil
	}
	if out.Quota = g.quotaRead; w.quotas || g.quotaStale {
		if out.Quota, err = g.quota(h.tree, &w.reader); err != nil {
			return err
		}
	}
	out.Found = true
	if g.fd[pressureFile] < 0 {
		return nil
	}
	if !w.pressures && !g.pressureAt.IsZero() {
		out.Pressure, out.PressureAt = g.pressureRead, g.pressureAt
		return nil
	}
	return w.readPressure(g, out)
}

// readPressure reads the CPU pressure. It fails only where the cgroup itself was removed.
func (w *worker) readPressure(g *group, out *Group) (err error) {
	h := w.host
	var why pressureStatus
	out.Pressure, why, err = g.pressure(h.tree, &w.reader, pressureFile)
	out.Pressure.Full = 0 // nothing uses it, and a recording would hold it
	switch {
	case err != nil:
		w.fault("pressure", err)
	case why == pressureUnsupported:
		g.closeFile(pressureFile)
		w.noPSI = true
	case why == pressureGone:
		// Either the file was removed, by cgroup.pressure, or the cgroup: its counters show which.
		g.closeFile(pressureFile)
		if _, _, err := g.stat(h.tree, &w.reader, h.now); err != nil {
			return err
		}
	}
	g.pressureRead, g.pressureAt = out.Pressure, out.At
	return nil
}

// stall reads the pressure for memory or IO. The next Read finds out whether the cgroup itself was removed.
func (w *worker) stall(g *group, file int) Pressure {
	p, why, err := g.pressure(w.host.tree, &w.reader, file)
	if why != pressureRead {
		g.closeFile(file)
	}
	if why == pressureUnsupported {
		w.noPSI = true
	}
	if err != nil {
		w.fault("stalls", err)
	}
	return p
}
