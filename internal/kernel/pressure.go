//go:build linux

package kernel

// newStalls has room for the stalls of n containers; nil where they are not read or the kernel has
// none.
func (h *Host) newStalls(n int) []Stalls {
	if !h.cfg.MemoryIOPressure || h.tree.psi == "" || h.psiUnsupported || h.closed {
		return nil
	}
	return make([]Stalls, n)
}

// pressures are the pressure files to read of a container or, with an empty id, of a pod's own
// cgroup: none, as no decision uses them.
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
