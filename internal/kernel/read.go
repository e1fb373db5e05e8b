//go:build linux

package kernel

import (
	"maps"
	"slices"
	"time"
)

// member is a cgroup to read: a container's or, with an empty id, a pod's own.
type member struct {
	id           string
	group        *group // nil: not found
	read         uint64 // the last Read with it among the targets
	missingSince time.Time
}

type pod struct {
	key        string
	read       uint64 // the last Read with it among the targets
	own        member
	containers []*member
	lookups    int // in a row that left a cgroup missing
	nextLookup time.Time
}

// members are the own cgroup and the containers'.
func (p *pod) members() []*member { return append([]*member{&p.own}, p.containers...) }

// pass is what the targets of one Read have in common.
type pass struct {
	now     time.Time
	hinted  bool // a watch had an event
	recheck bool // see Host.recheck
	scan    bool // a container has been missing for long
}

// Read samples the machine and each target, in order. It never fails as a whole: a cgroup that does
// not exist, or is removed meanwhile, has Found false and is looked up again by the next Read.
// Files of pods and containers that are no longer among the targets are closed.
func (h *Host) Read(targets []Target) Sample {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, t := range targets {
		n += len(t.Containers)
	}
	out := Sample{Pods: make([]PodSample, len(targets))}
	groups := make([]Group, n)
	for i, t := range targets {
		out.Pods[i] = PodSample{Pod: t.Pod, Containers: groups[:len(t.Containers):len(t.Containers)]}
		groups = groups[len(t.Containers):]
		for j, id := range t.Containers {
			out.Pods[i].Containers[j].ID = id
		}
	}
	if h.closed {
		out.Node.At = h.now()
		return out
	}
	stalls := h.newStalls(n)
	h.reads++
	out.Node = h.node()

	p := h.newPass()
	for i, t := range targets {
		h.readTarget(t, &out.Pods[i], &p)
		if stalls != nil {
			h.readStalls(h.pods[t.Pod], out.Pods[i].Containers, stalls)
			stalls = stalls[len(t.Containers):]
		}
	}
	if p.scan && p.now.Sub(h.scannedAt) >= scanInterval {
		h.scan(p.now)
	}
	h.closeUnused(h.reads)
	return out
}

// newPass begins a Read: it lists the pods if their list is too old.
func (h *Host) newPass() pass {
	p := pass{now: h.now(), hinted: h.hint.Swap(false)}
	if p.recheck = p.now.Sub(h.recheckedAt) >= recheckInterval; p.recheck {
		h.recheckedAt = p.now
	}
	h.listed = false
	if p.hinted || p.now.Sub(h.indexedAt) >= listInterval {
		h.list(p.now)
	}
	return p
}

// readTarget looks up what is missing of a target, and reads it.
func (h *Host) readTarget(t Target, out *PodSample, pass *pass) {
	p := h.track(t)
	if p.missing() && (pass.hinted || p.lookups < maxFastLookups || !pass.now.Before(p.nextLookup)) {
		pass.scan = h.resolve(p, pass.now) || pass.scan
	}
	h.read(p, &p.own, &out.Own, pass.recheck)
	for j, id := range t.Containers {
		if m := p.container(id); m != nil {
			h.read(p, m, &out.Containers[j], pass.recheck)
		}
	}
}

// track is the pod of a target, with a member for each of its containers.
func (h *Host) track(t Target) *pod {
	p := h.pods[t.Pod]
	if p == nil {
		p = &pod{key: podKey(t.Pod)}
		h.pods[t.Pod] = p
	}
	p.read = h.reads
	for _, id := range t.Containers {
		if id == "" { // not created yet
			continue
		}
		m := p.container(id)
		if m == nil {
			m = &member{id: id}
			p.containers = append(p.containers, m)
			p.lookups = 0
		}
		m.read = h.reads
	}
	return p
}

func (p *pod) container(id string) *member {
	for _, m := range p.containers {
		if m.id == id {
			return m
		}
	}
	return nil
}

func (p *pod) missing() bool {
	return p.own.group == nil || slices.ContainsFunc(p.containers, func(m *member) bool { return m.group == nil })
}

// read fills out from m, if that is open. A cgroup that was removed, or whose counters are invalid,
// is closed.
func (h *Host) read(p *pod, m *member, out *Group, recheck bool) {
	if m.group == nil {
		return
	}
	if recheck {
		h.recheck(m)
	}
	err := h.readGroup(m.group, out)
	if err == nil {
		return
	}
	*out = Group{ID: out.ID}
	m.group.close()
	m.group = nil
	p.lookups = 0 // look it up in the next Read
	if !gone(err) {
		h.logFault("container", err)
	}
}

func (h *Host) readGroup(g *group, out *Group) (err error) {
	if out.Stat, out.At, err = g.stat(h.tree, &h.reader, h.now); err != nil {
		return err
	}
	if out.Quota, err = g.quota(h.tree, &h.reader); err != nil {
		return err
	}
	var why pressureStatus
	out.Pressure, why, err = g.pressure(h.tree, &h.reader, pressureFile)
	switch {
	case err != nil:
		h.logFault("pressure", err)
	case why == pressureUnsupported:
		g.closeFile(pressureFile)
		h.noPSI()
	case why == pressureGone:
		// Either the file was removed, by cgroup.pressure, or the cgroup: its counters show which.
		g.closeFile(pressureFile)
		if _, _, err := g.stat(h.tree, &h.reader, h.now); err != nil {
			return err
		}
	}
	out.Found = true
	return nil
}

// closeUnused closes the cgroups that were not among the targets of the Read with this number.
func (h *Host) closeUnused(tick uint64) {
	maps.DeleteFunc(h.pods, func(_ string, p *pod) bool {
		p.containers = slices.DeleteFunc(p.containers, func(m *member) bool {
			if m.read == tick {
				return false
			}
			if m.group != nil {
				m.group.close()
			}
			delete(h.displaced, m.id)
			return true
		})
		if p.read == tick {
			return false
		}
		if p.own.group != nil {
			p.own.group.close()
		}
		return true
	})
}
