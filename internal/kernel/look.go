//go:build linux

package kernel

import "time"

// lookTick is how often it is checked that a Look goes on. The round that follows must not wait for a
// cgroup that blocks its reader. To leave one alone too soon costs little: when its read has ended, the
// next Read opens its files again.
const lookTick = 50 * time.Millisecond

// Look samples the idle time of the CPUs, and the usage and the throttling of the targets, between two
// Reads. It reads only what the last Read has found: a cgroup that is gone, or that a Read has not found
// yet, has Found false. Totals but the idle time are unknown, and quotas and pressure are zero. Where the
// read of a pod does not end, the Look does within a tenth of a second, and the rest is Blocked, too.
func (h *Host) Look(targets []Target) Sample {
	h.mu.Lock()
	defer h.mu.Unlock()
	out, _ := newSample(targets)
	out.Node.At = h.now()
	if h.closed {
		return out
	}
	out.Node.Idle = h.proc.idle(&h.reader)
	h.forgetReleased()
	r := &h.batch
	r.targets, r.out, r.stalls, r.pods, r.countersOnly = targets, out.Pods, nil, r.pods[:0], true
	for i, t := range targets {
		out.Pods[i].Blocked = h.blocked[t.Pod] != nil
		r.pods = append(r.pods, h.pods[t.Pod]) // a blocked one is not among them
	}
	h.readAll(lookTick)
	return out
}

// Find samples pods between two Reads that the last one has not read: it looks their cgroups up, opens
// their files, and reads all of them, so that a Look reads them from then on. A cgroup that it does not
// find is left to the next Read. Totals of the machine are unknown.
func (h *Host) Find(targets []Target) Sample {
	h.mu.Lock()
	defer h.mu.Unlock()
	out, n := newSample(targets)
	out.Node.At = h.now()
	if h.closed {
		return out
	}
	h.listed = false
	p := pass{now: out.Node.At, hinted: true} // the hint itself is left to the next Read
	h.prepareAll(targets, &p, out, h.newStalls(n))
	h.readAll(lookTick)
	return out
}
