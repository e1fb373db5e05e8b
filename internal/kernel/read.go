//go:build linux

package kernel

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/mbcas/mbcas/internal/kernel/cgroupname"
)

// member is a cgroup to read: a container's or, with the id Target.Whole, a pod's own.
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
	fullReadAt time.Time // then all files are read; until then those that hardly change are not
	due        bool      // all files are read in this Read
	slot       int       // of fullReadSlots
	lookups    int       // in a row that left a cgroup missing
	nextLookup time.Time
	released   atomic.Bool // the read of it that blocked has ended
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
// not exist, or is removed meanwhile, has Found false and is looked up again by the next Read. So has
// a pod of which a file blocks its reader, until that ends.
// Files of pods and containers that are no longer among the targets are closed.
func (h *Host) Read(targets []Target) Sample {
	h.mu.Lock()
	defer h.mu.Unlock()
	out, n := newSample(targets)
	if h.closed {
		out.Node.At = h.now()
		return out
	}
	h.reads++
	out.Node = h.node()

	p := h.newPass()
	h.prepareAll(targets, &p, out, h.newStalls(n))
	h.readAll(blockedTick)
	if p.scan && p.now.Sub(h.scannedAt) >= scanInterval {
		h.scan(p.now)
	}
	h.closeUnused(h.reads)
	return out
}

// prepareAll makes a batch of the targets, and looks up what is missing of them.
func (h *Host) prepareAll(targets []Target, p *pass, out Sample, stalls []Stalls) {
	h.forgetReleased()
	r := &h.batch
	r.targets, r.out, r.stalls, r.pods, r.countersOnly = targets, out.Pods, stalls, r.pods[:0], false
	r.busy = h.busy
	for i, t := range targets {
		out.Pods[i].Blocked = h.blocked[t.Pod] != nil
		if out.Pods[i].Blocked {
			r.pods = append(r.pods, nil)
			continue
		}
		r.pods = append(r.pods, h.prepare(t, p))
	}
}

// newSample is a Sample of the targets before anything is read, and the number of their containers.
func newSample(targets []Target) (out Sample, containers int) {
	for _, t := range targets {
		containers += len(t.Containers)
	}
	out = Sample{Pods: make([]PodSample, len(targets))}
	groups := make([]Group, containers)
	for i, t := range targets {
		out.Pods[i] = PodSample{Pod: t.Pod, Own: Group{ID: t.Whole}, Containers: groups[:len(t.Containers):len(t.Containers)]}
		groups = groups[len(t.Containers):]
		for j, id := range t.Containers {
			out.Pods[i].Containers[j].ID = id
		}
	}
	return out, containers
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

// prepare looks up what is missing of a target.
func (h *Host) prepare(t Target, pass *pass) *pod {
	p := h.track(t)
	if p.missing() && (pass.hinted || p.lookups < maxFastLookups || !pass.now.Before(p.nextLookup)) {
		pass.scan = h.resolve(p, pass.now) || pass.scan
	}
	p.beginRead(pass.now)
	if !pass.recheck {
		return p
	}
	h.recheck(&p.own)
	for _, m := range p.containers {
		h.recheck(m)
	}
	return p
}

// track is the pod of a target, with a member for each of its containers.
func (h *Host) track(t Target) *pod {
	p := h.pods[t.Pod]
	if p == nil {
		p = &pod{key: cgroupname.PodKey(t.Pod), slot: h.tracked % fullReadSlots}
		h.tracked++
		h.pods[t.Pod] = p
	}
	p.read = h.reads
	if p.own.id != t.Whole { // other files of it are read
		p.own.group.close()
		p.own, p.lookups = member{id: t.Whole}, 0
	}
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

// closeUnused closes the cgroups that were not among the targets of the Read with this number.
func (h *Host) closeUnused(tick uint64) {
	maps.DeleteFunc(h.pods, func(_ string, p *pod) bool {
		p.containers = slices.DeleteFunc(p.containers, func(m *member) bool {
			if m.read == tick {
				return false
			}
			m.group.close()
			delete(h.displaced, m.id)
			return true
		})
		if p.read == tick {
			return false
		}
		p.own.group.close()
		return true
	})
}
