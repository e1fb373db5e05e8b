//go:build linux

package kernel

import "time"

// FullReadInterval is how often what hardly ever changes, or counts on a busy machine alone, is read of
// each pod: the quotas that enforce its limits, and its containers' pressure while CPUs are idle.
const FullReadInterval = 10 * time.Second

// fullReadSlots spreads the pods over the Reads of FullReadInterval, so that each Read costs the same.
const fullReadSlots = 10

// beginRead begins a Read of the pod: from fullReadAt on all of its files are read, once.
func (p *pod) beginRead(now time.Time) {
	if p.due = !now.Before(p.fullReadAt); !p.due {
		return
	}
	interval := FullReadInterval
	if p.fullReadAt.IsZero() {
		interval = FullReadInterval * time.Duration(p.slot+1) / fullReadSlots
	}
	p.fullReadAt = now.Add(interval)
}

// enforces says whether the quotas, as last read, are those of the target's limits.
func (p *pod) enforces(t Target) bool {
	if len(t.Limits) != len(t.Containers) {
		return false
	}
	for i, id := range t.Containers {
		m := p.container(id)
		if m != nil && m.group != nil && m.group.fd[quotaFile] >= 0 && !m.group.quotaRead.Enforces(t.Limits[i]) {
			return false
		}
	}
	return t.Whole == "" || len(t.Limits) == 0 || p.own.group == nil || p.own.group.quotaRead.Enforces(t.Limits[0])
}

// noteBusy notes whether the share of the CPUs that are busy has reached Config.PressureFrom since the
// last Read. Where that is not known, it has.
func (h *Host) noteBusy(usage, idle Total) {
	used, unused := usage.Time-h.usage.Time, idle.Time-h.idle.Time
	known := usage.Known && idle.Known && h.usage.Known && h.idle.Known && used >= 0 && unused >= 0
	if known && used+unused == 0 { // the kernel counts in steps of 10 ms
		return
	}
	h.busy = !known || float64(used) >= h.cfg.PressureFrom*float64(used+unused)
	h.usage, h.idle = usage, idle
}

// newStalls has room for the stalls of n containers; nil where they are not read or the kernel has
// none.
func (h *Host) newStalls(n int) []Stalls {
	if !h.cfg.MemoryIOPressure || h.tree.psi == "" || h.psiUnsupported || h.closed {
		return nil
	}
	return make([]Stalls, n)
}

// pressures are the pressure files to read of a container or a whole pod or, with an empty id, of a
// pod's own cgroup otherwise: none, as no decision uses them.
func (h *Host) pressures(id string) []int {
	switch {
	case h.psiUnsupported || id == "":
		return nil
	case h.cfg.MemoryIOPressure:
		return allPressure
	}
	return cpuPressure
}

// noPSI records that the kernel has the files but refuses to read them.
func (h *Host) noPSI() {
	if h.psiUnsupported {
		return
	}
	h.psiUnsupported = true
	l := h.Layout()
	l.PSI = false
	h.layout.Store(&l)
	h.log.Info("kernel reports no pressure", "layout", l)
}
