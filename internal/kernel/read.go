//go:build linux

package kernel

import (
	"maps"
	"path/filepath"
	"time"
)

const (
	// listInterval is the age at which the list of pod directories is made anew even
	// if nothing speaks for it: watches are hints and may be lost.
	listInterval = 30 * time.Second
	// recheckInterval is how often what changes in a living cgroup without a sign is looked at.
	recheckInterval = 30 * time.Second
	// maxFastLookups is how often a missing cgroup is looked for in every Read; after
	// that once in slowTry. Some never come: those of finished init containers,
	// of containers inside virtual machines.
	maxFastLookups = 10
	slowLookup     = 10 * time.Second
	// scanAfter is how long a container may be missing from its pod's directory
	// before the whole tree is searched for it, which happens at most once in scanEvery.
	scanAfter    = 5 * time.Second
	scanInterval = time.Minute
)

// member is a cgroup that is wanted: a container's or, with an empty id, a pod's own.
type member struct {
	id           string
	group        *group // nil: not found
	read         uint64
	missingSince time.Time // missing since
}

type pod struct {
	key        string
	read       uint64
	own        member
	containers []*member
	lookups    int // lookups in a row that left something missing
	nextLookup time.Time
}

// members are the own cgroup and the containers'.
func (p *pod) members() []*member { return append([]*member{&p.own}, p.containers...) }

// Read takes one reading of the machine and of each target, in order. It never
// fails as a whole: what is not there, or is removed under its hands, has Found
// false and is looked for again by the next Read. Files of pods and containers
// that are no longer among the targets are closed.
func (h *Host) Read(targets []Target) Sample {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, t := range targets {
		n += len(t.Containers)
	}
	out := Sample{Pods: make([]PodSample, len(targets))}
	groups := make([]Group, n)
	stalls := h.newStalls(n)
	if h.closed {
		out.Node.At = h.now()
	} else {
		h.reads++
		out.Node = h.node()
	}

	now := h.now()
	hinted := h.hint.Swap(false)
	recheck := now.Sub(h.recheckedAt) >= recheckInterval
	if recheck {
		h.recheckedAt = now
	}
	h.listed = false
	if !h.closed && (hinted || now.Sub(h.indexedAt) >= listInterval) {
		h.list(now)
	}
	wanted := false
	for i, t := range targets {
		ps := PodSample{Pod: t.Pod, Containers: groups[:len(t.Containers):len(t.Containers)]}
		groups = groups[len(t.Containers):]
		if h.closed {
			for j, id := range t.Containers {
				ps.Containers[j].ID = id
			}
			out.Pods[i] = ps
			continue
		}
		p := h.track(t)
		if p.missing() && (hinted || p.lookups < maxFastLookups || !now.Before(p.nextLookup)) {
			wanted = h.resolve(p, now) || wanted
		}
		h.read(p, &p.own, &ps.Own, recheck)
		for j, id := range t.Containers {
			ps.Containers[j].ID = id
			if m := p.container(id); m != nil {
				h.read(p, m, &ps.Containers[j], recheck)
			}
		}
		if stalls != nil {
			h.readStalls(p, ps.Containers, stalls)
			stalls = stalls[len(t.Containers):]
		}
		out.Pods[i] = ps
	}
	if wanted && now.Sub(h.scannedAt) >= scanInterval {
		h.scan(now)
	}
	h.closeUnused(h.reads)
	return out
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
	if p.own.group == nil {
		return true
	}
	for _, m := range p.containers {
		if m.group == nil {
			return true
		}
	}
	return false
}

// resolve looks for the missing cgroups of p: the pod's in the index, the
// containers' in the pod's directory, then among the strays. It says whether one has been
// missing for so long that the whole tree should be searched.
func (h *Host) resolve(p *pod, now time.Time) (search bool) {
	path, names, ok := h.directory(p, now)
	if ok && p.own.group == nil {
		p.own.group = h.open(path, "")
	}
	for _, m := range p.containers {
		if m.group != nil {
			continue
		}
		for _, name := range names {
			if id, ok := containerOf(name); ok && id == m.id {
				m.group = h.openContainer(filepath.Join(path, name), id)
			}
		}
		if stray, ok := h.displaced[m.id]; ok && m.group == nil {
			if m.group = h.openContainer(stray, m.id); m.group == nil {
				delete(h.displaced, m.id)
			}
		}
		switch {
		case m.group != nil:
			m.missingSince = time.Time{}
		case m.missingSince.IsZero():
			m.missingSince = now
		case now.Sub(m.missingSince) > scanAfter:
			search = true
		}
	}
	if p.missing() {
		p.lookups++
		p.nextLookup = now.Add(slowLookup)
	} else {
		p.lookups = 0
	}
	return search
}

// directory is a pod's directory and what is in it. Where the index has none, or one that
// is gone, the index is made anew, once in a Read.
func (h *Host) directory(p *pod, now time.Time) (path string, names []string, ok bool) {
	if path, ok = h.index[p.key]; !ok {
		h.list(now)
		if path, ok = h.index[p.key]; !ok {
			return "", nil, false
		}
	}
	names, err := subdirs(filepath.Join(h.tree.cpu, path))
	switch {
	case err == nil:
		return path, names, true
	case !gone(err):
		h.logFault("list", err)
		return "", nil, false
	}
	delete(h.index, p.key)
	if h.listed {
		return "", nil, false
	}
	return h.directory(p, now)
}

// read fills out from m, if that is open. A cgroup that is gone, or whose
// counters make no sense, is closed.
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
	p.lookups = 0 // look again at once
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
		// The file alone, by cgroup.pressure, or the cgroup? Its counters know.
		g.closeFile(pressureFile)
		if _, _, err := g.stat(h.tree, &h.reader, h.now); err != nil {
			return err
		}
	}
	out.Found = true
	return nil
}

// open is nil where there is no such cgroup; the next Read tries again. id is that of its container, or empty.
func (h *Host) open(path, id string) *group {
	g, err := h.tree.open(path, h.pressures(id))
	if err != nil {
		if !gone(err) {
			h.logFault("open", err)
		}
		return nil
	}
	return g
}

// openContainer opens a container's cgroup, or the one inside it that older
// crun puts the processes and the quota into.
func (h *Host) openContainer(path, id string) *group {
	g := h.open(path, id)
	if g == nil {
		return nil
	}
	if inner := h.nested(g, id); inner != nil {
		g.close()
		return inner
	}
	return g
}

// nested is the only child of an unlimited cgroup if that is called "container" and has a quota.
func (h *Host) nested(g *group, id string) *group {
	if q, err := g.quota(h.tree, &h.reader); err != nil || q.Limit != 0 {
		return nil
	}
	names, err := subdirs(filepath.Join(h.tree.cpu, g.path))
	if err != nil || len(names) != 1 || names[0] != "container" {
		return nil
	}
	inner := h.open(filepath.Join(g.path, "container"), id)
	if inner == nil {
		return nil
	}
	if q, err := inner.quota(h.tree, &h.reader); err != nil || q.Limit == 0 {
		inner.close()
		return nil
	}
	return inner
}

// recheck is for what may change in a living cgroup without a sign: pressure
// that was hidden and is shown again, a quota that an inner cgroup got later, a burst.
func (h *Host) recheck(m *member) {
	if m.id != "" {
		if inner := h.nested(m.group, m.id); inner != nil {
			m.group.close()
			m.group = inner
		}
	}
	m.group.quotaStale = true
	for _, file := range h.pressures(m.id) {
		if m.group.fd[file] < 0 && h.tree.psi != "" {
			_ = openIn(filepath.Join(h.tree.psi, m.group.path), filesOf(h.tree.version), []int{file}, -1, &m.group.fd)
		}
	}
}

// list makes the index of pod directories anew, at most once in a Read.
func (h *Host) list(now time.Time) {
	if h.listed {
		return
	}
	h.listed = true
	pods, err := listPods(h.tree.cpu, h.kubepods)
	if err != nil {
		if !gone(err) { // if it is, reopenRoot deals with it
			h.logFault("list", err)
		}
		return
	}
	h.index, h.indexedAt = pods, now
}

// scan searches the whole tree for missing containers: a runtime with another
// driver than the kubelet's puts them outside of their pod's directory, where the pod's quota does not hold them.
func (h *Host) scan(now time.Time) {
	h.scannedAt = now
	missing := make(map[string]*pod)
	for _, p := range h.pods {
		for _, m := range p.containers {
			if m.group == nil && m.read == h.reads {
				missing[m.id] = p
			}
		}
	}
	found := 0
	walk(h.tree.cpu, deepDepth, func(path, name string, _ int) bool {
		id, ok := containerOf(name)
		p := missing[id]
		if ok && p != nil {
			delete(missing, id)
			p.lookups = 0
			if filepath.Dir(path) != h.index[p.key] { // else it came just now
				h.displaced[id] = path
				found++
			}
		}
		return ok && len(missing) > 0
	})
	if found > 0 {
		h.log.Warn("containers outside of their pod's cgroup; do the kubelet and the runtime use one cgroup driver?", "containers", found)
	}
}

// closeUnused closes what the Read numbered tick did not ask for.
func (h *Host) closeUnused(tick uint64) {
	maps.DeleteFunc(h.pods, func(_ string, p *pod) bool {
		live := p.containers[:0]
		for _, m := range p.containers {
			if m.read == tick {
				live = append(live, m)
				continue
			}
			if m.group != nil {
				m.group.close()
			}
			delete(h.displaced, m.id)
		}
		clear(p.containers[len(live):])
		p.containers = live
		if p.read == tick {
			return false
		}
		if p.own.group != nil {
			p.own.group.close()
		}
		return true
	})
}
