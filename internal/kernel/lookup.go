//go:build linux

package kernel

import (
	"path/filepath"
	"time"

	"github.com/mbcas/mbcas/internal/kernel/cgroupname"
)

const (
	// listInterval is the age at which the pod directories are listed again without any hint:
	// watches may lose events.
	listInterval = 30 * time.Second
	// recheckInterval is how often a living cgroup is checked for changes that have no event.
	recheckInterval = 30 * time.Second
	// maxFastLookups is how many Reads in a row look up a missing cgroup; later ones do so once in
	// slowLookup. Some never appear: those of finished init containers, and of containers inside
	// virtual machines.
	maxFastLookups = 10
	slowLookup     = 10 * time.Second
	// scanAfter is how long a container may be missing from its pod's directory before the whole
	// tree is searched for it, at most once in scanInterval.
	scanAfter    = 5 * time.Second
	scanInterval = time.Minute
)

// resolve looks up the missing cgroups of p: the pod's in the index, the containers' in the pod's
// directory, then among the displaced ones. It says whether one has been missing for so long that
// the whole tree should be searched.
func (h *Host) resolve(p *pod, now time.Time) (search bool) {
	path, names, ok := h.directory(p, now)
	if ok && p.own.group == nil {
		p.own.group = h.open(path, p.own.id)
	}
	for _, m := range p.containers {
		if m.group != nil {
			continue
		}
		for _, name := range names {
			if id, ok := cgroupname.ContainerOf(name); ok && id == m.id {
				m.group = h.openContainer(filepath.Join(path, name), id)
			}
		}
		if path, ok := h.displaced[m.id]; ok && m.group == nil {
			if m.group = h.openContainer(path, m.id); m.group == nil {
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

// directory is a pod's directory and the names in it. Where the index has none, or one that was
// removed, the pods are listed again, once in a Read.
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

// open is nil where there is no such cgroup; the next Read tries again. id is that of its
// container, or Target.Whole.
func (h *Host) open(path, id string) *group {
	g, err := h.tree.open(path, id != "", h.pressures(id))
	if err != nil {
		if !gone(err) {
			h.logFault("open", err)
		}
		return nil
	}
	return g
}

// openContainer opens a container's cgroup, or the one inside it that has the processes and the
// quota with older versions of crun.
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

// recheck detects changes of a living cgroup that have no event: pressure that was hidden and is
// shown again, a quota that an inner cgroup got later, a burst.
func (h *Host) recheck(m *member) {
	if m.group == nil {
		return
	}
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

// list makes the index of pod directories, at most once in a Read.
func (h *Host) list(now time.Time) {
	if h.listed {
		return
	}
	h.listed = true
	pods, err := listPods(h.tree.cpu, h.kubepods)
	if err != nil {
		if !gone(err) { // reopenRoot handles a removed root
			h.logFault("list", err)
		}
		return
	}
	h.index, h.indexedAt = pods, now
}

// scan searches the whole tree for missing containers: a runtime with another driver than the
// kubelet's puts them outside of their pod's directory, where the pod's quota does not limit them.
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
		id, ok := cgroupname.ContainerOf(name)
		p := missing[id]
		if ok && p != nil {
			delete(missing, id)
			p.lookups = 0
			if filepath.Dir(path) != h.index[p.key] { // otherwise it has just started
				h.displaced[id] = path
				found++
			}
		}
		return ok && len(missing) > 0
	})
	if found > 0 {
		h.log.Warn("containers outside of their pod's cgroup; do the kubelet and the runtime use one cgroup driver?",
			"containers", found)
	}
}
